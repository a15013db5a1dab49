#pragma once
// Runs a row function over an elementwise plan: blocks, tiles, threads. Shared by all elementwise families.

#include <algorithm>
#include <utility>

#include "kernels/copy/block.h"
#include "kernels/copy/cast.h"
#include "kernels/elementwise/row.h"
#include "parallel/parallel.h"
#include "plan/elementwise.h"

namespace flexcpu::kernels {

// One operand of a tiled block: moves a piece of it into a contiguous tile of the compute dtype, or back.
class TiledOperand {
 public:
  TiledOperand(DType dtype, DType compute, int64_t row_stride, int64_t column_stride, bool is_result)
      : cast_(is_result ? Cast(dtype, compute, false, false) : Cast(compute, dtype, false, false)),
        size_(size_of(dtype)),
        compute_size_(size_of(compute)),
        row_stride_(row_stride * size_),
        column_stride_(column_stride * size_) {}

  void load(std::byte* tile, const std::byte* src, int64_t rows, int64_t columns) const;
  void store(const std::byte* tile, std::byte* dst, int64_t rows, int64_t columns) const;

 private:
  // Moves between the operand and a contiguous tile of its own dtype.
  void gather(std::byte* tile, const std::byte* src, int64_t rows, int64_t columns) const;
  void scatter(const std::byte* tile, std::byte* dst, int64_t rows, int64_t columns) const;

  Cast cast_;
  int64_t size_, compute_size_, row_stride_, column_stride_;  // bytes
};

inline constexpr int64_t kTileBytes = plan::kTileElements * 16;

template <int N>
void run_tiles(const plan::ElementwisePlan<N>& plan, const layout::LoopNest<N>& nest, Row row,
               const std::byte* parameter) {
  const layout::Block<N> block = layout::inner_block(nest);
  const int64_t compute_size = size_of(plan.compute);
  const auto is_tiled = [&](int n) { return plan.access[n] == plan::Access::kTile; };
  alignas(64) std::byte tiles[N][kTileBytes];
  const auto operands = [&]<size_t... n>(std::index_sequence<n...>) {
    return std::array{TiledOperand(plan.dtypes[n], plan.compute, block.row_stride[n], block.column_stride[n], n == 0)...};
  }(std::make_index_sequence<N>());

  const bool joins_rows = plan.route == plan::ElementwiseRoute::kShortRows;
  // What lies in the tiles: an operand that repeats its rows is loaded once.
  std::array<const std::byte*, N> loaded{};
  std::array<int64_t, N> loaded_rows{};

  layout::for_each_block(nest, [&](const std::array<std::byte*, N>& base) {
    for (int64_t i = 0; i < block.rows; i += plan.tile_rows) {
      const int64_t rows = std::min(plan.tile_rows, block.rows - i);
      for (int64_t j = 0; j < block.columns; j += plan.tile_columns) {
        const int64_t columns = std::min(plan.tile_columns, block.columns - j);
        std::array<std::byte*, N> piece, data;
        std::array<int64_t, N> step;  // bytes from row to row
        for (int n = 0; n < N; ++n) {
          piece[n] = base[n] + (i * block.row_stride[n] + j * block.column_stride[n]) * nest.element_size[n];
          data[n] = is_tiled(n) ? tiles[n] : piece[n];
          step[n] = is_tiled(n) ? columns * compute_size : block.row_stride[n] * nest.element_size[n];
          if (n == 0 || !is_tiled(n)) continue;
          const bool repeats = block.row_stride[n] == 0 && columns == block.columns;
          if (repeats && loaded[n] == piece[n] && loaded_rows[n] >= rows) continue;
          operands[n].load(tiles[n], piece[n], rows, columns);
          loaded[n] = piece[n];
          loaded_rows[n] = rows;
        }
        if (joins_rows) {
          row(data.data(), parameter, rows * columns);
        } else {
          for (int64_t r = 0; r < rows; ++r) {
            row(data.data(), parameter, columns);
            for (int n = 0; n < N; ++n) data[n] += step[n];
          }
        }
        if (is_tiled(0)) operands[0].store(tiles[0], piece[0], rows, columns);
      }
    }
  });
}

template <int N>
void run_direct(const layout::LoopNest<N>& nest, Row row, const std::byte* parameter) {
  const layout::Block<N> block = layout::inner_block(nest);
  layout::for_each_block(nest, [&](std::array<std::byte*, N> data) {
    for (int64_t r = 0; r < block.rows; ++r) {
      row(data.data(), parameter, block.columns);
      for (int n = 0; n < N; ++n) data[n] += block.row_stride[n] * nest.element_size[n];
    }
  });
}

// Piece by piece through a tile in L1, which is written past the cache.
template <int N>
void run_streamed(const plan::ElementwisePlan<N>& plan, const layout::LoopNest<N>& nest, Row row,
                  const std::byte* parameter) {
  const layout::Block<N> block = layout::inner_block(nest);
  alignas(64) std::byte tile[kTileBytes];
  layout::for_each_block(nest, [&](const std::array<std::byte*, N>& base) {
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t j = 0; j < block.columns; j += plan::kTileElements) {
        const int64_t columns = std::min(plan::kTileElements, block.columns - j);
        std::array<std::byte*, N> data;
        for (int n = 0; n < N; ++n)
          data[n] = base[n] + (r * block.row_stride[n] + j * block.column_stride[n]) * nest.element_size[n];
        std::byte* const dst = std::exchange(data[0], tile);
        row(data.data(), parameter, columns);
        copy_run(dst, tile, columns * nest.element_size[0], /*streams=*/true);
      }
    }
  });
}

template <int N>
void run_rows(const plan::ElementwisePlan<N>& plan, Row row, const std::byte* parameter) {
  const auto run = [&](const layout::LoopNest<N>& nest) {
    if (plan.route >= plan::ElementwiseRoute::kShortRows) {
      run_tiles(plan, nest, row, parameter);
    } else if (plan.streams) {
      run_streamed(plan, nest, row, parameter);
    } else {
      run_direct(nest, row, parameter);
    }
  };
  if (plan.team == 1) return run(plan.nest);
  const int d = layout::dimension_to_split(plan.nest, plan.team);
  parallel::for_range(plan.nest.extents[d], plan.team,
                      [&](int64_t begin, int64_t end) { run(layout::part_of(plan.nest, d, begin, end)); });
}

}  // namespace flexcpu::kernels
