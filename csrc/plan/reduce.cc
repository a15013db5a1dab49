#include "plan/reduce.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <limits>

#include "parallel/parallel.h"
#include "plan/explain.h"

namespace flexcpu::plan {
namespace {

constexpr int kDst = 0, kSrc = 1;

struct ReduceTuning {
  // Elements of a horizontal leaf.
  static constexpr int64_t kLeaf = 2048;
  // Rows of a vertical leaf, which are added up as trees of eight: one tree, or where the rows are short a chain of
  // them.
  static constexpr int64_t kLeafRows = 8;
  static constexpr int64_t kLeafShortRows = 64;
  // Leaves of a chunk, added one after the other.
  static constexpr int64_t kLeavesPerChunk = 64;
  // Outputs of a tile: horizontal ones share the cost of being stored, vertical ones have accumulators that stay in L1.
  static constexpr int64_t kHorizontalTile = 64;
  static constexpr int64_t kVerticalTile = 512;
  static constexpr int64_t kSmallestVerticalTile = 64;
  // Fewer neighbouring elements of an output than this are not worth a loop of their own.
  static constexpr int64_t kShortestRow = 16;
};

bool is_integer(DType dtype) { return !is_floating(dtype) && !is_complex(dtype); }

DType accumulator_of(DType element) {
  return is_complex(element) ? DType::kC128 : is_floating(element) ? DType::kF64 : DType::kI64;
}

// Parts the dimensions of the whole nest.
void split_dimensions(const layout::LoopNest<2>& nest, ReducePlan& plan) {
  layout::LoopNest<2>& outputs = plan.outputs;
  layout::LoopNest<1>& reduced = plan.reduced;
  outputs.data = nest.data;
  outputs.element_size = nest.element_size;
  reduced.element_size[0] = nest.element_size[kSrc];
  for (int d = 0; d < nest.rank; ++d) {
    if (nest.extents[d] == 1) continue;
    if (nest.strides[kDst][d] == 0) {
      reduced.extents[reduced.rank] = nest.extents[d];
      reduced.strides[0][reduced.rank++] = nest.strides[kSrc][d];
    } else {
      outputs.extents[outputs.rank] = nest.extents[d];
      for (int n : {kDst, kSrc}) outputs.strides[n][outputs.rank] = nest.strides[n][d];
      ++outputs.rank;
    }
  }
}

// Elements from one step of dimension d to the next; a dimension that does not move is not dense at all.
template <int N>
int64_t distance(const layout::LoopNest<N>& nest, int operand, int d) {
  const int64_t stride = nest.strides[operand][d];
  return stride == 0 || nest.extents[d] == 1 ? std::numeric_limits<int64_t>::max() : std::abs(stride);
}

// Makes the dimension along which `operand` is densest the innermost one.
template <int N>
void make_densest_innermost(layout::LoopNest<N>& nest, int operand) {
  int best = nest.rank - 1;
  for (int d = best - 1; d >= 0; --d)
    if (distance(nest, operand, d) < distance(nest, operand, best)) best = d;
  layout::move_dimension(nest, best, nest.rank - 1);
}

const char* refuse_horizontal(const layout::LoopNest<2>& densest_outputs, const layout::LoopNest<1>& reduced) {
  const int64_t width = densest_outputs.extents[densest_outputs.rank - 1];
  if (width == 1) return nullptr;
  if (distance(densest_outputs, kSrc, densest_outputs.rank - 1) < distance(reduced, 0, reduced.rank - 1))
    return "src is densest along a dimension of the output";
  if (reduced.extents[reduced.rank - 1] < ReduceTuning::kShortestRow && width >= ReduceTuning::kSmallestVerticalTile)
    return "the outputs have too few elements side by side";
  return nullptr;
}

// Cuts the reduced dimensions into chunks of kLeavesPerChunk leaves, or fewer where a dimension ends.
void cut_into_chunks(ReducePlan& plan) {
  const layout::LoopNest<1>& reduced = plan.reduced;
  const int columns = reduced.rank - 1, rows = reduced.rank - 2;
  const bool is_vertical = plan.route == ReduceRoute::kVertical;
  const auto step = [&](int d) {
    if (d == columns) return is_vertical ? plan.leaf_rows : plan.leaf_columns;
    return d == rows && !is_vertical ? plan.leaf_rows : 1;
  };
  const auto leaves = [&](int d) { return std::max<int64_t>(1, parallel::divide_up(reduced.extents[d], step(d))); };

  int d = columns;
  int64_t inside = 1;
  while (d > 0 && inside * leaves(d) < ReduceTuning::kLeavesPerChunk) inside *= leaves(d--);
  plan.chunk_dimension = d;
  plan.chunk_length = parallel::divide_up(ReduceTuning::kLeavesPerChunk, inside) * step(d);
  plan.chunks = std::max<int64_t>(1, parallel::divide_up(reduced.extents[d], plan.chunk_length));
  for (int outer = 0; outer < d; ++outer) plan.chunks *= std::max<int64_t>(1, reduced.extents[outer]);
}

int64_t tile_elements(const ReducePlan& plan) {
  return std::min(ReduceTuning::kLeaf, kReduceTileBytes / std::max(size_of(plan.src_dtype), size_of(plan.element)));
}

int64_t tile_for(int64_t outputs, int team, int64_t smallest, int64_t largest) {
  const int64_t share = parallel::divide_up(parallel::divide_up(outputs, team), smallest) * smallest;
  return std::clamp(share, smallest, largest);
}

void plan_horizontal(ReducePlan& plan) {
  const layout::LoopNest<1>& reduced = plan.reduced;
  const int columns = reduced.rank - 1;
  plan.through_tile = plan.through_tile || reduced.strides[0][columns] != 1 ||
                      (reduced.extents[columns] < ReduceTuning::kShortestRow && reduced.extents[columns - 1] > 1);
  const int64_t leaf = plan.through_tile ? tile_elements(plan) : ReduceTuning::kLeaf;
  plan.leaf_columns = std::clamp<int64_t>(reduced.extents[columns], 1, leaf);
  plan.leaf_rows = leaf / plan.leaf_columns;
  plan.tile_outputs =
      tile_for(plan.outputs.extents[plan.outputs.rank - 1], plan.team, 1, ReduceTuning::kHorizontalTile);
  cut_into_chunks(plan);
}

void plan_vertical(ReducePlan& plan) {
  const layout::LoopNest<2>& outputs = plan.outputs;
  const int columns = outputs.rank - 1;
  const int64_t width = outputs.extents[columns];
  plan.through_tile = plan.through_tile || outputs.strides[kSrc][columns] != 1;
  const bool is_narrow = width < ReduceTuning::kSmallestVerticalTile && !plan.through_tile;
  plan.leaf_rows = is_narrow ? ReduceTuning::kLeafShortRows : ReduceTuning::kLeafRows;
  const int64_t fits = plan.through_tile ? tile_elements(plan) / plan.leaf_rows : ReduceTuning::kVerticalTile;
  plan.tile_outputs = tile_for(width, plan.team, ReduceTuning::kSmallestVerticalTile,
                               std::min(fits, ReduceTuning::kVerticalTile));
  plan.leaf_columns = plan.tile_outputs;
  cut_into_chunks(plan);
}

void explain_reduction(const ReducePlan& plan) {
  Explanation explanation{.family = "reduce", .route = name_of(plan.route), .refusals = {},
                          .dtypes = {plan.dst_dtype, plan.src_dtype}, .extents = extents_of(plan.outputs),
                          .team = plan.team};
  const auto reduced = extents_of(plan.reduced);
  explanation.extents.insert(explanation.extents.end(), reduced.begin(), reduced.end());
  if (plan.refusal) explanation.refusals.push_back({name_of(ReduceRoute::kHorizontal), plan.refusal});
  explain(std::move(explanation));
}

}  // namespace

const char* name_of(ReduceRoute route) { return route == ReduceRoute::kHorizontal ? "horizontal" : "vertical"; }

ReducePlan plan_sum(const layout::LoopNest<2>& nest, DType dst_dtype, DType src_dtype, DType element, bool is_mean,
                    int threads) {
  ReducePlan plan{};
  plan.src_dtype = src_dtype;
  plan.dst_dtype = dst_dtype;
  // Sums of integers wrap: they may be narrowed after adding as well as before.
  plan.element = is_integer(src_dtype) && is_integer(element) ? src_dtype : element;
  plan.accumulator = accumulator_of(element);
  plan.is_mean = is_mean;
  plan.through_tile = plan.element != src_dtype;
  plan.team = parallel::team_size(nest.numel(), parallel::kElementGrain, threads);

  split_dimensions(nest, plan);
  layout::collapse(plan.outputs);
  plan.reduced.data[0] = plan.outputs.data[kSrc];
  layout::collapse(plan.reduced);
  layout::pad_rank(plan.outputs, 1);
  layout::pad_rank(plan.reduced, 2);
  make_densest_innermost(plan.reduced, 0);

  layout::LoopNest<2> densest_outputs = plan.outputs;
  make_densest_innermost(densest_outputs, kSrc);
  plan.refusal = refuse_horizontal(densest_outputs, plan.reduced);
  plan.route = plan.refusal ? ReduceRoute::kVertical : ReduceRoute::kHorizontal;
  if (plan.route == ReduceRoute::kHorizontal) {
    plan_horizontal(plan);
  } else {
    plan.outputs = densest_outputs;
    plan_vertical(plan);
  }
  if (is_explained()) [[unlikely]] explain_reduction(plan);
  return plan;
}

}  // namespace flexcpu::plan
