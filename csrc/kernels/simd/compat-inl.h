// What kernels need beyond the op set of Highway 1.0.3, alike on every version up to 1.2 and on every target.
//
// Vector code of several kernels: include after hwy/highway.h, inside a file that foreach_target.h includes again for each
// target. All pointers may be unaligned.
//
// A vector of float is loaded from and stored to memory of float, hwy::float16_t or hwy::bfloat16_t:
//   LoadAs(d, p)         Lanes(d) elements, widened exactly
//   LoadAs(d, p, n)      the first n < Lanes(d) of them, the other lanes 0; reads nothing past p[n - 1]
//   StoreAs(v, d, p)     rounded once to nearest, ties to even; overflow gives an infinity; a NaN stays a NaN
//   StoreAs(v, d, p, n)  the first n < Lanes(d) lanes; writes nothing past p[n - 1]
// With any other lane type the element type of memory is the lane type itself.

#if defined(FLEXCPU_KERNELS_SIMD_COMPAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FLEXCPU_KERNELS_SIMD_COMPAT_INL_H_
#undef FLEXCPU_KERNELS_SIMD_COMPAT_INL_H_
#else
#define FLEXCPU_KERNELS_SIMD_COMPAT_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Tails: LoadN and StoreN are newer than 1.0.3. Masked accesses are used where the hardware suppresses their faults, which
// on AVX2 is for lanes of 4 and 8 bytes only.
template <typename T>
constexpr bool masks_are_safe() {
#if !HWY_MEM_OPS_MIGHT_FAULT
  return true;
#elif HWY_TARGET == HWY_AVX2 && !HWY_IS_ASAN && !HWY_IS_MSAN
  return sizeof(T) >= 4;
#else
  return false;
#endif
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadTail(D d, const T* p, size_t n) {
  if constexpr (masks_are_safe<T>()) {
    return hn::MaskedLoad(hn::FirstN(d, n), d, p);
  } else {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)] = {};
    for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
    return hn::Load(d, lanes);
  }
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void StoreTail(hn::Vec<D> v, D d, T* p, size_t n) {
  if constexpr (masks_are_safe<T>()) {
    hn::BlendedStore(v, hn::FirstN(d, n), d, p);
  } else {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(v, d, lanes);
    for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
}

// Half precision travels as its bits. Highway converts f16 in hardware from AVX2 up; its emulation for older targets
// truncates and knows neither infinities nor NaNs, so the baseline has its own. The bf16 conversions are plain integer
// arithmetic; Highway 1.0.3 truncates there.
template <class DF>
using HalfBits = hn::Rebind<uint16_t, DF>;

template <class DF>
HWY_INLINE hn::Vec<DF> WidenBF16(DF df, hn::Vec<HalfBits<DF>> bits) {
  const hn::RebindToUnsigned<DF> du;
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

template <class DF>
HWY_INLINE hn::Vec<HalfBits<DF>> NarrowToBF16(DF df, hn::Vec<DF> v) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const auto quiet_nan = hn::Or(bits, hn::Set(du, 0x00400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet_nan, rounded);
  return hn::DemoteTo(HalfBits<DF>(), hn::BitCast(di, hn::ShiftRight<16>(chosen)));
}

template <class DF>
HWY_INLINE hn::Vec<DF> WidenF16(DF df, hn::Vec<HalfBits<DF>> bits) {
#if HWY_TARGET < HWY_SSE4
  return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), bits));
#else
  const hn::RebindToUnsigned<DF> du;
  const auto wide = hn::PromoteTo(du, bits);
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7FFF)));
  const auto exponent = hn::And(magnitude, hn::Set(du, 0x0F800000));
  const auto rebias = hn::Set(du, (127 - 15) << 23);
  const auto normal = hn::Add(magnitude, rebias);
  const auto special = hn::Add(normal, rebias);  // infinities and NaNs: the exponent becomes 255
  // A subnormal is a normal number of the smallest exponent less that number's leading one; exact, and free of f32
  // subnormals, which the processor may be told to flush.
  const auto smallest = hn::Set(du, (127 - 14) << 23);
  const auto subnormal = hn::BitCast(
      du, hn::Sub(hn::BitCast(df, hn::Add(magnitude, smallest)), hn::BitCast(df, smallest)));
  const auto is_special = hn::Eq(exponent, hn::Set(du, 0x0F800000));
  const auto is_subnormal = hn::Eq(exponent, hn::Zero(du));
  const auto unsigned_result = hn::IfThenElse(is_special, special, hn::IfThenElse(is_subnormal, subnormal, normal));
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000)));
  return hn::BitCast(df, hn::Or(unsigned_result, sign));
