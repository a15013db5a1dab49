#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flexcpu::kernels {

// Where the steps of one dimension of dst come from.
struct PaddedDimension {
  int64_t extent;              // of dst
  int64_t src_stride;          // bytes
  std::vector<int64_t> index;  // for each step its index in src, or kFill; empty: step by step
};
inline constexpr int64_t kFill = -1;

struct Padding {
  std::byte* dst;  // contiguous, in the order of `dimensions`
  const std::byte* src;
  std::span<const PaddedDimension> dimensions;  // outermost first; at least one, the last with a stride of `unit`
  int64_t unit;           // bytes that are moved together: an element, or all of what lies inside the dimensions
  const std::byte* fill;  // of `unit` bytes
};

// Pads by constants, by reflection, by replication: the indices tell.
//
// Dtypes: any.
// Layouts: as above.
// Aliasing: none.
// NaN: keeps its bits.
// Cost: one write of dst; what is consecutive in src along the last dimension is copied as one run. `threads`: as many
//       as may be used.
void pad(const Padding& padding, int threads);

}  // namespace flexcpu::kernels
