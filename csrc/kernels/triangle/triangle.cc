#include "kernels/triangle/triangle.h"

#include <algorithm>
#include <cstring>

#include "parallel/parallel.h"

namespace flexcpu::kernels {
namespace {

struct Row {
  std::byte* dst;
  const std::byte* src;
  int64_t dst_stride;  // bytes
  int64_t size;        // of an element
};

void zero(const Row& row, int64_t begin, int64_t end) {
  if (begin >= end) return;
  if (row.dst_stride == row.size) {
    std::memset(row.dst + begin * row.size, 0, (end - begin) * row.size);
  } else {
    for (int64_t c = begin; c < end; ++c) std::memset(row.dst + c * row.dst_stride, 0, row.size);
  }
}

void keep(const Row& row, int64_t begin, int64_t end) {
  if (begin < end && row.dst != row.src)
    std::memcpy(row.dst + begin * row.size, row.src + begin * row.size, (end - begin) * row.size);
}

}  // namespace

void triangle(const layout::LoopNest<2>& nest, Triangle which, int64_t diagonal, int threads) {
  const int rank = nest.rank;
  const int64_t rows = nest.extents[rank - 2], columns = nest.extents[rank - 1], size = nest.element_size[0];
  if (nest.numel() == 0) return;
  diagonal = std::clamp(diagonal, -rows, columns);
  const int team = parallel::team_size(nest.numel(), parallel::kElementGrain, threads);
  parallel::for_range(nest.numel() / columns, team, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      Row row{nest.data[0], nest.data[1], nest.strides[0][rank - 1] * size, size};
      int64_t rest = at;
      for (int d = rank - 2; d >= 0; --d) {
        const int64_t index = rest % nest.extents[d];
        rest /= nest.extents[d];
        row.dst += index * nest.strides[0][d] * size;
        row.src += index * nest.strides[1][d] * size;
      }
      const int64_t i = at % rows;
      if (which == Triangle::kLower) {
        const int64_t kept = std::clamp<int64_t>(i + diagonal + 1, 0, columns);
        keep(row, 0, kept);
        zero(row, kept, columns);
      } else {
        const int64_t first = std::clamp<int64_t>(i + diagonal, 0, columns);
        zero(row, 0, first);
        keep(row, first, columns);
      }
    }
  });
}

}  // namespace flexcpu::kernels
