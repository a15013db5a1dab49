#include "plan/elementwise.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "parallel/parallel.h"
#include "plan/copy.h"
#include "plan/explain.h"

namespace flexcpu::plan {
namespace {

struct ElementwiseTuning {
  // The side of a square tile along the rows: two cache lines of a source of 4 bytes.
  static constexpr int64_t kTransposedRows = 32;
  // Below so many columns the call of a row costs more than its work, if there are enough rows to pay for tiles.
  static constexpr int64_t kShortRow = 24;
  static constexpr int64_t kManyRows = 32;
};

// Moves dimension `from` to position `to`, which is further in.
template <int N>
void move_in(layout::LoopNest<N>& nest, int from, int to) {
  for (int d = from; d < to; ++d) {
    std::swap(nest.extents[d], nest.extents[d + 1]);
    for (auto& strides : nest.strides) std::swap(strides[d], strides[d + 1]);
  }
}

// The dimension along which operand `n` is densest, if that is not the innermost one; else -1.
template <int N>
int crossing_dimension(const layout::LoopNest<N>& nest, int n) {
  const int innermost = nest.rank - 1;
  const int64_t stride = std::abs(nest.strides[n][innermost]);
  if (stride <= 1) return -1;
  int best = innermost;
  for (int d = innermost - 1; d >= 0; --d) {
    const int64_t s = std::abs(nest.strides[n][d]);
    if (s != 0 && s < std::abs(nest.strides[n][best])) best = d;
  }
  return best == innermost ? -1 : best;
}

template <int N>
void choose_route(ElementwisePlan<N>& plan, int threads, int wide_scalar) {
  layout::LoopNest<N>& nest = plan.nest;
  layout::collapse(nest);
  const int64_t numel = nest.numel();
  plan.team = parallel::team_size(numel, parallel::kElementGrain, threads);
  plan.route = nest.rank <= 1 ? ElementwiseRoute::kContiguous : ElementwiseRoute::kRows;
  if (numel == 0) return;

  int crossing = -1;
  for (int n = 1; n < N && crossing < 0 && nest.rank > 1; ++n) crossing = crossing_dimension(nest, n);
  if (crossing >= 0) move_in(nest, crossing, nest.rank - 2);

  const layout::Block<N> block = layout::inner_block(nest);
  const bool joins_rows =
      block.columns < ElementwiseTuning::kShortRow && block.rows >= ElementwiseTuning::kManyRows;
  if (joins_rows) plan.refusal = "the rows are short";
  bool has_vector = false;  // among the inputs: a row needs one
  for (int n = 0; n < N; ++n) {
    const int64_t stride = block.column_stride[n], row_stride = block.row_stride[n];
    if (n == wide_scalar) {
      plan.access[n] = Access::kScalar;
    } else if (plan.dtypes[n] != plan.compute) {
      plan.access[n] = Access::kTile;
      plan.refusal = "an operand is converted";
    } else if ((stride == 1 || block.columns == 1) && (!joins_rows || row_stride == block.columns)) {
      plan.access[n] = Access::kDirect;
    } else if (stride == 0 && n > 0 && (!joins_rows || row_stride == 0)) {
      plan.access[n] = Access::kScalar;
    } else {
      plan.access[n] = Access::kTile;
      if (!joins_rows) plan.refusal = "the elements of an operand's rows are apart";
    }
    has_vector = has_vector || (n > 0 && plan.access[n] != Access::kScalar);
  }
  if (!has_vector) {
    plan.access[1] = Access::kTile;
    plan.refusal = "every input's rows repeat one element";
  }
  if (!plan.refusal) return;

  if (joins_rows) {
    plan.route = ElementwiseRoute::kShortRows;
  } else {
    plan.route = crossing >= 0 ? ElementwiseRoute::kTransposed : ElementwiseRoute::kTiles;
  }
  if (plan.route == ElementwiseRoute::kTransposed) {
    plan.tile_rows = std::min(block.rows, ElementwiseTuning::kTransposedRows);
    plan.tile_columns = std::min(block.columns, kTileElements / plan.tile_rows);
  } else {
    plan.tile_columns = std::min(block.columns, kTileElements);
    plan.tile_rows = std::min(block.rows, kTileElements / plan.tile_columns);
  }
}

}  // namespace

const char* name_of(ElementwiseRoute route) {
  constexpr const char* names[] = {"contiguous", "rows", "short rows", "tiles", "transposed"};
  return names[static_cast<int>(route)];
}

template <int N>
void plan_elementwise(ElementwisePlan<N>& plan, int threads, int wide_scalar) {
  choose_route(plan, threads, wide_scalar);
  // A result in the place of an input is in the cache already; bytes are too few in a tile to stream.
  plan.streams = plan.route <= ElementwiseRoute::kRows && plan.nest.element_size[0] > 1 &&
                 is_beyond_cache(plan.nest.numel() * plan.nest.element_size[0]) &&
                 std::find(plan.nest.data.begin() + 1, plan.nest.data.end(), plan.nest.data[0]) == plan.nest.data.end();
  if (!is_explained()) [[likely]] return;
  Explanation explanation{.family = "elementwise", .route = name_of(plan.route), .refusals = {},
                          .dtypes = {plan.dtypes.begin(), plan.dtypes.end()}, .extents = extents_of(plan.nest),
                          .team = plan.team};
  if (plan.refusal) explanation.refusals.push_back({name_of(ElementwiseRoute::kRows), plan.refusal});
  explain(std::move(explanation));
}

const char* refuse_binary(BinaryOp op, DType compute) {
  if (compute == DType::kOther) return "no rows of this dtype";
  switch (op) {
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
      if (is_complex(compute)) return "complex numbers are always added scaled";
      [[fallthrough]];
    case BinaryOp::kAddScaled:
      if (compute == DType::kU16 || compute == DType::kU32 || compute == DType::kU64)
        return "no addition of u16, u32 and u64";
      if (compute == DType::kBool && op != BinaryOp::kAdd) return "no subtraction and no scaling of bools";
      return nullptr;
    case BinaryOp::kMul:
      return nullptr;
    case BinaryOp::kDiv:
      if (!is_floating(compute) && !is_complex(compute)) return "true division is of floating and complex numbers";
      if (compute == DType::kC32) return "no division of c32";
      return nullptr;
  }
  return "no such operation";
}

template void plan_elementwise(ElementwisePlan<2>&, int, int);
template void plan_elementwise(ElementwisePlan<3>&, int, int);
template void plan_elementwise(ElementwisePlan<4>&, int, int);

}  // namespace flexcpu::plan
