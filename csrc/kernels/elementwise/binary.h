#pragma once

#include "plan/elementwise.h"

namespace flexcpu::kernels {

// Carries out a planned binary op: dst = op(a, b), operands 0, 1 and 2 of the plan.
//
// Dtypes: any of the operands; rows (kernels/elementwise/row.h) have the plan's compute dtype, other operands are converted
//         to and from it by the rules of kernels/copy/cast.h.
// Layouts: any signed strides of a and b, zeros included; any of dst that repeat no element.
// Aliasing: dst may be a, b or both if the elements lie alike and the dtypes have one size; otherwise apart.
// NaN, error: those of a row and of the conversions.
// Cost: memory-bound. A tiled operand adds a pass over L1.
void binary(const plan::BinaryPlan& plan);

}  // namespace flexcpu::kernels
