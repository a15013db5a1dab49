#pragma once

#include "layout/loop_nest.h"

namespace flexcpu::kernels {

enum class Triangle { kLower, kUpper };

// Keeps a triangle of every matrix, its last two dimensions: on and below the diagonal `diagonal`, or on and above it. The
// rest becomes zero. Operand 0 is dst, operand 1 src; at least two dimensions, not collapsed.
//
// Dtypes: any, one for both, by its size in bytes: 1, 2, 4, 8 or 16.
// Layouts: any signed strides of dst that repeat no element; of src the same ones as dst, or rows that are contiguous in
//          both.
// Aliasing: src may be dst; then only the rest is written. Otherwise apart.
// NaN: keeps its bits.
// Cost: one write of dst, one read of the triangle. `threads`: as many as may be used.
void triangle(const layout::LoopNest<2>& nest, Triangle which, int64_t diagonal, int threads);

}  // namespace flexcpu::kernels
