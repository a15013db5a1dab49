#include "layout/loop_nest.h"

#include <cstdlib>
#include <utility>

namespace flexcpu::layout {
namespace {

template <int N>
void drop_singletons(LoopNest<N>& nest) {
  int kept = 0;
  for (int d = 0; d < nest.rank; ++d) {
    if (nest.extents[d] == 1) continue;
    nest.extents[kept] = nest.extents[d];
    for (int n = 0; n < N; ++n) nest.strides[n][kept] = nest.strides[n][d];
    ++kept;
  }
  nest.rank = kept;
}

template <int N>
void make_first_operand_ascend(LoopNest<N>& nest) {
  for (int d = 0; d < nest.rank; ++d) {
    if (nest.strides[0][d] >= 0 || nest.extents[d] == 0) continue;
    for (int n = 0; n < N; ++n) {
      nest.data[n] += (nest.extents[d] - 1) * nest.strides[n][d] * nest.element_size[n];
      nest.strides[n][d] = -nest.strides[n][d];
    }
  }
}

// Whether dimension `outer` may stay outside dimension `inner`.
template <int N>
bool is_ordered(const LoopNest<N>& nest, int outer, int inner) {
  for (int n = 0; n < N; ++n) {
    const int64_t a = std::abs(nest.strides[n][outer]), b = std::abs(nest.strides[n][inner]);
    if (a != b) return a > b;
  }
  return true;
}

template <int N>
void swap_dimensions(LoopNest<N>& nest, int a, int b) {
  std::swap(nest.extents[a], nest.extents[b]);
  for (int n = 0; n < N; ++n) std::swap(nest.strides[n][a], nest.strides[n][b]);
}

template <int N>
void order(LoopNest<N>& nest) {
  for (int d = 1; d < nest.rank; ++d)
    for (int e = d; e > 0 && !is_ordered(nest, e - 1, e); --e) swap_dimensions(nest, e - 1, e);
}

template <int N>
void merge_neighbours(LoopNest<N>& nest) {
  if (nest.rank == 0) return;
  int outer = 0;
  for (int d = 1; d < nest.rank; ++d) {
    bool mergeable = true;
    for (int n = 0; n < N && mergeable; ++n)
      mergeable = nest.strides[n][outer] == nest.strides[n][d] * nest.extents[d];
    if (mergeable) {
      nest.extents[outer] *= nest.extents[d];
    } else {
      nest.extents[++outer] = nest.extents[d];
    }
    for (int n = 0; n < N; ++n) nest.strides[n][outer] = nest.strides[n][d];
  }
  nest.rank = outer + 1;
}

}  // namespace

template <int N>
void collapse(LoopNest<N>& nest) {
  drop_singletons(nest);
  make_first_operand_ascend(nest);
  order(nest);
  merge_neighbours(nest);
}

template void collapse(LoopNest<1>&);
template void collapse(LoopNest<2>&);
template void collapse(LoopNest<3>&);
template void collapse(LoopNest<4>&);

}  // namespace flexcpu::layout
