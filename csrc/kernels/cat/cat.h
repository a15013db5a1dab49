#pragma once

#include "plan/cat.h"

namespace flexcpu::kernels {

// Carries out a planned concatenation.
//
// Dtypes: any, one for all, by its size in bytes: 1, 2, 4, 8 or 16.
// Layouts: contiguous.
// Aliasing: none.
// NaN: keeps its bits.
// Cost: one read of the inputs and one write of the result.
void cat(const plan::CatPlan& plan);

}  // namespace flexcpu::kernels
