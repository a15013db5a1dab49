#pragma once
// The inner loops of a sum: a block of values added to accumulators.

#include <cstddef>
#include <cstdint>

#include "layout/dtype.h"

namespace flexcpu::kernels {

// Rows of contiguous values, 2^15 of them at most in a sum; the stride counts bytes.
struct Leaf {
  const std::byte* src;
  int64_t row_stride;
  int64_t rows, columns;
};

// Accumulators are int64_t for bools and integers, double for floats; a complex number has two. Within a leaf f16, bf16
// and f32 are added in float.
using AddLeaf = void (*)(void* accumulators, const Leaf& leaf);

// Adds column c to accumulator c. The values of complex columns lie side by side: a leaf has twice as many.
// Error: a chain of rows / 8 additions of trees of eight rows.
AddLeaf column_adder(DType real);

// Adds all values to one accumulator; with `in_pairs` those at even and odd columns to two, and columns is even.
// Error: chains of 16 * rows additions at most, then a tree of 8 vectors and their lanes.
AddLeaf total_adder(DType real, bool in_pairs);

}  // namespace flexcpu::kernels