#endif
}

template <class DF>
HWY_INLINE hn::Vec<HalfBits<DF>> NarrowToF16(DF df, hn::Vec<DF> v) {
#if HWY_TARGET < HWY_SSE4
  return hn::BitCast(HalfBits<DF>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), v));
#else
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFF));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  // Rebias the exponent and round at bit 13; a carry out of the largest finite number gives the infinity.
  const auto rounding = hn::Set(du, 0xFFFu - ((127u - 15u) << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), rounding));
  // Below 2^-14 the float addition rounds at the weight of the last bit of a subnormal, 2^-24.
  const auto half = hn::Set(du, 126 << 23);
  const auto subnormal =
      hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, half))), half);
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  const auto is_subnormal = hn::RebindMask(du, hn::Lt(signed_magnitude, hn::Set(di, (127 - 14) << 23)));
  const auto is_infinite = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, ((127 + 16) << 23) - 1)));
  const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
  const auto overflow = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Set(du, 0x7E00), hn::Set(du, 0x7C00));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
  const auto result = hn::Or(hn::IfThenElse(is_infinite, overflow, finite), sign);
  return hn::DemoteTo(HalfBits<DF>(), hn::BitCast(di, result));
#endif
}

inline const uint16_t* bits_of(const hwy::float16_t* p) { return reinterpret_cast<const uint16_t*>(p); }
inline const uint16_t* bits_of(const hwy::bfloat16_t* p) { return reinterpret_cast<const uint16_t*>(p); }
inline uint16_t* bits_of(hwy::float16_t* p) { return reinterpret_cast<uint16_t*>(p); }
inline uint16_t* bits_of(hwy::bfloat16_t* p) { return reinterpret_cast<uint16_t*>(p); }

// Products of numbers; of integers the low half, for which 1.0.3 has no lanes of one byte.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V MulLow(D d, V a, V b) {
  if constexpr (sizeof(hn::TFromD<D>) == 1) {
    const hn::RepartitionToWide<hn::RebindToUnsigned<D>> d16;
    const auto a16 = hn::BitCast(d16, a), b16 = hn::BitCast(d16, b);
    const auto even = hn::And(hn::Mul(a16, b16), hn::Set(d16, 0xFF));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
    return hn::BitCast(d, hn::Or(even, odd));
  } else {
    return hn::Mul(a, b);
  }
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadAs(D d, const T* p) {
  return hn::LoadU(d, p);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadAs(D d, const T* p, size_t n) {
  return LoadTail(d, p, n);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void StoreAs(hn::Vec<D> v, D d, T* p) {
  hn::StoreU(v, d, p);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void StoreAs(hn::Vec<D> v, D d, T* p, size_t n) {
  StoreTail(v, d, p, n);
}

template <class DF>
HWY_INLINE hn::Vec<DF> LoadAs(DF df, const hwy::bfloat16_t* p) {
  return WidenBF16(df, hn::LoadU(HalfBits<DF>(), bits_of(p)));
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadAs(DF df, const hwy::bfloat16_t* p, size_t n) {
  return WidenBF16(df, LoadTail(HalfBits<DF>(), bits_of(p), n));
}
template <class DF>
HWY_INLINE void StoreAs(hn::Vec<DF> v, DF df, hwy::bfloat16_t* p) {
  hn::StoreU(NarrowToBF16(df, v), HalfBits<DF>(), bits_of(p));
}
template <class DF>
HWY_INLINE void StoreAs(hn::Vec<DF> v, DF df, hwy::bfloat16_t* p, size_t n) {
  StoreTail(NarrowToBF16(df, v), HalfBits<DF>(), bits_of(p), n);
}

template <class DF>
HWY_INLINE hn::Vec<DF> LoadAs(DF df, const hwy::float16_t* p) {
  return WidenF16(df, hn::LoadU(HalfBits<DF>(), bits_of(p)));
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadAs(DF df, const hwy::float16_t* p, size_t n) {
  return WidenF16(df, LoadTail(HalfBits<DF>(), bits_of(p), n));
}
template <class DF>
HWY_INLINE void StoreAs(hn::Vec<DF> v, DF df, hwy::float16_t* p) {
  hn::StoreU(NarrowToF16(df, v), HalfBits<DF>(), bits_of(p));
}
template <class DF>
HWY_INLINE void StoreAs(hn::Vec<DF> v, DF df, hwy::float16_t* p, size_t n) {
  StoreTail(NarrowToF16(df, v), HalfBits<DF>(), bits_of(p), n);
}

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
