#pragma once
// One iteration space walked by several operands at once.
//
// A LoopNest<N> is what an elementwise kernel, a copy or a reduction runs over: extents, and for each of the N operands a
// data pointer and one signed stride per dimension. Strides count elements of the operand's own dtype; 0 repeats an
// element (broadcasting), negative ones walk backwards. Dimension rank-1 is the innermost.
//
// Nothing here allocates, and nothing here knows dtypes beyond their size.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace flexcpu::layout {

// Dimensions that native kernels take, after singletons are gone. Tensors of higher rank go to the fallback.
inline constexpr int kMaxRank = 16;

using Extents = std::span<const int64_t>;
using Strides = std::span<const int64_t>;

template <int N>
struct LoopNest {
  int rank = 0;
  std::array<int64_t, kMaxRank> extents;
  std::array<std::array<int64_t, kMaxRank>, N> strides;
  std::array<std::byte*, N> data{};       // read-only operands are const by convention of their kernel
  std::array<int64_t, N> element_size{};  // bytes

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= extents[d];
    return n;
  }
};

// Sets operand `which` of a nest whose rank and extents are set already. `sizes` broadcasts to the nest's extents from the
// right: a missing or 1-sized dimension gets stride 0. The caller has checked that the shapes are compatible.
template <int N>
void set_operand(LoopNest<N>& nest, int which, const void* data, Extents sizes, Strides strides, int64_t element_size) {
  nest.data[which] = static_cast<std::byte*>(const_cast<void*>(data));
  nest.element_size[which] = element_size;
  const int missing = nest.rank - static_cast<int>(sizes.size());
  for (int d = 0; d < nest.rank; ++d) {
    const int s = d - missing;
    const bool repeats = s < 0 || (sizes[s] == 1 && nest.extents[d] != 1);
    nest.strides[which][d] = repeats ? 0 : strides[s];
  }
}

// Rewrites a nest into an equivalent one with fewer, longer, better ordered loops:
//   - dimensions of extent 1 are dropped;
//   - a dimension that operand 0 walks backwards is reversed for all operands, so that operand 0's strides end up >= 0;
//   - dimensions are ordered by operand 0's strides, the smallest innermost (ties by the next operand that differs);
//   - neighbours that every operand walks as one are merged.
// The set of (element of operand 0, ..., element of operand N-1) pairs is the same, the order of visits is not.
template <int N>
void collapse(LoopNest<N>& nest);

extern template void collapse(LoopNest<1>&);
extern template void collapse(LoopNest<2>&);
extern template void collapse(LoopNest<3>&);
extern template void collapse(LoopNest<4>&);

// Moves dimension `from` to position `to`; those between close up.
template <int N>
void move_dimension(LoopNest<N>& nest, int from, int to) {
  const auto swap = [&](int d, int e) {
    std::swap(nest.extents[d], nest.extents[e]);
    for (auto& strides : nest.strides) std::swap(strides[d], strides[e]);
  };
  for (; from < to; ++from) swap(from, from + 1);
  for (; from > to; --from) swap(from, from - 1);
}

// Gives a nest of a lower rank outermost dimensions of one element.
template <int N>
void pad_rank(LoopNest<N>& nest, int rank) {
  while (nest.rank < rank) {
    nest.extents[nest.rank] = 1;
    for (auto& strides : nest.strides) strides[nest.rank] = 1;
    move_dimension(nest, nest.rank++, 0);
  }
}

// The dimension along which a nest is best cut into `parts` equal pieces: the outermost one with several steps a piece,
// else the longest. The nest has a rank of at least 1.
template <int N>
int dimension_to_split(const LoopNest<N>& nest, int parts) {
  constexpr int64_t kStepsPerPart = 8;
  int longest = 0;
  for (int d = 0; d < nest.rank; ++d) {
    if (nest.extents[d] >= parts * kStepsPerPart) return d;
    if (nest.extents[d] > nest.extents[longest]) longest = d;
  }
  return longest;
}

// The part [begin, end) of dimension `d`.
template <int N>
LoopNest<N> part_of(const LoopNest<N>& nest, int d, int64_t begin, int64_t end) {
  LoopNest<N> part = nest;
  part.extents[d] = end - begin;
  for (int n = 0; n < N; ++n) part.data[n] += begin * nest.strides[n][d] * nest.element_size[n];
  return part;
}

// The two innermost dimensions, which are a kernel's own loops. A missing one has extent 1 and strides 0.
template <int N>
struct Block {
  int64_t rows = 1, columns = 1;
  std::array<int64_t, N> row_stride{}, column_stride{};  // elements
};

template <int N>
Block<N> inner_block(const LoopNest<N>& nest) {
  Block<N> block;
  const int column = nest.rank - 1, row = nest.rank - 2;
  if (column >= 0) block.columns = nest.extents[column];
  if (row >= 0) block.rows = nest.extents[row];
  for (int n = 0; n < N; ++n) {
    if (column >= 0) block.column_stride[n] = nest.strides[n][column];
    if (row >= 0) block.row_stride[n] = nest.strides[n][row];
  }
  return block;
}

// Calls visit(data) with the N pointers to the first elements of every inner block, in order.
template <int N, typename Visit>
void for_each_block(const LoopNest<N>& nest, const Visit& visit) {
  const int outer = nest.rank > 2 ? nest.rank - 2 : 0;
  for (int d = 0; d < nest.rank; ++d)
    if (nest.extents[d] == 0) return;
  if (outer == 0) return visit(nest.data);
  auto data = nest.data;
  std::array<int64_t, kMaxRank> index{};
  for (;;) {
    visit(data);
    int d = outer - 1;
    for (; d >= 0; --d) {
      const bool wraps = ++index[d] == nest.extents[d];
      const int64_t steps = wraps ? 1 - nest.extents[d] : 1;
      for (int n = 0; n < N; ++n) data[n] += steps * nest.strides[n][d] * nest.element_size[n];
      if (!wraps) break;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace flexcpu::layout
