#include "layout/arrangement.h"

#include <algorithm>

namespace flexcpu::layout {

bool arrange(std::span<const Loop> loops, Strides strides, Arrangement& arrangement) {
  struct Dimension {
    int64_t extent, stride, source_stride;
  };
  std::vector<Dimension> dimensions;
  for (size_t i = 0; i < loops.size(); ++i)
    if (loops[i].extent != 1) dimensions.push_back({loops[i].extent, strides[i], loops[i].stride});
  std::sort(dimensions.begin(), dimensions.end(), [](const auto& a, const auto& b) { return a.stride < b.stride; });

  // From the innermost out; a dimension that the source walks on with joins the one inside it.
  std::vector<Dimension> merged;
  int64_t dense = 1;
  for (const Dimension& dimension : dimensions) {
    if (dimension.stride != dense) return false;
    dense *= dimension.extent;
    if (!merged.empty() && dimension.source_stride == merged.back().source_stride * merged.back().extent) {
      merged.back().extent *= dimension.extent;
    } else {
      merged.push_back(dimension);
    }
  }
  if (merged.size() > static_cast<size_t>(kMaxRank)) return false;
  arrangement.rank = static_cast<int>(merged.size());
  for (int d = 0; d < arrangement.rank; ++d) {
    const Dimension& dimension = merged[arrangement.rank - 1 - d];
    arrangement.extents[d] = dimension.extent;
    arrangement.strides[d] = dimension.stride;
    arrangement.source_strides[d] = dimension.source_stride;
  }
  return true;
}

bool compose(const Arrangement& arrangement, Extents sizes, Strides strides, int64_t offset, std::vector<Loop>& loops,
             int64_t& source_offset) {
  // The array's index as digits, and the largest value that each takes: while none overflows, loops move digits apart.
  std::array<int64_t, kMaxRank> largest;
  source_offset = 0;
  for (int d = 0; d < arrangement.rank; ++d) {
    largest[d] = offset / arrangement.strides[d] % arrangement.extents[d];
    source_offset += largest[d] * arrangement.source_strides[d];
  }
  loops.clear();
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    int64_t extent = sizes[axis], stride = strides[axis];
    const size_t outermost = loops.size();
    if (extent == 1 || stride == 0) {
      loops.push_back({static_cast<int>(axis), extent, 0});
      continue;
    }
    int d = arrangement.rank - 1;
    while (extent > 1) {
      while (d >= 0 && stride >= arrangement.strides[d] * arrangement.extents[d]) --d;
      if (d < 0 || stride % arrangement.strides[d] != 0) return false;
      const int64_t step = stride / arrangement.strides[d];
      int64_t inner = extent;
      if (largest[d] + (extent - 1) * step >= arrangement.extents[d]) {
        if (arrangement.extents[d] % step != 0) return false;
        inner = arrangement.extents[d] / step;
        if (extent % inner != 0 || largest[d] + (inner - 1) * step >= arrangement.extents[d]) return false;
      }
      largest[d] += (inner - 1) * step;
      loops.insert(loops.begin() + static_cast<std::ptrdiff_t>(outermost),
                   {static_cast<int>(axis), inner, step * arrangement.source_strides[d]});
      extent /= inner;
      stride = arrangement.strides[d] * arrangement.extents[d];
    }
  }
  return true;
}

}  // namespace flexcpu::layout
