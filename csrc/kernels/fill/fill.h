#pragma once

#include "layout/dtype.h"
#include "layout/loop_nest.h"

namespace flexcpu::kernels {

// Sets every element of the nest to `value`, bit by bit.
//
// Dtypes: any, by their size in bytes: 1, 2, 4, 8 or 16.
// Layouts: any signed strides. `nest` is as layout::set_operand leaves it.
// NaN: keeps its bits.
// Cost: one store an element; whole vectors where rows are contiguous. `threads`: as many as may be used.
void fill(layout::LoopNest<1> nest, const Value& value, int threads);

}  // namespace flexcpu::kernels
