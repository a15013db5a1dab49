#pragma once
// Element types and comparisons for kernel tests: every dtype as a C++ type with plain scalar arithmetic.

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <random>
#include <type_traits>

#include "layout/dtype.h"

namespace flexcpu::test {

// A 16-bit float as its bits; converts through float, rounding to nearest, ties to even.
template <int kMantissaBits>
struct Half {
  uint16_t bits = 0;

  Half() = default;
  Half(float x) {
    const int bias = (1 << (14 - kMantissaBits)) - 1;
    const uint16_t infinity = ((1 << (15 - kMantissaBits)) - 1) << kMantissaBits;
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    if (std::isnan(x)) {
      bits = infinity | (1 << (kMantissaBits - 1));
      return;
    }
    const double magnitude = std::fabs(static_cast<double>(x));
    const int exponent = magnitude == 0 ? -bias : std::ilogb(magnitude);
    const int lowest_bit = std::max(exponent, 1 - bias) - kMantissaBits;
    const double steps = std::nearbyint(std::ldexp(magnitude, -lowest_bit));  // ties to even
    if (std::isinf(x) || std::ldexp(steps, lowest_bit) >= std::ldexp(1.0, bias + 1)) {
      bits = sign | infinity;
    } else {
      const int biased = lowest_bit + kMantissaBits + bias;  // steps carry the leading one unless subnormal
      bits = static_cast<uint16_t>(sign | ((biased - 1) * (1 << kMantissaBits) + static_cast<int>(steps)));
    }
  }
  operator float() const {
    const int bias = (1 << (14 - kMantissaBits)) - 1;
    const int exponent = (bits & 0x7FFF) >> kMantissaBits, mantissa = bits & ((1 << kMantissaBits) - 1);
    const float sign = bits & 0x8000 ? -1.f : 1.f;
    if (exponent == (1 << (15 - kMantissaBits)) - 1) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - bias - kMantissaBits);
    return sign * std::ldexp(static_cast<float>(mantissa + (1 << kMantissaBits)), exponent - bias - kMantissaBits);
  }
};
using F16 = Half<10>;
using BF16 = Half<7>;

struct C32 {
  F16 re, im;
};

template <DType kDType>
struct ElementOf;
template <> struct ElementOf<DType::kBool> { using type = bool; };
template <> struct ElementOf<DType::kU8> { using type = uint8_t; };
template <> struct ElementOf<DType::kI8> { using type = int8_t; };
template <> struct ElementOf<DType::kI16> { using type = int16_t; };
template <> struct ElementOf<DType::kI32> { using type = int32_t; };
template <> struct ElementOf<DType::kI64> { using type = int64_t; };
template <> struct ElementOf<DType::kU16> { using type = uint16_t; };
template <> struct ElementOf<DType::kU32> { using type = uint32_t; };
template <> struct ElementOf<DType::kU64> { using type = uint64_t; };
template <> struct ElementOf<DType::kF16> { using type = F16; };
template <> struct ElementOf<DType::kBF16> { using type = BF16; };
template <> struct ElementOf<DType::kF32> { using type = float; };
template <> struct ElementOf<DType::kF64> { using type = double; };
template <> struct ElementOf<DType::kC32> { using type = C32; };
template <> struct ElementOf<DType::kC64> { using type = std::complex<float>; };
template <> struct ElementOf<DType::kC128> { using type = std::complex<double>; };
template <DType kDType>
using Element = typename ElementOf<kDType>::type;

inline constexpr DType kAllDTypes[] = {
    DType::kBool, DType::kU8,  DType::kI8,   DType::kI16, DType::kI32, DType::kI64, DType::kU16, DType::kU32,
    DType::kU64,  DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kC32, DType::kC64, DType::kC128};

// Calls f.operator()<dtype>() for the dtype given at run time.
template <typename F>
auto with_dtype(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool: return f.template operator()<DType::kBool>();
    case DType::kU8: return f.template operator()<DType::kU8>();
    case DType::kI8: return f.template operator()<DType::kI8>();
    case DType::kI16: return f.template operator()<DType::kI16>();
    case DType::kI32: return f.template operator()<DType::kI32>();
    case DType::kI64: return f.template operator()<DType::kI64>();
    case DType::kU16: return f.template operator()<DType::kU16>();
    case DType::kU32: return f.template operator()<DType::kU32>();
    case DType::kU64: return f.template operator()<DType::kU64>();
    case DType::kF16: return f.template operator()<DType::kF16>();
    case DType::kBF16: return f.template operator()<DType::kBF16>();
    case DType::kF32: return f.template operator()<DType::kF32>();
    case DType::kF64: return f.template operator()<DType::kF64>();
    case DType::kC32: return f.template operator()<DType::kC32>();
    case DType::kC64: return f.template operator()<DType::kC64>();
    default: return f.template operator()<DType::kC128>();
  }
}

template <typename T>
constexpr bool is_std_complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// What the kernels compute in: float for 16-bit floats.
template <typename T>
auto widened(T x) {
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return static_cast<float>(x);
  } else if constexpr (std::is_same_v<T, C32>) {
    return std::complex<float>(x.re, x.im);
  } else {
    return x;
  }
}

template <typename T, typename W>
T narrowed(W x) {
  if constexpr (std::is_same_v<T, C32>) {
    return C32{F16(x.real()), F16(x.imag())};
  } else {
    return static_cast<T>(x);
  }
}

// Small numbers, whose sums and products are exact in every dtype but the narrowest.
template <typename T>
T small_number(std::mt19937& random) {
  const int x = static_cast<int>(random() % 15) - 7, y = static_cast<int>(random() % 15) - 7;
  if constexpr (std::is_same_v<T, bool>) {
    return x > 0;
  } else if constexpr (std::is_same_v<T, C32> || is_std_complex<T>) {
    return narrowed<T>(std::complex<float>(static_cast<float>(x), static_cast<float>(y)));
  } else {
    return static_cast<T>(x);
  }
}

// Any number: all the bits of an integer, a float of varied magnitude.
template <typename T>
T any_number(std::mt19937& random) {
  const auto real = [&] { return std::ldexp(static_cast<float>(static_cast<int32_t>(random())), static_cast<int>(random() % 12) - 36); };
  if constexpr (std::is_same_v<T, bool>) {
    return random() & 1;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random() | static_cast<uint64_t>(random()) << 32);
  } else if constexpr (std::is_same_v<T, C32> || is_std_complex<T>) {
    const float re = real();
    return narrowed<T>(std::complex<float>(re, real()));
  } else {
    return static_cast<T>(real());
  }
}

// Equal values; any NaN equals any NaN, 0 does not equal -0.
template <typename T>
bool same(T x, T y) {
  if constexpr (std::is_same_v<T, C32>) {
    return same<float>(x.re, y.re) && same<float>(x.im, y.im);
  } else if constexpr (is_std_complex<T>) {
    return same(x.real(), y.real()) && same(x.imag(), y.imag());
  } else if constexpr (std::is_integral_v<T>) {
    return x == y;
  } else {
    const double a = static_cast<double>(x), b = static_cast<double>(y);
    return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
  }
}

}  // namespace flexcpu::test
