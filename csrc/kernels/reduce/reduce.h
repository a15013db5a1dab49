#pragma once

#include "plan/reduce.h"

namespace flexcpu::kernels {

// Carries out a planned sum or mean.
//
// Dtypes: src any; element any but bool; dst any, converted from the accumulator by the rules of kernels/copy/cast.h.
//         Integers and bools are added in i64, with wraparound. Floats are added in f32 (f64: in f64) within a leaf of
//         at most 2048 elements, leaves in f64; the result is rounded to dst once.
// Layouts: any signed strides of src, zeros included; any of dst that repeat no output.
// Aliasing: none.
// NaN: an output with a NaN, or infinities of both signs, among its elements is NaN.
// Error: an element passes at most 25 additions of a leaf (130 where it is made of short rows), in practice within one
//        or two units in the last place of the sum of magnitudes; for f64 64 + log2(chunks) more. Bits do not depend on
//        the number of threads, but on the layout and the instruction set. An empty sum is 0, an empty mean NaN.
// Cost: one read of src, in the order in which it lies in memory where that is possible. Chunks take outputs x chunks
//       accumulators of memory, one for at least 64 elements.
void reduce(const plan::ReducePlan& plan);

}  // namespace flexcpu::kernels
