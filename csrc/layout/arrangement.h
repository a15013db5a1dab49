#pragma once
// A dense array whose elements still lie elsewhere, in another order.
//
// A copy that rearranges (a flip, contiguous() of a transposed view) has a dense array as its result. An Arrangement says
// where the array's elements are before it is made: element i of the array, i = sum of index[d] * strides[d], is the
// element sum of index[d] * source_strides[d] of the source. A view of the array is composed with it into loops over the source.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "layout/loop_nest.h"

namespace flexcpu::layout {

// Outermost dimension first. Extents are at least 2; the array's strides are those of a row-major array of these extents;
// the source's are signed, 0 where an element repeats. Dimensions that the source walks as one are one.
struct Arrangement {
  int rank = 0;
  std::array<int64_t, kMaxRank> extents, strides, source_strides;

  // Whether the source is dense in the same order.
  bool is_trivial() const { return rank == 0 || (rank == 1 && source_strides[0] == 1); }
};

// One loop of a view over a source: a part of the view's dimension `axis`.
struct Loop {
  int axis;
  int64_t extent, stride;  // elements of the source
};

// The arrangement of a dense array whose dimensions, in any order, are `loops`: `strides` are the array's. False when the array
// is not dense, or has too many dimensions.
bool arrange(std::span<const Loop> loops, Strides strides, Arrangement& arrangement);

// The loops over the source of a view of the array, in elements; of one axis the outer loops first. Also the offset
// in the source of the view's first element. False where the view cannot be written so: a dimension of it that runs over
// several of the array's is split, and has to end where they do. The view has at least one element and no negative stride.
bool compose(const Arrangement& arrangement, Extents sizes, Strides strides, int64_t offset, std::vector<Loop>& loops,
             int64_t& source_offset);

}  // namespace flexcpu::layout
