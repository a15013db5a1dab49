#pragma once
// How a copy is carried out: chosen from layouts and dtypes alone, never from data.

#include <cstdint>

#include "layout/dtype.h"
#include "layout/loop_nest.h"

namespace flexcpu::plan {

// In the order in which they are offered a copy; each takes it or refuses with a reason.
enum class CopyRoute : uint8_t {
  kContiguous,    // dst and src are one run each
  kRows,          // runs of both, side by side
  kReversedRows,  // runs of both, src's backwards
  kInterleave,    // 2 to 4 runs of src are interleaved in dst
  kDeinterleave,  // runs of dst lie interleaved in src, up to 4 of them
  kTranspose,     // the runs of dst lie across those of src
  kStrided,       // anything else, and what is too small for the others
};
inline constexpr int kCopyRoutes = 7;
const char* name_of(CopyRoute route);

struct CopyPlan {
  CopyRoute route;
  DType dst_dtype, src_dtype;
  bool conjugate, negate;  // applied to the converted value

  // Operand 0 is dst, operand 1 src; at least two dimensions. The last two are the rows and columns of the blocks in
  // which the copy proceeds. Every block is read before it is written, as far as it needs a tile of its own.
  layout::LoopNest<2> nest;
  int64_t block_rows = 0, block_columns = 0;
  bool streams = false;  // runs of one dtype are written past the cache
  int team = 1;          // threads

  const char* refusals[kCopyRoutes] = {};  // by route: why a faster one was not taken
};

// Blocks that go through a tile are at most this large, in either dtype.
inline constexpr int64_t kCopyTileBytes = 16 * 1024;

// Whether a result of so many bytes is read from memory anyway, so that writing it past the cache loses nothing.
bool is_beyond_cache(int64_t bytes);

// `nest`: as set by layout::set_operand, dst first; at least one element, and none repeated in dst. Neither dtype is
// kOther. `threads`: as many as may be used.
CopyPlan plan_copy(const layout::LoopNest<2>& nest, DType dst_dtype, DType src_dtype, bool conjugate, bool negate,
                   int threads);

}  // namespace flexcpu::plan
