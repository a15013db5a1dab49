#pragma once
// How an elementwise op is carried out: chosen from layouts and dtypes alone, never from data.
//
// The two innermost dimensions of the collapsed nest are the rows and columns of blocks. A kernel computes row by row, on
// operands that are contiguous or one repeated element, all of the compute dtype. An operand that is neither goes through
// a tile: a small contiguous copy in L1, gathered, transposed or converted on the way.

#include <array>
#include <cstdint>

#include "layout/dtype.h"
#include "layout/loop_nest.h"

namespace flexcpu::plan {

// In the order in which they are tried.
enum class ElementwiseRoute : uint8_t {
  kContiguous,  // every operand is one run, or one repeated element
  kRows,        // the same row by row
  kShortRows,   // rows too short for a call each: all rows of a tile are one run
  kTiles,       // some operands go through tiles
  kTransposed,  // so, and one of them is densest across the rows: square tiles
};
const char* name_of(ElementwiseRoute route);

enum class Access : uint8_t { kDirect, kScalar, kTile };

// Elements of an operand's tile.
inline constexpr int64_t kTileElements = 2048;

// Operand 0 is the result, the others are inputs.
template <int N>
struct ElementwisePlan {
  ElementwiseRoute route;
  const char* refusal = nullptr;  // why not kContiguous or kRows, if neither
  DType compute;                  // of the rows; f16 and bf16 are widened to f32 inside a row and rounded once
  std::array<DType, N> dtypes;    // in memory
  std::array<Access, N> access{};
  layout::LoopNest<N> nest;
  int64_t tile_rows, tile_columns;  // where there are tiles
  bool streams = false;             // kContiguous and kRows write the result past the cache
  int team;                         // threads
};

// Fills in the plan: `compute`, `dtypes` and `nest` (as layout::set_operand leaves it, no repeated elements in the result)
// are given, the rest is chosen, and the nest is collapsed. An input of another dtype than `compute` that `wide_scalar`
// names is one element, which the row itself widens. `threads`: as many as may be used.
template <int N>
void plan_elementwise(ElementwisePlan<N>& plan, int threads, int wide_scalar = -1);

extern template void plan_elementwise(ElementwisePlan<2>&, int, int);
extern template void plan_elementwise(ElementwisePlan<3>&, int, int);
extern template void plan_elementwise(ElementwisePlan<4>&, int, int);

// The binary family.
enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kAddScaled };  // kAddScaled: a + alpha * b

struct BinaryPlan {
  BinaryOp op;
  Value alpha;               // of kAddScaled, in the compute dtype, f32 for f16 and bf16
  bool wide_scalar = false;  // b is one f32 beside f16 or bf16, and is not rounded to these first
  ElementwisePlan<3> elements;
};

// Null if rows of `compute` exist for `op`, else the reason why not. Where PyTorch's CPU device refuses, so does this.
// Complex sums are always kAddScaled: the CPU device multiplies by a complex 1 or -1, which turns infinities into NaNs.
const char* refuse_binary(BinaryOp op, DType compute);

}  // namespace flexcpu::plan
