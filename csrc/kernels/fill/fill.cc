#include "kernels/fill/fill.h"

#include <algorithm>
#include <cstring>

#include "parallel/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fill/fill.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/compat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {

// Repeats `pattern`, 16 bytes that hold a whole number of elements.
void fill_run(std::byte* dst, const std::byte* pattern, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto v = hn::LoadDup128(d, reinterpret_cast<const uint8_t*>(pattern));
  auto* p = reinterpret_cast<uint8_t*>(dst);
  const size_t N = hn::Lanes(d), end = static_cast<size_t>(bytes);
  size_t i = 0;
#pragma GCC unroll 4
  for (; i + N <= end; i += N) hn::StoreU(v, d, p + i);
  if (i < end) StoreTail(v, d, p + i, end - i);
}

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flexcpu {
HWY_EXPORT(fill_run);

namespace kernels {
namespace {

template <typename T>
void fill_strided(std::byte* dst, const Value& value, int64_t stride, int64_t count) {
  T x;
  std::memcpy(&x, value.bytes.data(), sizeof(T));
  T* p = reinterpret_cast<T*>(dst);
  for (int64_t i = 0; i < count; ++i) p[i * stride] = x;
}

struct SixteenBytes {
  uint64_t low, high;
};

void fill_strided(std::byte* dst, const Value& value, int64_t size, int64_t stride, int64_t count) {
  switch (size) {
    case 1: return fill_strided<uint8_t>(dst, value, stride, count);
    case 2: return fill_strided<uint16_t>(dst, value, stride, count);
    case 4: return fill_strided<uint32_t>(dst, value, stride, count);
    case 8: return fill_strided<uint64_t>(dst, value, stride, count);
    case 16: return fill_strided<SixteenBytes>(dst, value, stride, count);
  }
}

void fill_part(const layout::LoopNest<1>& nest, const Value& value) {
  const int64_t size = nest.element_size[0];
  const layout::Block<1> block = layout::inner_block(nest);
  const int64_t stride = block.columns == 1 ? 1 : block.column_stride[0], bytes = block.columns * size;
  Value pattern = value;
  for (int64_t filled = size; filled < 16; filled *= 2)
    std::memcpy(pattern.bytes.data() + filled, pattern.bytes.data(), filled);
  // The C library's memset knows more about large runs than a loop of stores.
  const bool same_bytes = std::all_of(pattern.bytes.begin(), pattern.bytes.end(),
                                      [&](std::byte b) { return b == pattern.bytes[0]; });
  const auto run = HWY_DYNAMIC_DISPATCH(fill_run);

  layout::for_each_block(nest, [&](std::array<std::byte*, 1> data) {
    for (int64_t r = 0; r < block.rows; ++r) {
      std::byte* row = data[0] + r * block.row_stride[0] * size;
      if (stride != 1) {
        fill_strided(row, value, size, stride, block.columns);
      } else if (same_bytes) {
        std::memset(row, static_cast<int>(pattern.bytes[0]), bytes);
      } else {
        run(row, pattern.bytes.data(), bytes);
      }
    }
  });
}

}  // namespace

void fill(layout::LoopNest<1> nest, const Value& value, int threads) {
  layout::collapse(nest);
  const int team = parallel::team_size(nest.numel(), parallel::kElementGrain, threads);
  if (team == 1) return fill_part(nest, value);
  const int d = layout::dimension_to_split(nest, team);
  parallel::for_range(nest.extents[d], team,
                      [&](int64_t begin, int64_t end) { fill_part(layout::part_of(nest, d, begin, end), value); });
}

}  // namespace kernels
}  // namespace flexcpu
#endif  // HWY_ONCE
