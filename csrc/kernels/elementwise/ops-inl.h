// The binary operations on vectors. Op::apply(d, a, b, alpha) computes all lanes; complex numbers lie interleaved, real
// parts in even lanes. `alpha` is read by the scaled additions only.

#if defined(FLEXCPU_KERNELS_ELEMENTWISE_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FLEXCPU_KERNELS_ELEMENTWISE_OPS_INL_H_
#undef FLEXCPU_KERNELS_ELEMENTWISE_OPS_INL_H_
#else
#define FLEXCPU_KERNELS_ELEMENTWISE_OPS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/simd/compat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Add {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b, V) {
    return hn::Add(a, b);
  }
};

struct Sub {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b, V) {
    return hn::Sub(a, b);
  }
};

struct Mul {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b, V) {
    return MulLow(d, a, b);
  }
};

struct Div {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b, V) {
    return hn::Div(a, b);
  }
};

struct AddScaled {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b, V alpha) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::MulAdd(alpha, b, a);
    } else {
      return hn::Add(a, MulLow(d, alpha, b));
    }
  }
};

// On bytes of which any but 0 is true.
struct Or {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b, V) {
    return hn::Min(hn::Or(a, b), hn::Set(d, 1));
  }
};

struct And {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b, V) {
    return hn::Min(hn::Min(a, b), hn::Set(d, 1));
  }
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE V swap_parts(D d, V x) {
  return hn::Reverse2(d, x);
}

struct ComplexMul {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b, V) {
    const V by_real = hn::Mul(hn::DupEven(a), b);
    const V by_imaginary = hn::Mul(hn::DupOdd(a), swap_parts(d, b));
    return hn::OddEven(hn::Add(by_real, by_imaginary), hn::Sub(by_real, by_imaginary));
  }
};

struct ComplexAddScaled {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b, V alpha) {
    return hn::Add(a, ComplexMul::apply(d, alpha, b, alpha));
  }
};

// The same with every real operation rounded to f16, as the CPU device adds c32.
struct ComplexHalfAddScaled {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b, V alpha) {
    const auto round = [d](V x) HWY_ATTR { return WidenF16(d, NarrowToF16(d, x)); };
    const V by_real = round(hn::Mul(hn::DupEven(alpha), b));
    const V by_imaginary = round(hn::Mul(hn::DupOdd(alpha), swap_parts(d, b)));
    return hn::Add(a, round(hn::OddEven(hn::Add(by_real, by_imaginary), hn::Sub(by_real, by_imaginary))));
  }
};

// Smith's division: scaled by the larger part of the divisor. Division by zero divides both parts by +0.
struct ComplexDiv {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b, V) {
    const V real = hn::DupEven(b), imaginary = hn::DupOdd(b), zero = hn::Zero(d);
    const auto real_is_larger = hn::Ge(hn::Abs(real), hn::Abs(imaginary));
    const V larger = hn::IfThenElse(real_is_larger, real, imaginary);
    const V smaller = hn::IfThenElse(real_is_larger, imaginary, real);
    const V ratio = hn::Div(smaller, larger);
    const V scale = hn::Div(hn::Set(d, 1), hn::Add(larger, hn::Mul(smaller, ratio)));
    const V swapped = swap_parts(d, a);
    const V p = hn::IfThenElse(real_is_larger, a, swapped);
    const V q = hn::Mul(hn::IfThenElse(real_is_larger, swapped, a), ratio);
    const V odd = hn::IfThenElse(real_is_larger, hn::Sub(p, q), hn::Sub(q, p));
    const V quotient = hn::Mul(hn::OddEven(odd, hn::Add(p, q)), scale);
    const auto is_zero = hn::And(hn::Eq(real, zero), hn::Eq(imaginary, zero));
    return hn::IfThenElse(is_zero, hn::Div(a, zero), quotient);
  }
};

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
