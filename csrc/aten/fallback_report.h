#pragma once
// What ran on the fallback, and whether it may.

#include <cstdint>
#include <string>
#include <vector>

namespace flexcpu::aten {

struct FallbackCount {
  std::string op;  // "aten::sort.values_stable"
  uint64_t calls;
};

// Calls per op since the start or the last reset, most called first.
std::vector<FallbackCount> fallback_counts();
void reset_fallback_counts();

enum class FallbackMode {
  kSilent,
  kWarn,   // once per op
  kError,  // NotImplementedError, and the op does not run
};

void set_fallback_mode(FallbackMode mode);
FallbackMode fallback_mode();

// While a thread forbids it at least once, the fallback is an error on that thread.
void forbid_fallback(bool begin);

}  // namespace flexcpu::aten
