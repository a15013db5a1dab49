#include "kernels/elementwise/rows.h"

namespace flexcpu::kernels {

void TiledOperand::load(std::byte* tile, const std::byte* src, int64_t rows, int64_t columns) const {
  const int64_t pitch = columns * compute_size_;
  if (cast_.is_identity()) {
    mover()({tile, src, rows, columns, pitch, size_, row_stride_, column_stride_}, size_);
  } else if (column_stride_ == size_) {
    for (int64_t r = 0; r < rows; ++r) cast_(tile + r * pitch, src + r * row_stride_, columns);
  } else {
    alignas(64) std::byte gathered[kTileBytes];
    mover()({gathered, src, rows, columns, columns * size_, size_, row_stride_, column_stride_}, size_);
    cast_(tile, gathered, rows * columns);
  }
}

void TiledOperand::store(const std::byte* tile, std::byte* dst, int64_t rows, int64_t columns) const {
  const int64_t pitch = columns * compute_size_;
  if (cast_.is_identity()) {
    copy_strided({dst, tile, rows, columns, row_stride_, column_stride_, pitch, size_}, size_);
  } else if (column_stride_ == size_) {
    for (int64_t r = 0; r < rows; ++r) cast_(dst + r * row_stride_, tile + r * pitch, columns);
  } else {
    alignas(64) std::byte converted[kTileBytes];
    cast_(converted, tile, rows * columns);
    copy_strided({dst, converted, rows, columns, row_stride_, column_stride_, columns * size_, size_}, size_);
  }
}

}  // namespace flexcpu::kernels
