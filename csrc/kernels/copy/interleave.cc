#include "kernels/copy/block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/copy/interleave.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/compat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {

using kernels::Block;

// Pointers are in arrays of constant length that no loop of variable length touches: they stay in registers.
template <int kWays, class D, typename T = hn::TFromD<D>>
HWY_INLINE void interleave_vectors(D d, const T* const (&src)[4], int64_t i, T* dst) {
  const auto a = hn::LoadU(d, src[0] + i), b = hn::LoadU(d, src[1] + i);
  if constexpr (kWays == 2) hn::StoreInterleaved2(a, b, d, dst);
  if constexpr (kWays == 3) hn::StoreInterleaved3(a, b, hn::LoadU(d, src[2] + i), d, dst);
  if constexpr (kWays == 4)
    hn::StoreInterleaved4(a, b, hn::LoadU(d, src[2] + i), hn::LoadU(d, src[3] + i), d, dst);
}

template <int kWays, int kKept, class D, typename T = hn::TFromD<D>>
HWY_INLINE void deinterleave_vectors(D d, const T* src, T* const (&dst)[4], int64_t i) {
  hn::Vec<D> v[4];
  if constexpr (kWays == 2) hn::LoadInterleaved2(d, src, v[0], v[1]);
  if constexpr (kWays == 3) hn::LoadInterleaved3(d, src, v[0], v[1], v[2]);
  if constexpr (kWays == 4) hn::LoadInterleaved4(d, src, v[0], v[1], v[2], v[3]);
  HWY_UNROLL(4)
  for (int r = 0; r < kKept; ++r) hn::StoreU(v[r], d, dst[r] + i);
}

// The last vector of either overlaps the one before it.
template <int kWays, class D, typename T = hn::TFromD<D>>
void interleave_columns(D d, T* dst, const std::byte* const* runs, int64_t count) {
  const int64_t lanes = hn::Lanes(d);
  const T* src[4] = {};
  HWY_UNROLL(4)
  for (int r = 0; r < kWays; ++r) src[r] = reinterpret_cast<const T*>(runs[r]);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) interleave_vectors<kWays>(d, src, i, dst + i * kWays);
  if (count < lanes) {
    for (; i < count; ++i)
      for (int r = 0; r < kWays; ++r) dst[i * kWays + r] = src[r][i];
  } else if (i < count) {
    i = count - lanes;
    interleave_vectors<kWays>(d, src, i, dst + i * kWays);
  }
}

// Of kWays interleaved rows the first kKept.
template <int kWays, int kKept, class D, typename T = hn::TFromD<D>>
void deinterleave_columns(D d, const Block& b) {
  const int64_t lanes = hn::Lanes(d);
  T* dst[4] = {};
  HWY_UNROLL(4)
  for (int r = 0; r < kKept; ++r) dst[r] = reinterpret_cast<T*>(b.dst + r * b.dst_row_stride);
  const T* src = reinterpret_cast<const T*>(b.src);
  // What is not kept of the last column may lie behind the end of src.
  const int64_t columns = kKept == kWays ? b.columns : b.columns - 1;
  int64_t i = 0;
  for (; i + lanes <= columns; i += lanes) deinterleave_vectors<kWays, kKept>(d, src + i * kWays, dst, i);
  i = columns - lanes;
  deinterleave_vectors<kWays, kKept>(d, src + i * kWays, dst, i);
  if (kKept == kWays) return;
  for (int r = 0; r < kKept; ++r) dst[r][columns] = src[columns * kWays + r];
}

template <int kWays, class D>
void deinterleave_kept(D d, const Block& b) {
  switch (b.rows) {
    case 1: return deinterleave_columns<kWays, 1>(d, b);
    case 2: return deinterleave_columns<kWays, 2>(d, b);
    case 3: if constexpr (kWays >= 3) return deinterleave_columns<kWays, 3>(d, b);
    case 4: if constexpr (kWays >= 4) return deinterleave_columns<kWays, 4>(d, b);
  }
}

template <typename T>
void interleave_as(std::byte* dst, const std::byte* const* src, int64_t ways, int64_t count) {
  const hn::ScalableTag<T> d;
  auto* to = reinterpret_cast<T*>(dst);
  switch (ways) {
    case 2: return interleave_columns<2>(d, to, src, count);
    case 3: return interleave_columns<3>(d, to, src, count);
    case 4: return interleave_columns<4>(d, to, src, count);
  }
}

void interleave_runs(std::byte* dst, const std::byte* const* src, int64_t ways, int64_t count, int64_t element_size) {
  switch (element_size) {
    case 1: return interleave_as<uint8_t>(dst, src, ways, count);
    case 2: return interleave_as<uint16_t>(dst, src, ways, count);
    case 4: return interleave_as<uint32_t>(dst, src, ways, count);
    case 8: return interleave_as<uint64_t>(dst, src, ways, count);
  }
}

template <typename T>
void deinterleave_block(const Block& b) {
  const hn::ScalableTag<T> d;
  if (b.columns <= static_cast<int64_t>(hn::Lanes(d))) return kernels::copy_strided(b, sizeof(T));
  switch (b.src_column_stride / static_cast<int64_t>(sizeof(T))) {
    case 2: return deinterleave_kept<2>(d, b);
    case 3: return deinterleave_kept<3>(d, b);
    case 4: return deinterleave_kept<4>(d, b);
  }
}

void deinterleave(const Block& block, int64_t element_size) {
  switch (element_size) {
    case 1: return deinterleave_block<uint8_t>(block);
    case 2: return deinterleave_block<uint16_t>(block);
    case 4: return deinterleave_block<uint32_t>(block);
    case 8: return deinterleave_block<uint64_t>(block);
    default: return kernels::copy_strided(block, element_size);
  }
}

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flexcpu {
HWY_EXPORT(interleave_runs);
HWY_EXPORT(deinterleave);
}  // namespace flexcpu

namespace flexcpu::kernels {

void interleave_runs(std::byte* dst, const std::byte* const src[4], int64_t ways, int64_t count, int64_t element_size) {
  HWY_DYNAMIC_DISPATCH(flexcpu::interleave_runs)(dst, src, ways, count, element_size);
}

void interleave(const Block& block, int64_t element_size) {
  if (element_size == 16) return copy_strided(block, element_size);
  const std::byte* src[4] = {};
  for (int64_t r = 0; r < block.rows; ++r) src[r] = block.src + r * block.src_row_stride;
  interleave_runs(block.dst, src, block.rows, block.columns, element_size);
}

void deinterleave(const Block& block, int64_t element_size) {
  HWY_DYNAMIC_DISPATCH(flexcpu::deinterleave)(block, element_size);
}

}  // namespace flexcpu::kernels
#endif  // HWY_ONCE
