#include "kernels/simd/targets.h"

#include <stdexcept>
#include <string>

#include "hwy/highway.h"

namespace flexcpu::simd {

namespace {

// Highway numbers a better target by a lower bit.
constexpr int64_t better_than(int64_t target) { return target - 1; }

// Highway's SupportedTargets() has kernels forget what was disabled until they are told again.
int64_t usable_targets() {
  const int64_t targets = hwy::SupportedTargets();
  hwy::GetChosenTarget().Update(targets);
  return targets & HWY_TARGETS;
}

}  // namespace

const char* active_target() {
  const int64_t usable = usable_targets();
  if (usable & better_than(HWY_AVX2)) return "avx3";
  return usable & HWY_AVX2 ? "avx2" : "baseline";
}

void cap_target(std::string_view name) {
  if (name == "baseline") {
    hwy::DisableTargets(better_than(HWY_SSE4));
  } else if (name == "avx2") {
    hwy::DisableTargets(better_than(HWY_AVX2));
  } else if (!name.empty() && name != "avx3") {
    throw std::invalid_argument("FLEXCPU_SIMD must be baseline, avx2 or avx3, not \"" + std::string(name) + "\"");
  }
}

bool cpu_has_baseline() { return usable_targets() & (HWY_SSE4 | better_than(HWY_SSE4)); }

}  // namespace flexcpu::simd
