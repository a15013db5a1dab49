#pragma once

#include "plan/copy.h"

namespace flexcpu::kernels {

// Carries out a planned copy: dst = src, converted, then conjugated and negated as the plan says.
//
// Dtypes: every pair (kernels/copy/cast.h has the rules of conversion).
// Layouts: any signed strides of src, zeros included; any of dst that repeat no element.
// Aliasing: dst and src may be the same elements in the same order if their dtypes have one size; otherwise apart.
// NaN: kept; a copy without conversion keeps its bits.
// Cost: one read of src and one write of dst, in blocks that keep to the cache whichever way the operands lie.
void copy(const plan::CopyPlan& plan);

}  // namespace flexcpu::kernels
