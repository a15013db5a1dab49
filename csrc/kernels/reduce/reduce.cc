#include "kernels/reduce/reduce.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/copy/block.h"
#include "kernels/copy/cast.h"
#include "kernels/reduce/leaf.h"
#include "parallel/parallel.h"

namespace flexcpu::kernels {
namespace {

using plan::ReducePlan;

DType part_of(DType dtype) {
  switch (dtype) {
    case DType::kC32: return DType::kF16;
    case DType::kC64: return DType::kF32;
    case DType::kC128: return DType::kF64;
    default: return dtype;
  }
}

// Bytes of the accumulators of a tile: 512 complex doubles.
constexpr int64_t kAccumulatorBytes = 512 * 16;

class Reduction {
 public:
  explicit Reduction(const ReducePlan& plan)
      : plan_(plan),
        is_vertical_(plan.route == plan::ReduceRoute::kVertical),
        parts_(is_complex(plan.element) ? 2 : 1),
        src_size_(size_of(plan.src_dtype)),
        element_size_(size_of(plan.element)),
        accumulator_size_(size_of(plan.accumulator)),
        to_element_(plan.element, plan.src_dtype, false, false),
        to_dst_(plan.dst_dtype, plan.accumulator, false, false),
        add_leaf_(is_vertical_ ? column_adder(part_of(plan.element)) : total_adder(part_of(plan.element), parts_ == 2)),
        add_accumulators_(column_adder(part_of(plan.accumulator))) {}

  void run();

 private:
  // The outputs [begin, begin + length) of the innermost output dimension, at one position of the others.
  struct Tile {
    std::byte *dst, *src;
    int64_t row, begin, length;
  };

  int64_t width() const { return plan_.outputs.extents[plan_.outputs.rank - 1]; }
  Tile tile(int64_t index) const;
  layout::LoopNest<1> chunk(int64_t index, std::byte* src) const;

  void add_chunk(std::byte* accumulators, const Tile& tile, const layout::LoopNest<1>& chunk) const;
  void add_vertical(std::byte* accumulators, std::byte* src, int64_t outputs, const layout::LoopNest<1>& chunk) const;
  void add_horizontal(std::byte* accumulators, const layout::LoopNest<1>& chunk) const;
  void add_block(std::byte* accumulators, const std::byte* src, int64_t rows, int64_t columns, int64_t row_stride,
                 int64_t column_stride) const;
  void finish(std::byte* accumulators, const Tile& tile) const;

