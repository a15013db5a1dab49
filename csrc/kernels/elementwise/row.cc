#include "kernels/elementwise/row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/row.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/elementwise/ops-inl.h"
#include "kernels/simd/compat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {

using kernels::BinaryForm;
using kernels::Row;
using plan::BinaryOp;

// T is one element in memory (of a complex number one part, then kParts is 2); lanes compute it widened.
template <typename T>
struct LaneOf {
  using type = T;
};
template <>
struct LaneOf<hwy::float16_t> {
  using type = float;
};
template <>
struct LaneOf<hwy::bfloat16_t> {
  using type = float;
};

template <int kParts, class D, typename T>
HWY_INLINE hn::Vec<D> repeat(D d, const T* scalar) {
  using Lane = hn::TFromD<D>;
  const hn::CappedTag<Lane, 1> one;
  const Lane first = hn::GetLane(LoadAs(one, scalar));
  if constexpr (kParts == 1) {
    return hn::Set(d, first);
  } else {
    return hn::OddEven(hn::Set(d, hn::GetLane(LoadAs(one, scalar + 1))), hn::Set(d, first));
  }
}

template <class Op, typename T, int kParts, BinaryForm kForm>
void row(std::byte* const* data, const std::byte* parameter, int64_t count) {
  using Lane = typename LaneOf<T>::type;
  constexpr bool kWide = kForm == BinaryForm::kVectorWideScalar;
  constexpr bool kScalarA = kForm == BinaryForm::kScalarVector;
  constexpr bool kScalarB = kForm == BinaryForm::kVectorScalar || kWide;
  const hn::ScalableTag<Lane> d;
  using V = hn::Vec<decltype(d)>;
  const size_t N = hn::Lanes(d), lanes = static_cast<size_t>(count) * kParts;

  T* dst = reinterpret_cast<T*>(data[0]);
  const T* a = reinterpret_cast<const T*>(data[1]);
  const T* b = reinterpret_cast<const T*>(data[2]);
  const V alpha = repeat<kParts>(d, reinterpret_cast<const Lane*>(parameter));
  V scalar = hn::Zero(d);
  if constexpr (kWide) scalar = repeat<kParts>(d, reinterpret_cast<const Lane*>(data[2]));
  else if constexpr (kScalarA || kScalarB) scalar = repeat<kParts>(d, kScalarA ? a : b);

  size_t i = 0;
#pragma GCC unroll 4
  for (; i + N <= lanes; i += N) {
    const V x = kScalarA ? scalar : LoadAs(d, a + i);
    const V y = kScalarB ? scalar : LoadAs(d, b + i);
    StoreAs(Op::apply(d, x, y, alpha), d, dst + i);
  }
  if (i == lanes) return;
  const V x = kScalarA ? scalar : LoadAs(d, a + i, lanes - i);
  const V y = kScalarB ? scalar : LoadAs(d, b + i, lanes - i);
  StoreAs(Op::apply(d, x, y, alpha), d, dst + i, lanes - i);
}

template <class Op, typename T, int kParts = 1>
Row of_form(BinaryForm form) {
  switch (form) {
    case BinaryForm::kVectorVector: return row<Op, T, kParts, BinaryForm::kVectorVector>;
    case BinaryForm::kVectorScalar: return row<Op, T, kParts, BinaryForm::kVectorScalar>;
    case BinaryForm::kScalarVector: return row<Op, T, kParts, BinaryForm::kScalarVector>;
    case BinaryForm::kVectorWideScalar:
      // Where lanes are not wider than elements this is kVectorScalar; sums round their scalar first.
      if constexpr (!std::is_same_v<T, typename LaneOf<T>::type> && kParts == 1 &&
                    (std::is_same_v<Op, Mul> || std::is_same_v<Op, Div>)) {
        return row<Op, T, kParts, BinaryForm::kVectorWideScalar>;
      }
      break;
  }
  return nullptr;
}

Row bool_row(BinaryOp op, BinaryForm form) {
  switch (op) {
    case BinaryOp::kAdd: return of_form<Or, uint8_t>(form);
    case BinaryOp::kMul: return of_form<And, uint8_t>(form);
    default: return nullptr;
  }
}

// Wrapping arithmetic does not tell signed from unsigned.
template <typename T>
Row integer_row(BinaryOp op, BinaryForm form) {
  switch (op) {
    case BinaryOp::kAdd: return of_form<Add, T>(form);
    case BinaryOp::kSub: return of_form<Sub, T>(form);
    case BinaryOp::kMul: return of_form<Mul, T>(form);
    case BinaryOp::kAddScaled: return of_form<AddScaled, T>(form);
    default: return nullptr;
  }
}

template <typename T>
Row floating_row(BinaryOp op, BinaryForm form) {
  switch (op) {
    case BinaryOp::kAdd: return of_form<Add, T>(form);
    case BinaryOp::kSub: return of_form<Sub, T>(form);
    case BinaryOp::kMul: return of_form<Mul, T>(form);
    case BinaryOp::kDiv: return of_form<Div, T>(form);
    case BinaryOp::kAddScaled: return of_form<AddScaled, T>(form);
  }
  return nullptr;
}

template <typename T>
Row complex_row(BinaryOp op, BinaryForm form) {
  using Scaled = std::conditional_t<std::is_same_v<T, hwy::float16_t>, ComplexHalfAddScaled, ComplexAddScaled>;
  switch (op) {
    case BinaryOp::kMul: return of_form<ComplexMul, T, 2>(form);
    case BinaryOp::kDiv: return of_form<ComplexDiv, T, 2>(form);
    case BinaryOp::kAddScaled: return of_form<Scaled, T, 2>(form);
    default: return nullptr;
  }
}

Row select_row(BinaryOp op, DType dtype, BinaryForm form) {
  switch (dtype) {
    case DType::kBool: return bool_row(op, form);
    case DType::kU8: case DType::kI8: return integer_row<uint8_t>(op, form);
    case DType::kU16: case DType::kI16: return integer_row<uint16_t>(op, form);
    case DType::kU32: case DType::kI32: return integer_row<uint32_t>(op, form);
    case DType::kU64: case DType::kI64: return integer_row<uint64_t>(op, form);
    case DType::kF16: return floating_row<hwy::float16_t>(op, form);
    case DType::kBF16: return floating_row<hwy::bfloat16_t>(op, form);
    case DType::kF32: return floating_row<float>(op, form);
    case DType::kF64: return floating_row<double>(op, form);
    case DType::kC32: return complex_row<hwy::float16_t>(op, form);
    case DType::kC64: return complex_row<float>(op, form);
    case DType::kC128: return complex_row<double>(op, form);
    case DType::kOther: break;
  }
  return nullptr;
}

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flexcpu {
HWY_EXPORT(select_row);

kernels::Row kernels::binary_row(plan::BinaryOp op, DType dtype, BinaryForm form) {
  return HWY_DYNAMIC_DISPATCH(select_row)(op, dtype, form);
}

}  // namespace flexcpu
#endif  // HWY_ONCE
