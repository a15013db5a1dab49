#include "plan/copy.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "parallel/parallel.h"
#include "plan/explain.h"

namespace flexcpu::plan {
namespace {

using Nest = layout::LoopNest<2>;
constexpr int kDst = 0, kSrc = 1;

struct CopyTuning {
  // A contiguous copy is cut into pieces of this size at most; a thread takes neighbouring ones.
  static constexpr int64_t kRunBytes = 1024 * 1024;
  // Elements of a block of rows.
  static constexpr int64_t kRowBlock = 16 * 1024;
  // Streaming stores win from half of a cache on. A last-level cache larger than twice this is shared by so many cores
  // that it is never all ours: 64 MB copied at 10 instead of 5 GB/s, 16 MB and then read at 8.5 instead of 9.2
  // (a 260 MB cache seen by two cores, 2026-12-01).
  static constexpr int64_t kStreamedBytes = 32 * 1024 * 1024;
  // Shorter runs are copied across: the loop over them costs more than the copying.
  static constexpr int64_t kShortestRunBytes = 32;
  // What is interleaved, and how long it must be for whole vectors.
  static constexpr int64_t kMostWays = 4;
  static constexpr int64_t kShortestInterleaved = 16;
  // Smallest side of a matrix that is worth transposing in registers.
  static constexpr int64_t kSmallestTranspose = 8;
  // Part of a line of src that a transposing block covers: four cache lines, each of them read in full.
  static constexpr int64_t kTransposeLineBytes = 256;
  // Elements of a strided block: its tile fits kCopyTileBytes with the widest dtype, 16 bytes.
  static constexpr int64_t kStridedBlock = kCopyTileBytes / 16;
  // Sides of a strided block whose operands disagree about the order of dimensions.
  static constexpr int64_t kCrossedSide = 32;
};

void reverse(Nest& nest, int dimension) {
  for (int n : {kDst, kSrc}) {
    int64_t& stride = nest.strides[n][dimension];
    nest.data[n] += (nest.extents[dimension] - 1) * stride * nest.element_size[n];
    stride = -stride;
  }
}

int columns_of(const Nest& nest) { return nest.rank - 1; }
int rows_of(const Nest& nest) { return nest.rank - 2; }

bool is_run(const Nest& nest, int operand) { return nest.strides[operand][columns_of(nest)] == 1; }

// The dimension along which src is densest, the columns excepted.
int densest_in_src(const Nest& nest) {
  int best = rows_of(nest);
  for (int d = best - 1; d >= 0; --d) {
    const int64_t stride = std::abs(nest.strides[kSrc][d]);
    if (stride != 0 && stride < std::abs(nest.strides[kSrc][best])) best = d;
  }
  return best;
}

// Whether src is denser along the rows than along the columns.
bool is_crossed(const Nest& nest) {
  const auto& strides = nest.strides[kSrc];
  return strides[rows_of(nest)] != 0 && std::abs(strides[rows_of(nest)]) < std::abs(strides[columns_of(nest)]);
}

// The routes' conditions on a collapsed nest: null accepts.

const char* refuse_contiguous(const Nest& nest) {
  if (!is_run(nest, kDst) || !is_run(nest, kSrc)) return "an operand is not contiguous";
  if (nest.numel() != nest.extents[columns_of(nest)]) return "an operand has gaps, or the orders of dimensions differ";
  return nullptr;
}

const char* refuse_rows(const Nest& nest) {
  if (!is_run(nest, kDst) || !is_run(nest, kSrc)) return "the innermost dimension of an operand is not contiguous";
  const int64_t run = nest.extents[columns_of(nest)];
  if (run * std::min(nest.element_size[kDst], nest.element_size[kSrc]) < CopyTuning::kShortestRunBytes)
    return "the rows are too short";
  return nullptr;
}

const char* refuse_reversed_rows(const Nest& nest) {
  if (!is_run(nest, kDst)) return "no dimension of dst is contiguous";
  if (nest.strides[kSrc][columns_of(nest)] != -1) return "the innermost dimension of src is not walked backwards";
  if (nest.extents[columns_of(nest)] * nest.element_size[kSrc] < CopyTuning::kShortestRunBytes)
    return "the rows are too short";
  return nullptr;
}

const char* refuse_interleave(const Nest& nest) {
  const int64_t ways = nest.extents[columns_of(nest)];
  if (!is_run(nest, kDst)) return "no dimension of dst is contiguous";
  if (ways < 2 || ways > CopyTuning::kMostWays) return "dst does not interleave 2 to 4 runs";
  if (nest.strides[kDst][rows_of(nest)] != ways) return "what dst interleaves has gaps";
  if (nest.strides[kSrc][rows_of(nest)] != 1) return "what dst interleaves is not contiguous in src";
  if (nest.extents[rows_of(nest)] < CopyTuning::kShortestInterleaved) return "the runs to interleave are too short";
  return nullptr;
}

const char* refuse_deinterleave(const Nest& nest) {
  const int64_t ways = nest.strides[kSrc][columns_of(nest)];
  if (!is_run(nest, kDst)) return "no dimension of dst is contiguous";
  if (ways < 2 || ways > CopyTuning::kMostWays) return "src does not interleave 2 to 4 runs";
  const int across = densest_in_src(nest);
  if (std::abs(nest.strides[kSrc][across]) != 1 || nest.extents[across] > ways)
    return "what src interleaves is not next to each other";
  if (nest.extents[columns_of(nest)] < CopyTuning::kShortestInterleaved) return "the runs to separate are too short";
  return nullptr;
}

const char* refuse_transpose(const Nest& nest) {
  if (!is_run(nest, kDst)) return "no dimension of dst is contiguous";
  const int across = densest_in_src(nest);
  if (std::abs(nest.strides[kSrc][across]) != 1) return "no dimension of src is contiguous";
  if (std::min(nest.extents[across], nest.extents[columns_of(nest)]) < CopyTuning::kSmallestTranspose)
    return "the matrix to transpose is too narrow";
  return nullptr;
}

// What each route wants of the nest beyond that, and its blocks.

// Elements that fit a tile, in either dtype.
int64_t tile_elements(const CopyPlan& plan) {
  return kCopyTileBytes / std::max(plan.nest.element_size[kDst], plan.nest.element_size[kSrc]);
}

void block_contiguous(CopyPlan& plan) {
  const int64_t length = plan.nest.extents[columns_of(plan.nest)];
  plan.block_rows = 1;
  plan.block_columns = std::min(parallel::divide_up(length, plan.team),
                                CopyTuning::kRunBytes / std::max(size_of(plan.dst_dtype), size_of(plan.src_dtype)));
}

// So that where the first block of a row is aligned, the others are, too.
int64_t whole_lines(int64_t columns) { return columns / 64 * 64; }

// Blocks of about `elements`, as wide as they can be.
void block_wide(CopyPlan& plan, int64_t elements) {
  plan.block_columns = std::min(plan.nest.extents[columns_of(plan.nest)], elements);
  plan.block_rows = elements / plan.block_columns;
}

void block_interleave(CopyPlan& plan) {
  layout::move_dimension(plan.nest, rows_of(plan.nest), columns_of(plan.nest));
  plan.block_rows = plan.nest.extents[rows_of(plan.nest)];
  plan.block_columns = whole_lines(tile_elements(plan) / plan.block_rows);
}

void block_deinterleave(CopyPlan& plan) {
  Nest& nest = plan.nest;
  layout::move_dimension(nest, densest_in_src(nest), rows_of(nest));
  if (nest.strides[kSrc][rows_of(nest)] < 0) reverse(nest, rows_of(nest));
  plan.block_rows = nest.extents[rows_of(nest)];
  plan.block_columns = whole_lines(tile_elements(plan) / plan.block_rows);
}

void block_transpose(CopyPlan& plan) {
  Nest& nest = plan.nest;
  layout::move_dimension(nest, densest_in_src(nest), rows_of(nest));
  if (nest.strides[kSrc][rows_of(nest)] < 0) reverse(nest, rows_of(nest));
  plan.block_rows = std::min(nest.extents[rows_of(nest)], CopyTuning::kTransposeLineBytes / nest.element_size[kSrc]);
  plan.block_columns = kCopyTileBytes / (plan.block_rows * nest.element_size[kSrc]);
}

void block_strided(CopyPlan& plan) {
  Nest& nest = plan.nest;
  layout::move_dimension(nest, densest_in_src(nest), rows_of(nest));
  const int64_t rows = nest.extents[rows_of(nest)], columns = nest.extents[columns_of(nest)];
  if (rows > columns && columns < CopyTuning::kCrossedSide)
    layout::move_dimension(nest, rows_of(nest), columns_of(nest));
  if (is_crossed(nest) && std::min(rows, columns) >= CopyTuning::kCrossedSide) {
    plan.block_rows = plan.block_columns = CopyTuning::kCrossedSide;
  } else {
    block_wide(plan, CopyTuning::kStridedBlock);
  }
}

void explain_copy(const CopyPlan& plan) {
  Explanation explanation{.family = "copy", .route = name_of(plan.route), .refusals = {},
                          .dtypes = {plan.dst_dtype, plan.src_dtype}, .extents = extents_of(plan.nest),
                          .team = plan.team};
  for (int route = 0; route < static_cast<int>(plan.route); ++route)
    explanation.refusals.push_back({name_of(static_cast<CopyRoute>(route)), plan.refusals[route]});
  explain(std::move(explanation));
}

}  // namespace

const char* name_of(CopyRoute route) {
  constexpr const char* names[kCopyRoutes] = {"contiguous", "rows", "reversed rows", "interleave",
                                               "deinterleave", "transpose", "strided"};
  return names[static_cast<int>(route)];
}

bool is_beyond_cache(int64_t bytes) {
  static const int64_t limit = [] {
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or negative where there is none, or nobody knows
    return cache > 0 ? std::min<int64_t>(cache / 2, CopyTuning::kStreamedBytes) : CopyTuning::kStreamedBytes;
  }();
  return bytes >= limit;
}

CopyPlan plan_copy(const layout::LoopNest<2>& nest, DType dst_dtype, DType src_dtype, bool conjugate, bool negate,
                   int threads) {
  CopyPlan plan{.route = CopyRoute::kStrided, .dst_dtype = dst_dtype, .src_dtype = src_dtype, .conjugate = conjugate,
                .negate = negate, .nest = nest};
  plan.team = parallel::team_size(nest.numel(), parallel::kElementGrain, threads);
  layout::collapse(plan.nest);
  layout::pad_rank(plan.nest, 2);

  using Refuse = const char* (*)(const Nest&);
  constexpr Refuse offers[] = {refuse_contiguous, refuse_rows, refuse_reversed_rows, refuse_interleave,
                               refuse_deinterleave, refuse_transpose};
  for (int route = 0; route < std::ssize(offers); ++route) {
    plan.refusals[route] = offers[route](plan.nest);
    if (plan.refusals[route]) continue;
    plan.route = static_cast<CopyRoute>(route);
    break;
  }
  const bool has_runs = plan.route == CopyRoute::kContiguous || plan.route == CopyRoute::kRows;
  // Conversions lose by it: they are bound less by memory than by the tile that they would need.
  plan.streams = has_runs && dst_dtype == src_dtype && is_beyond_cache(nest.numel() * nest.element_size[kDst]);
  switch (plan.route) {
    case CopyRoute::kContiguous: block_contiguous(plan); break;
    case CopyRoute::kRows: block_wide(plan, CopyTuning::kRowBlock); break;
    case CopyRoute::kReversedRows: block_wide(plan, tile_elements(plan)); break;
    case CopyRoute::kInterleave: block_interleave(plan); break;
    case CopyRoute::kDeinterleave: block_deinterleave(plan); break;
    case CopyRoute::kTranspose: block_transpose(plan); break;
    case CopyRoute::kStrided: block_strided(plan); break;
  }
  if (is_explained()) [[unlikely]] explain_copy(plan);
  return plan;
}

}  // namespace flexcpu::plan