  const ReducePlan& plan_;
  bool is_vertical_;
  int64_t parts_;  // real numbers in an element
  int64_t src_size_, element_size_, accumulator_size_;
  Cast to_element_, to_dst_;
  AddLeaf add_leaf_, add_accumulators_;
};

Reduction::Tile Reduction::tile(int64_t index) const {
  const layout::LoopNest<2>& nest = plan_.outputs;
  const int64_t tiles = parallel::divide_up(width(), plan_.tile_outputs);
  Tile tile{nest.data[0], nest.data[1], index / tiles, index % tiles * plan_.tile_outputs, 0};
  tile.length = std::min(plan_.tile_outputs, width() - tile.begin);
  const auto move = [&](int d, int64_t steps) {
    tile.dst += steps * nest.strides[0][d] * nest.element_size[0];
    tile.src += steps * nest.strides[1][d] * nest.element_size[1];
  };
  move(nest.rank - 1, tile.begin);
  int64_t rest = tile.row;
  for (int d = nest.rank - 2; d >= 0; --d) {
    move(d, rest % nest.extents[d]);
    rest /= nest.extents[d];
  }
  return tile;
}

// The part of the reduced dimensions that chunk `index` of an output at `src` covers.
layout::LoopNest<1> Reduction::chunk(int64_t index, std::byte* src) const {
  const int d = plan_.chunk_dimension;
  const int64_t extent = plan_.reduced.extents[d];
  const int64_t pieces = std::max<int64_t>(1, parallel::divide_up(extent, plan_.chunk_length));
  const int64_t begin = index % pieces * plan_.chunk_length;
  auto chunk = layout::part_of(plan_.reduced, d, begin, std::min(extent, begin + plan_.chunk_length));
  chunk.data[0] += src - plan_.outputs.data[1];
  index /= pieces;
  for (int outer = d - 1; outer >= 0; --outer) {
    const int64_t step = index % std::max<int64_t>(1, plan_.reduced.extents[outer]);
    index /= std::max<int64_t>(1, plan_.reduced.extents[outer]);
    chunk = layout::part_of(chunk, outer, step, std::min(chunk.extents[outer], step + 1));
  }
  return chunk;
}

void Reduction::add_block(std::byte* accumulators, const std::byte* src, int64_t rows, int64_t columns,
                          int64_t row_stride, int64_t column_stride) const {
  if (!plan_.through_tile) return add_leaf_(accumulators, {src, row_stride, rows, columns * parts_});

  alignas(64) std::byte gathered[plan::kReduceTileBytes], converted[plan::kReduceTileBytes];
  const std::byte* values = src;
  int64_t pitch = row_stride;
  if (column_stride != src_size_ || (rows > 1 && !is_vertical_)) {
    const MoveBlock move = row_stride == src_size_ ? transpose : copy_strided;
    pitch = columns * src_size_;
    move({gathered, src, rows, columns, pitch, src_size_, row_stride, column_stride}, src_size_);
    values = gathered;
  }
  if (!to_element_.is_identity()) {
    const int64_t converted_pitch = columns * element_size_;
    for (int64_t r = 0; r < rows; ++r) to_element_(converted + r * converted_pitch, values + r * pitch, columns);
    values = converted;
    pitch = converted_pitch;
  }
  // All of a horizontal tile belongs to one output: it is one long row.
  if (is_vertical_) {
    add_leaf_(accumulators, {values, pitch, rows, columns * parts_});
  } else {
    add_leaf_(accumulators, {values, 0, 1, rows * columns * parts_});
  }
}

void Reduction::add_vertical(std::byte* accumulators, std::byte* src, int64_t outputs,
                             const layout::LoopNest<1>& chunk) const {
  const layout::Block<1> inner = layout::inner_block(chunk);
  const int64_t column_stride = plan_.outputs.strides[1][plan_.outputs.rank - 1] * src_size_;
  const int64_t row_stride = inner.column_stride[0] * src_size_, outer_stride = inner.row_stride[0] * src_size_;
  layout::for_each_block(chunk, [&](const std::array<std::byte*, 1>& data) {
    for (int64_t o = 0; o < inner.rows; ++o)
      for (int64_t r = 0; r < inner.columns; r += plan_.leaf_rows)
        add_block(accumulators, data[0] + o * outer_stride + r * row_stride,
                  std::min(plan_.leaf_rows, inner.columns - r), outputs, row_stride, column_stride);
  });
}

void Reduction::add_horizontal(std::byte* accumulators, const layout::LoopNest<1>& chunk) const {
  const layout::Block<1> inner = layout::inner_block(chunk);
  const int64_t row_stride = inner.row_stride[0] * src_size_, column_stride = inner.column_stride[0] * src_size_;
  layout::for_each_block(chunk, [&](const std::array<std::byte*, 1>& data) {
    for (int64_t r = 0; r < inner.rows; r += plan_.leaf_rows)
      for (int64_t c = 0; c < inner.columns; c += plan_.leaf_columns)
        add_block(accumulators, data[0] + r * row_stride + c * column_stride, std::min(plan_.leaf_rows, inner.rows - r),
                  std::min(plan_.leaf_columns, inner.columns - c), row_stride, column_stride);
  });
}

void Reduction::add_chunk(std::byte* accumulators, const Tile& tile, const layout::LoopNest<1>& chunk) const {
  if (is_vertical_) return add_vertical(accumulators, tile.src, tile.length, chunk);
  const int64_t stride = plan_.outputs.strides[1][plan_.outputs.rank - 1] * src_size_;
  const layout::Block<1> inner = layout::inner_block(chunk);
  if (chunk.rank == 2 && inner.rows <= plan_.leaf_rows && inner.columns <= plan_.leaf_columns) {
    for (int64_t i = 0; i < tile.length; ++i)
      add_block(accumulators + i * accumulator_size_, chunk.data[0] + i * stride, inner.rows, inner.columns,
                inner.row_stride[0] * src_size_, inner.column_stride[0] * src_size_);
    return;
  }
  layout::LoopNest<1> of_output = chunk;
  for (int64_t i = 0; i < tile.length; ++i) {
    add_horizontal(accumulators + i * accumulator_size_, of_output);
    of_output.data[0] += stride;
  }
}

void divide(double* sums, int64_t count, double divisor) {
  for (int64_t i = 0; i < count; ++i) sums[i] /= divisor;
}

// A complex quotient, by divisor + 0i: as on the CPU, one infinite part makes the other NaN.
void divide_pairs(double* sums, int64_t count, double divisor) {
  for (int64_t i = 0; i < count; ++i) {
    const double real = sums[2 * i], imaginary = sums[2 * i + 1];
    sums[2 * i] = (real + imaginary * 0.0) / divisor;
    sums[2 * i + 1] = (imaginary - real * 0.0) / divisor;
  }
}

// From sums to outputs.
void Reduction::finish(std::byte* accumulators, const Tile& tile) const {
  if (plan_.is_mean) {
    auto* sums = reinterpret_cast<double*>(accumulators);
    (parts_ == 2 ? divide_pairs : divide)(sums, tile.length, static_cast<double>(plan_.count()));
  }
  const int64_t dst_size = size_of(plan_.dst_dtype);
  const int64_t stride = plan_.outputs.strides[0][plan_.outputs.rank - 1] * dst_size;
  alignas(64) std::byte converted[kAccumulatorBytes];
  const std::byte* results = accumulators;
  if (!to_dst_.is_identity()) {
    to_dst_(converted, accumulators, tile.length);
    results = converted;
  }
  copy_strided({tile.dst, results, 1, tile.length, 0, stride, 0, dst_size}, dst_size);
}

void Reduction::run() {
  int64_t rows = 1;
  for (int d = 0; d < plan_.outputs.rank - 1; ++d) rows *= plan_.outputs.extents[d];
  const int64_t tiles = rows * parallel::divide_up(width(), plan_.tile_outputs);

  if (plan_.chunks == 1) {
    parallel::for_range(tiles, plan_.team, [&](int64_t begin, int64_t end) {
      alignas(64) std::byte accumulators[kAccumulatorBytes];
      for (int64_t t = begin; t < end; ++t) {
        const Tile tile = this->tile(t);
        std::memset(accumulators, 0, tile.length * accumulator_size_);
        add_chunk(accumulators, tile, chunk(0, tile.src));
        finish(accumulators, tile);
      }
    });
    return;
  }

  const int64_t chunk_bytes = rows * width() * accumulator_size_;
  const auto sums = std::make_unique<std::byte[]>(chunk_bytes * plan_.chunks);  // zeros
  const auto at = [&](int64_t c, const Tile& tile) {
    return sums.get() + c * chunk_bytes + (tile.row * width() + tile.begin) * accumulator_size_;
  };
  parallel::for_range(tiles * plan_.chunks, plan_.team, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const Tile tile = this->tile(unit % tiles);
      const int64_t c = unit / tiles;
      add_chunk(at(c, tile), tile, chunk(c, tile.src));
    }
  });
  const int team = parallel::team_size(rows * width() * plan_.chunks, parallel::kElementGrain, plan_.team);
  parallel::for_range(tiles, team, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const Tile tile = this->tile(t);
      for (int64_t span = 1; span < plan_.chunks; span *= 2)
        for (int64_t c = 0; c + span < plan_.chunks; c += 2 * span)
          add_accumulators_(at(c, tile), {at(c + span, tile), 0, 1, tile.length * parts_});
      finish(at(0, tile), tile);
    }
  });
}

}  // namespace

void reduce(const plan::ReducePlan& plan) { Reduction(plan).run(); }

}  // namespace flexcpu::kernels
