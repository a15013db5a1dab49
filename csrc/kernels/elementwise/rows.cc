#include "kernels/elementwise/rows.h"

namespace flexcpu::kernels {
namespace {

// Rows of fewer bytes are moved column by column.
constexpr int64_t kShortestRunBytes = 32;

void move(Block block, int64_t size) {
  const bool is_short = block.columns * size < kShortestRunBytes && block.rows > block.columns;
  if (is_short) {
    std::swap(block.rows, block.columns);
    std::swap(block.dst_row_stride, block.dst_column_stride);
    std::swap(block.src_row_stride, block.src_column_stride);
    copy_strided(block, size);
  } else if (block.dst_column_stride != size) {
    copy_strided(block, size);
  } else if (block.src_column_stride == size) {
    copy_rows(block, size);
  } else if (block.src_row_stride == size) {
    transpose(block, size);
  } else {
    copy_strided(block, size);
  }
}

}  // namespace

void TiledOperand::gather(std::byte* tile, const std::byte* src, int64_t rows, int64_t columns) const {
  move({tile, src, rows, columns, columns * size_, size_, row_stride_, column_stride_}, size_);
}

void TiledOperand::scatter(const std::byte* tile, std::byte* dst, int64_t rows, int64_t columns) const {
  move({dst, tile, rows, columns, row_stride_, column_stride_, columns * size_, size_}, size_);
}

void TiledOperand::load(std::byte* tile, const std::byte* src, int64_t rows, int64_t columns) const {
  if (cast_.is_identity()) {
    gather(tile, src, rows, columns);
  } else if (column_stride_ == size_ && (rows == 1 || row_stride_ == columns * size_)) {
    cast_(tile, src, rows * columns);
  } else {
    alignas(64) std::byte gathered[kTileBytes];
    gather(gathered, src, rows, columns);
    cast_(tile, gathered, rows * columns);
  }
}

void TiledOperand::store(const std::byte* tile, std::byte* dst, int64_t rows, int64_t columns) const {
  if (cast_.is_identity()) {
    scatter(tile, dst, rows, columns);
  } else if (column_stride_ == size_ && (rows == 1 || row_stride_ == columns * size_)) {
    cast_(dst, tile, rows * columns);
  } else {
    alignas(64) std::byte converted[kTileBytes];
    cast_(converted, tile, rows * columns);
    scatter(converted, dst, rows, columns);
  }
}

}  // namespace flexcpu::kernels
