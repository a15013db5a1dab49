#pragma once
// How a reduction is carried out: chosen from layouts and dtypes alone, never from data, and cut into pieces in a way
// that does not depend on the number of threads, so that neither does the result.
//
// The dimensions fall into those of the output and the reduced ones. A tile of outputs along the innermost output
// dimension has accumulators of its own; leaf after leaf, a block of the reduced dimensions is added to them.
//   kHorizontal  a leaf is a block of one output's elements: rows and columns are reduced dimensions
//   kVertical    a leaf is a block of several outputs' elements: its columns are outputs, its rows a reduced dimension
// A long reduction is cut into chunks, each with accumulators of its own, which are added up pairwise at the end.

#include <cstdint>

#include "layout/dtype.h"
#include "layout/loop_nest.h"

namespace flexcpu::plan {

enum class ReduceRoute : uint8_t { kHorizontal, kVertical };
const char* name_of(ReduceRoute route);

struct ReducePlan {
  ReduceRoute route;
  const char* refusal = nullptr;  // why not kHorizontal

  DType src_dtype, dst_dtype;
  DType element;      // what src is converted to before it is added up
  DType accumulator;  // kI64, kF64 or kC128
  bool is_mean;

  // Operand 0 is dst, operand 1 src; at least one dimension, the innermost of which is cut into tiles.
  layout::LoopNest<2> outputs;
  // The elements of the first output, in src; at least two dimensions, the rows and columns of horizontal leaves.
  // Vertical leaves have their rows in the last.
  layout::LoopNest<1> reduced;

  bool through_tile;  // leaves are gathered or converted first
  int64_t tile_outputs;
  int64_t leaf_rows, leaf_columns;
  // Chunks are parts of reduced dimension `chunk_dimension`; those outside it are walked one by one.
  int chunk_dimension;
  int64_t chunk_length, chunks;
  int team;  // threads

  int64_t count() const { return reduced.numel(); }  // elements of an output
};

// Bytes of the elements of a leaf that goes through a tile.
inline constexpr int64_t kReduceTileBytes = 16 * 1024;

// Sum, or mean with `is_mean`, of src in `element` (the dtype= of the op, not bool); a mean of floats. No dtype is
// kOther.
//
// `nest` as set by layout::set_operand, dst first: a dimension is reduced when dst's stride is 0 and its extent is not
// 1. Any of the extents may be 0. `threads`: as many as may be used.
ReducePlan plan_sum(const layout::LoopNest<2>& nest, DType dst_dtype, DType src_dtype, DType element, bool is_mean,
                    int threads);

}  // namespace flexcpu::plan
