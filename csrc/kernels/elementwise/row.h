#pragma once
// The innermost loops of elementwise ops, one function per op, dtype and form, compiled for every instruction set.

#include "layout/dtype.h"
#include "plan/elementwise.h"

namespace flexcpu::kernels {

// Computes `count` elements. data[0] is the result, data[n] the n-th input; `parameter` belongs to the op. Vectors are
// contiguous, scalars one element.
using Row = void (*)(std::byte* const* data, const std::byte* parameter, int64_t count);

enum class BinaryForm : uint8_t {
  kVectorVector,
  kVectorScalar,
  kScalarVector,
  kVectorWideScalar,  // the scalar is of the dtype of the lanes: f32 beside f16 and bf16
};

// dst[i] = op(a[i], b[i]).
//
// Dtypes: dst, a and b alike, those that plan::refuse_binary lets pass. Integers wrap. bool: kAdd is or, kMul is and.
// Layouts: see Row; any alignment.
// Aliasing: dst may be a, b or both, element by element; otherwise apart.
// NaN: as IEEE arithmetic gives it. Complex products and quotients are those of the textbook formula and of Smith's, without
//       recovery of infinities, as on PyTorch's CPU device.
// Error: each real operation is rounded once, for f16 and bf16 all of op at once; a + alpha * b of real numbers is fused
//        where the instruction set can. c32: products are rounded once, in a + alpha * b every real operation is.
// Cost: one load an input and one store an element.
Row binary_row(plan::BinaryOp op, DType dtype, BinaryForm form);

}  // namespace flexcpu::kernels
