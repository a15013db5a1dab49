#include <cstring>

#include "kernels/copy/block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/copy/strided.cc"
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/simd/compat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {

using kernels::Block;

struct Bits128 {
  uint64_t lower, upper;
};

// Strides that are constants make loops that the compiler turns into vector code.
template <typename T>
HWY_INLINE void copy_columns(T* dst, int64_t dst_stride, const T* src, int64_t src_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i * dst_stride] = src[i * src_stride];
}

template <typename T>
void copy_row(T* dst, int64_t dst_stride, const T* src, int64_t src_stride, int64_t count) {
  if (dst_stride != 1) {
    if (src_stride == 1) return copy_columns(dst, dst_stride, src, 1, count);
    return copy_columns(dst, dst_stride, src, src_stride, count);
  }
  switch (src_stride) {
    case 0: {
      const T value = *src;
      for (int64_t i = 0; i < count; ++i) dst[i] = value;
      return;
    }
    case 1: return copy_columns(dst, 1, src, 1, count);
    case 2: return copy_columns(dst, 1, src, 2, count);
    case 3: return copy_columns(dst, 1, src, 3, count);
    case 4: return copy_columns(dst, 1, src, 4, count);
    case -1: return copy_columns(dst, 1, src, -1, count);
    default: return copy_columns(dst, 1, src, src_stride, count);
  }
}

template <typename T>
void copy_strided_block(const Block& b) {
  constexpr int64_t size = sizeof(T);
  for (int64_t r = 0; r < b.rows; ++r) {
    copy_row(reinterpret_cast<T*>(b.dst + r * b.dst_row_stride), b.dst_column_stride / size,
             reinterpret_cast<const T*>(b.src + r * b.src_row_stride), b.src_column_stride / size, b.columns);
  }
}

void copy_strided(const Block& block, int64_t element_size) {
  switch (element_size) {
    case 1: return copy_strided_block<uint8_t>(block);
    case 2: return copy_strided_block<uint16_t>(block);
    case 4: return copy_strided_block<uint32_t>(block);
    case 8: return copy_strided_block<uint64_t>(block);
    case 16: return copy_strided_block<Bits128>(block);
  }
}

// Highway 1.0.3 reverses no lanes of one byte.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> reverse_lanes(D d, hn::Vec<D> v) {
  if constexpr (sizeof(T) == 1) {
    alignas(16) static constexpr uint8_t kBackwards[16] = {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    return hn::ReverseBlocks(d, hn::TableLookupBytes(v, hn::LoadDup128(d, kBackwards)));
  } else {
    return hn::Reverse(d, v);
  }
}

template <typename T>
void reverse_block(const Block& b) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t r = 0; r < b.rows; ++r) {
    T* dst = reinterpret_cast<T*>(b.dst + r * b.dst_row_stride);
    const T* src = reinterpret_cast<const T*>(b.src + r * b.src_row_stride);
    int64_t i = 0;
    for (; i + lanes <= b.columns; i += lanes)
      hn::StoreU(reverse_lanes(d, hn::LoadU(d, src - i - (lanes - 1))), d, dst + i);
    for (; i < b.columns; ++i) dst[i] = src[-i];
  }
}

void reverse_rows(const Block& block, int64_t element_size) {
  switch (element_size) {
    case 1: return reverse_block<uint8_t>(block);
    case 2: return reverse_block<uint16_t>(block);
    case 4: return reverse_block<uint32_t>(block);
    case 8: return reverse_block<uint64_t>(block);
    default: return kernels::copy_strided(block, element_size);
  }
}

void stream_run(std::byte* dst, const std::byte* src, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  const int64_t head = -reinterpret_cast<intptr_t>(dst) & (lanes - 1);
  std::memcpy(dst, src, head);
  int64_t i = head;
  for (; i + lanes <= bytes; i += lanes)
    hn::Stream(hn::LoadU(d, reinterpret_cast<const uint8_t*>(src + i)), d, reinterpret_cast<uint8_t*>(dst + i));
  std::memcpy(dst + i, src + i, bytes - i);
  hwy::FlushStream();
}

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flexcpu {
HWY_EXPORT(copy_strided);
HWY_EXPORT(reverse_rows);
HWY_EXPORT(stream_run);
}  // namespace flexcpu

namespace flexcpu::kernels {

void copy_strided(const Block& block, int64_t element_size) {
  HWY_DYNAMIC_DISPATCH(flexcpu::copy_strided)(block, element_size);
}

void reverse_rows(const Block& block, int64_t element_size) {
  HWY_DYNAMIC_DISPATCH(flexcpu::reverse_rows)(block, element_size);
}

void copy_run(std::byte* dst, const std::byte* src, int64_t bytes, bool streams) {
  constexpr int64_t kShortest = 4096;  // with a line at either end that is not streamed
  if (streams && bytes >= kShortest) {
    HWY_DYNAMIC_DISPATCH(flexcpu::stream_run)(dst, src, bytes);
  } else {
    std::memcpy(dst, src, bytes);
  }
}

void copy_rows(const Block& block, int64_t element_size) {
  for (int64_t r = 0; r < block.rows; ++r) {
    std::byte* dst = block.dst + r * block.dst_row_stride;
    const std::byte* src = block.src + r * block.src_row_stride;
    if (dst != src) copy_run(dst, src, block.columns * element_size, block.streams);
  }
}

}  // namespace flexcpu::kernels
#endif  // HWY_ONCE
