#pragma once
// A copy cut into two-dimensional blocks, and the functions that move one without converting it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "parallel/parallel.h"
#include "plan/copy.h"

namespace flexcpu::kernels {

// Part of a matrix that is copied. Strides are signed and count bytes.
struct Block {
  std::byte* dst;
  const std::byte* src;
  int64_t rows, columns;
  int64_t dst_row_stride, dst_column_stride;
  int64_t src_row_stride, src_column_stride;
};

// Moves rows x columns elements of 1, 2, 4, 8 or 16 bytes, bit by bit.
//
// Layouts: copy_rows takes columns that are contiguous in both; transpose takes columns contiguous in dst and rows
//          contiguous in src; copy_strided takes everything.
// Aliasing: copy_rows and copy_strided allow dst == src with the same strides; transpose allows none.
// Cost: one load and one store an element; transpose works in register tiles of 16 bytes by one vector.
using MoveBlock = void (*)(const Block& block, int64_t element_size);
void copy_rows(const Block& block, int64_t element_size);
void transpose(const Block& block, int64_t element_size);
void copy_strided(const Block& block, int64_t element_size);

// Calls body(block) for every block of the plan, from the plan's team of threads.
template <typename Body>
void for_each_block(const plan::CopyPlan& plan, const Body& body) {
  const layout::LoopNest<2>& nest = plan.nest;
  const int columns = nest.rank - 1, rows = nest.rank - 2;
  std::array<int64_t, layout::kMaxRank> step, count, dst_stride, src_stride;
  int64_t blocks = 1;
  for (int d = 0; d < nest.rank; ++d) {
    step[d] = d == columns ? plan.block_columns : d == rows ? plan.block_rows : 1;
    count[d] = parallel::divide_up(nest.extents[d], step[d]);
    blocks *= count[d];
    dst_stride[d] = nest.strides[0][d] * nest.element_size[0];
    src_stride[d] = nest.strides[1][d] * nest.element_size[1];
  }

  parallel::for_range(blocks, plan.team, [&](int64_t begin, int64_t end) {
    std::array<int64_t, layout::kMaxRank> position;  // of the block, in elements
    Block block{nest.data[0], nest.data[1], 0, 0, dst_stride[rows], dst_stride[columns], src_stride[rows],
                src_stride[columns]};
    for (int64_t d = nest.rank - 1, rest = begin; d >= 0; rest /= count[d], --d) {
      position[d] = rest % count[d] * step[d];
      block.dst += position[d] * dst_stride[d];
      block.src += position[d] * src_stride[d];
    }
    for (int64_t left = end - begin;;) {
      block.rows = std::min(plan.block_rows, nest.extents[rows] - position[rows]);
      block.columns = std::min(plan.block_columns, nest.extents[columns] - position[columns]);
      body(block);
      if (--left == 0) return;
      for (int d = columns;; --d) {
        position[d] += step[d];
        block.dst += step[d] * dst_stride[d];
        block.src += step[d] * src_stride[d];
        if (position[d] < nest.extents[d]) break;
        block.dst -= position[d] * dst_stride[d];
        block.src -= position[d] * src_stride[d];
        position[d] = 0;
      }
    }
  });
}

}  // namespace flexcpu::kernels
