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
  bool streams = false;  // copy_rows writes past the cache
};

// Moves rows x columns elements of 1, 2, 4, 8 or 16 bytes, bit by bit.
//
// Layouts: as many as their names say. "Contiguous" is a stride of one element.
//   copy_rows     columns contiguous in both
//   reverse_rows  columns contiguous in dst, backwards in src
//   interleave    rows contiguous in dst, next to each other: 2, 3 or 4; columns contiguous in src
//   deinterleave  columns contiguous in dst; rows contiguous in src, columns 2, 3 or 4 elements apart
//   transpose     columns contiguous in dst, rows contiguous in src
//   copy_strided  everything
// Aliasing: copy_rows and copy_strided allow dst == src with the same strides; the others allow none.
// Cost: one load and one store an element; transpose works in register tiles of 16 bytes by one vector, reverse_rows,
//       interleave and deinterleave in whole vectors.
using MoveBlock = void (*)(const Block& block, int64_t element_size);
void copy_rows(const Block& block, int64_t element_size);
void reverse_rows(const Block& block, int64_t element_size);
void interleave(const Block& block, int64_t element_size);
void deinterleave(const Block& block, int64_t element_size);
void transpose(const Block& block, int64_t element_size);
void copy_strided(const Block& block, int64_t element_size);

// Interleaves `ways` (2 to 4) runs of `count` elements each. Layouts, aliasing and cost as of interleave().
void interleave_runs(std::byte* dst, const std::byte* const src[4], int64_t ways, int64_t count, int64_t element_size);

// Copies bytes from one run to another; apart. `streams`: past the cache, for what is larger than it.
void copy_run(std::byte* dst, const std::byte* src, int64_t bytes, bool streams);

// Calls body(block) for every block of the plan, from the plan's team of threads.
template <typename Body>
void for_each_block(const plan::CopyPlan& plan, const Body& body) {
  const auto run = [&](const layout::LoopNest<2>& nest) {
    const layout::Block<2> inner = layout::inner_block(nest);
    Block block{};
    block.streams = plan.streams;
    block.dst_row_stride = inner.row_stride[0] * nest.element_size[0];
    block.dst_column_stride = inner.column_stride[0] * nest.element_size[0];
    block.src_row_stride = inner.row_stride[1] * nest.element_size[1];
    block.src_column_stride = inner.column_stride[1] * nest.element_size[1];
    layout::for_each_block(nest, [&](const std::array<std::byte*, 2>& data) {
      for (int64_t r = 0; r < inner.rows; r += plan.block_rows) {
        block.rows = std::min(plan.block_rows, inner.rows - r);
        for (int64_t c = 0; c < inner.columns; c += plan.block_columns) {
          block.columns = std::min(plan.block_columns, inner.columns - c);
          block.dst = data[0] + r * block.dst_row_stride + c * block.dst_column_stride;
          block.src = data[1] + r * block.src_row_stride + c * block.src_column_stride;
          body(block);
        }
      }
    });
  };
  if (plan.team == 1) return run(plan.nest);
  const int d = layout::dimension_to_split(plan.nest, plan.team);
  parallel::for_range(plan.nest.extents[d], plan.team,
                      [&](int64_t begin, int64_t end) { run(layout::part_of(plan.nest, d, begin, end)); });
}

}  // namespace flexcpu::kernels
