#include "kernels/copy/block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/copy/transpose.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/compat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {

using kernels::Block;

// Elements in 16 bytes, the unit within which vectors are interleaved.
template <typename T>
constexpr int kGroup = 16 / sizeof(T);

// A vector of groups; group k comes from p + k * kGroup * stride.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_groups(D d, const std::byte* p, int64_t stride) {
  if constexpr (hn::MaxLanes(d) == kGroup<T>) {
    return hn::LoadU(d, reinterpret_cast<const T*>(p));
  } else {
    const hn::Half<D> half;
    const auto lower = load_groups(half, p, stride);
    const auto upper = load_groups(half, p + hn::MaxLanes(half) * stride, stride);
    return hn::Combine(d, upper, lower);
  }
}

// Writes kGroup rows of Lanes(d) columns: column by column in src, row by row in dst.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void transpose_tile(D d, std::byte* dst, int64_t dst_stride, const std::byte* src, int64_t src_stride) {
  constexpr int n = kGroup<T>;
  hn::Vec<D> v[n], t[n];
  HWY_UNROLL(16)
  for (int i = 0; i < n; ++i) v[i] = load_groups(d, src + i * src_stride, src_stride);
  HWY_UNROLL(4)
  for (int span = 1; span < n; span *= 2) {
    HWY_UNROLL(16)
    for (int i = 0; i < n / 2; ++i) {
      t[2 * i] = hn::InterleaveLower(d, v[i], v[i + n / 2]);
      t[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + n / 2]);
    }
    HWY_UNROLL(16)
    for (int i = 0; i < n; ++i) v[i] = t[i];
  }
  HWY_UNROLL(16)
  for (int i = 0; i < n; ++i) hn::StoreU(v[i], d, reinterpret_cast<T*>(dst + i * dst_stride));
}

// The last tile of a row or column overlaps the one before it. Tiles are taken in an order that completes the lines of
// dst one after another: rows a power of two apart share a few sets of the cache.
template <class D, typename T = hn::TFromD<D>>
void transpose_tiles(D d, const Block& b) {
  constexpr int64_t height = kGroup<T>, width = hn::MaxLanes(d), line = 64 / sizeof(T);
  for (int64_t first = 0; first < b.columns; first += line) {
    for (int64_t tile_row = 0; tile_row < b.rows; tile_row += height) {
      const int64_t row = HWY_MIN(tile_row, b.rows - height);
      for (int64_t tile = first; tile < HWY_MIN(first + line, b.columns); tile += width) {
        const int64_t column = HWY_MIN(tile, b.columns - width);
        transpose_tile(d, b.dst + row * b.dst_row_stride + column * sizeof(T), b.dst_row_stride,
                       b.src + row * sizeof(T) + column * b.src_column_stride, b.src_column_stride);
      }
    }
  }
}

// Elements of 16 bytes: four of them are a line of dst.
void transpose_wide(const Block& b) {
  const hn::FixedTag<uint8_t, 16> d;
  for (int64_t first = 0; first < b.columns; first += 4) {
    const int64_t end = HWY_MIN(first + 4, b.columns);
    for (int64_t row = 0; row < b.rows; ++row) {
      for (int64_t column = first; column < end; ++column) {
        const auto* src = reinterpret_cast<const uint8_t*>(b.src + row * 16 + column * b.src_column_stride);
        hn::StoreU(hn::LoadU(d, src), d, reinterpret_cast<uint8_t*>(b.dst + row * b.dst_row_stride + column * 16));
      }
    }
  }
}

// The widest tile that fits.
template <typename T>
void transpose_block(const Block& b) {
  const hn::CappedTag<T, 64 / sizeof(T)> d64;
  const hn::CappedTag<T, 32 / sizeof(T)> d32;
  const hn::CappedTag<T, 16 / sizeof(T)> d16;
  if (b.rows < kGroup<T> || b.columns < kGroup<T>) return kernels::copy_strided(b, sizeof(T));
  if (b.columns >= static_cast<int64_t>(hn::MaxLanes(d64))) return transpose_tiles(d64, b);
  if (b.columns >= static_cast<int64_t>(hn::MaxLanes(d32))) return transpose_tiles(d32, b);
  transpose_tiles(d16, b);
}

void transpose(const Block& block, int64_t element_size) {
  switch (element_size) {
    case 1: return transpose_block<uint8_t>(block);
    case 2: return transpose_block<uint16_t>(block);
    case 4: return transpose_block<uint32_t>(block);
    case 8: return transpose_block<uint64_t>(block);
    case 16: return transpose_wide(block);
  }
}

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flexcpu {
HWY_EXPORT(transpose);
}  // namespace flexcpu

namespace flexcpu::kernels {

void transpose(const Block& block, int64_t element_size) {
  HWY_DYNAMIC_DISPATCH(flexcpu::transpose)(block, element_size);
}

}  // namespace flexcpu::kernels
#endif  // HWY_ONCE
