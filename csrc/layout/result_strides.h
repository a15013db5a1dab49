#pragma once
// Which strides a new result gets, as PyTorch's elementwise ops choose them.

#include "layout/loop_nest.h"

namespace flexcpu::layout {

struct Shape {
  Extents sizes;
  Strides strides;
};

// Whether a tensor is dense and row-major. True for an empty one.
bool is_contiguous(Shape shape);

// Writes the strides of a dense result of `sizes`, to which all `operands` broadcast, to `strides`: row-major if all
// operands are, else in the order of the operands' own strides, the first operand that tells two dimensions apart deciding.
void result_strides(Extents sizes, std::span<const Shape> operands, std::span<int64_t> strides);

}  // namespace flexcpu::layout
