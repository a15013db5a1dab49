#pragma once

#include <cstddef>
#include <cstdint>

#include "layout/dtype.h"

namespace flexcpu::kernels {

// Converts contiguous elements: a chain of at most three stages, each a pass over a piece that stays in L1, and one
// that conjugates or negates. Most pairs of dtypes have one stage; f16 and complex ones reach the others through f32 and
// through their components.
//
// Dtypes: every pair. Integers wrap; a value becomes a bool by being unequal to zero, and a bool becomes 0 or 1.
//         Floats to integers: towards zero; what does not fit follows the conversion instructions of x86, which is what
//         the CPU device does: i32 and i64 get their minimum (so does NaN), i8, i16 and u16 the low bits of the i32, u8
//         and u32 those of the i64, u64 the bits of the i64 or, from 2^63 on, of x - 2^63 with the top bit flipped.
//         To f32 and f64: rounded once. To f16 and bf16: from f32, so f64 and 64-bit integers are rounded twice.
//         Complex to real: the real part, but to bool whether either part is. Real to complex: the imaginary part is
//         +0. Conjugation and negation act on the result; negation of integers wraps.
// Layouts: contiguous, any alignment.
// Aliasing: dst == src if the dtypes have one size; otherwise apart.
// NaN: stays a NaN of its sign, quiet.
class Cast {
 public:
  Cast(DType dst, DType src, bool conjugate, bool negate);

  // Whether the bytes stay what they are. Then there is nothing to call.
  bool is_identity() const { return stages_ == 0 && !change_sign_; }

  void operator()(void* dst, const void* src, int64_t count) const;

  // Reads `count` values of one dtype, writes as many of another.
  using Stage = void (*)(void* dst, const void* src, int64_t count);

 private:
  struct Step {
    Stage run;
    int64_t values_per_element;
  };

  void add(Stage stage, int64_t values_per_element = 1) { steps_[stages_++] = {stage, values_per_element}; }
  void add_conversion(DType dst, DType src, int64_t values_per_element);
  void convert_piece(std::byte* dst, const std::byte* src, int64_t count) const;

  int64_t dst_size_, src_size_;
  int stages_ = 0;
  Step steps_[3];
  Stage change_sign_ = nullptr;  // in place, on the result
  int64_t parts_;                // real numbers in an element of the result
};

}  // namespace flexcpu::kernels
