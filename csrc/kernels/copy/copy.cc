#include "kernels/copy/copy.h"

#include <cstddef>

#include "kernels/copy/block.h"
#include "kernels/copy/cast.h"

namespace flexcpu::kernels {
namespace {

MoveBlock mover_of(plan::CopyRoute route) {
  switch (route) {
    case plan::CopyRoute::kContiguous:
    case plan::CopyRoute::kRows: return copy_rows;
    case plan::CopyRoute::kReversedRows: return reverse_rows;
    case plan::CopyRoute::kInterleave: return interleave;
    case plan::CopyRoute::kDeinterleave: return deinterleave;
    case plan::CopyRoute::kTranspose: return transpose;
    case plan::CopyRoute::kStrided: return copy_strided;
  }
  return copy_strided;
}

// Converts one block. Where the columns of an operand are not contiguous, the block goes through a tile.
void cast_block(const Cast& cast, MoveBlock move, const Block& block, int64_t dst_size, int64_t src_size) {
  alignas(64) std::byte src_tile[plan::kCopyTileBytes], dst_tile[plan::kCopyTileBytes];
  Block from = block, to = block;
  if (block.src_column_stride != src_size) {
    from.dst = src_tile;
    from.dst_row_stride = block.columns * src_size;
    from.dst_column_stride = src_size;
    move(from, src_size);
    from.src = src_tile;
    from.src_row_stride = from.dst_row_stride;
  }
  const bool scatters = block.dst_column_stride != dst_size;
  if (scatters) {
    to.src = to.dst = dst_tile;
    to.src_row_stride = to.dst_row_stride = block.columns * dst_size;
    to.src_column_stride = dst_size;
  }
  for (int64_t r = 0; r < block.rows; ++r)
    cast(to.dst + r * to.dst_row_stride, from.src + r * from.src_row_stride, block.columns);
  if (scatters) {
    to.dst = block.dst;
    to.dst_row_stride = block.dst_row_stride;
    move(to, dst_size);
  }
}

}  // namespace

void copy(const plan::CopyPlan& plan) {
  const int64_t dst_size = size_of(plan.dst_dtype), src_size = size_of(plan.src_dtype);
  const MoveBlock move = mover_of(plan.route);
  const Cast cast(plan.dst_dtype, plan.src_dtype, plan.conjugate, plan.negate);
  for_each_block(plan, [&](const Block& block) {
    if (cast.is_identity()) {
      move(block, dst_size);
    } else {
      cast_block(cast, move, block, dst_size, src_size);
    }
  });
}

}  // namespace flexcpu::kernels
