#include "kernels/im2col/im2col.h"

#include <algorithm>
#include <cstring>

#include "parallel/parallel.h"

namespace flexcpu::kernels {
namespace {

struct Bits128 {
  uint64_t lower, upper;
};

// The windows along a dimension whose place `offset` (of the kernel's, less the padding) lies within the image.
struct Range {
  int64_t begin, end;
};

Range inside(int64_t offset, int64_t stride, int64_t size, int64_t output) {
  const int64_t begin = offset >= 0 ? 0 : parallel::divide_up(-offset, stride);
  const int64_t end = size > offset ? parallel::divide_up(size - offset, stride) : 0;
  return {std::min(begin, output), std::clamp<int64_t>(end, std::min(begin, output), output)};
}

template <typename T>
void copy_row(std::byte* dst, const std::byte* src, int64_t src_stride, int64_t count) {
  if (src_stride == sizeof(T)) {
    std::memcpy(dst, src, count * sizeof(T));
  } else {
    for (int64_t i = 0; i < count; ++i) std::memcpy(dst + i * sizeof(T), src + i * src_stride, sizeof(T));
  }
}

// One place of the kernel in one channel: a plane of dst.
template <typename T>
void copy_plane(const Im2col& c, std::byte* dst, const std::byte* src, int64_t kernel_row, int64_t kernel_column) {
  const int64_t top = kernel_row * c.dilation[0] - c.padding[0], left = kernel_column * c.dilation[1] - c.padding[1];
  const Range rows = inside(top, c.stride[0], c.size[0], c.output[0]);
  const Range columns = inside(left, c.stride[1], c.size[1], c.output[1]);
  const int64_t row_bytes = c.output[1] * sizeof(T);
  std::memset(dst, 0, rows.begin * row_bytes);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::byte* to = dst + row * row_bytes;
    const std::byte* from = src + (top + row * c.stride[0]) * c.src_strides[2] +
                            (left + columns.begin * c.stride[1]) * c.src_strides[3];
    std::memset(to, 0, columns.begin * sizeof(T));
    copy_row<T>(to + columns.begin * sizeof(T), from, c.stride[1] * c.src_strides[3], columns.end - columns.begin);
    std::memset(to + columns.end * sizeof(T), 0, (c.output[1] - columns.end) * sizeof(T));
  }
  std::memset(dst + rows.end * row_bytes, 0, (c.output[0] - rows.end) * row_bytes);
}

template <typename T>
void copy_planes(const Im2col& c, int threads) {
  const int64_t places = c.kernel[0] * c.kernel[1], plane = c.output[0] * c.output[1];
  const int64_t planes = c.images * c.channels * places;
  const int team = parallel::team_size(planes * plane, parallel::kElementGrain, threads);
  parallel::for_range(planes, team, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t place = at % places, channel = at / places % c.channels, image = at / places / c.channels;
      copy_plane<T>(c, c.dst + at * plane * sizeof(T), c.src + image * c.src_strides[0] + channel * c.src_strides[1],
                    place / c.kernel[1], place % c.kernel[1]);
    }
  });
}

}  // namespace

void im2col(const Im2col& columns, int threads) {
  switch (columns.element_size) {
    case 1: return copy_planes<uint8_t>(columns, threads);
    case 2: return copy_planes<uint16_t>(columns, threads);
    case 4: return copy_planes<uint32_t>(columns, threads);
    case 8: return copy_planes<uint64_t>(columns, threads);
    case 16: return copy_planes<Bits128>(columns, threads);
  }
}

}  // namespace flexcpu::kernels
