#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace flexcpu::kernels {

// The windows of images as columns, for convolutions written as matrix products. Pairs are of height and width.
struct Im2col {
  std::byte* dst;        // images x channels x kernel x output, contiguous
  const std::byte* src;  // images x channels x size, of any strides
  int64_t element_size;  // 1, 2, 4, 8 or 16 bytes
  int64_t images, channels;
  std::array<int64_t, 2> size, kernel, dilation, padding, stride, output;
  std::array<int64_t, 4> src_strides;  // bytes; of images, channels, height, width
};

// Dtypes: any, by their size. What lies outside the images is zero.
// Layouts: as above.
// Aliasing: none.
// NaN: keeps its bits.
// Cost: one write of dst; a row of windows a step apart is copied as one run. `threads`: as many as may be used.
void im2col(const Im2col& columns, int threads);

}  // namespace flexcpu::kernels
