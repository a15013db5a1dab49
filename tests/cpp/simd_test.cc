// The conversions and tails of compat-inl.h against scalar code, exhaustively where the input has 16 bits.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/compat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {

template <typename T>
void widen(const uint16_t* src, float* dst, size_t count) {
  const hn::ScalableTag<float> d;
  const auto* p = reinterpret_cast<const T*>(src);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) StoreAs(LoadAs(d, p + i), d, dst + i);
  if (i < count) StoreAs(LoadAs(d, p + i, count - i), d, dst + i, count - i);
}

template <typename T>
void narrow(const float* src, uint16_t* dst, size_t count) {
  const hn::ScalableTag<float> d;
  auto* p = reinterpret_cast<T*>(dst);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) StoreAs(LoadAs(d, src + i), d, p + i);
  if (i < count) StoreAs(LoadAs(d, src + i, count - i), d, p + i, count - i);
}

void widen_f16(const uint16_t* src, float* dst, size_t n) { widen<hwy::float16_t>(src, dst, n); }
void widen_bf16(const uint16_t* src, float* dst, size_t n) { widen<hwy::bfloat16_t>(src, dst, n); }
void narrow_f16(const float* src, uint16_t* dst, size_t n) { narrow<hwy::float16_t>(src, dst, n); }
void narrow_bf16(const float* src, uint16_t* dst, size_t n) { narrow<hwy::bfloat16_t>(src, dst, n); }

template <typename T>
void copy_tail(const void* src, void* dst, size_t n) {
  const hn::ScalableTag<T> d;
  if (n < hn::Lanes(d)) StoreAs(LoadAs(d, static_cast<const T*>(src), n), d, static_cast<T*>(dst), n);
}

void copy_tail_of(size_t size, const void* src, void* dst, size_t n) {
  switch (size) {
    case 1: return copy_tail<uint8_t>(src, dst, n);
    case 2: return copy_tail<int16_t>(src, dst, n);
    case 4: return copy_tail<float>(src, dst, n);
    case 8: return copy_tail<double>(src, dst, n);
  }
}

const char* target_name() { return HWY_TARGET == HWY_AVX3 ? "avx3" : HWY_TARGET == HWY_AVX2 ? "avx2" : "baseline"; }

size_t vector_bytes() { return hn::Lanes(hn::ScalableTag<uint8_t>()); }

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flexcpu {

HWY_EXPORT(widen_f16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(copy_tail_of);
HWY_EXPORT(target_name);
HWY_EXPORT(vector_bytes);

namespace {

// The definition of the two formats: sign, exponent bits, mantissa bits, evaluated in double precision.
double value_of(uint16_t bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7FFF) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Nearest by comparing the distances to the two neighbours, ties to the even encoding.
uint16_t nearest(float x, int mantissa_bits) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0, infinity = ((1 << (15 - mantissa_bits)) - 1) << mantissa_bits;
  const double magnitude = std::fabs(static_cast<double>(x));
  if (std::isinf(magnitude)) return sign | infinity;
  uint16_t low = 0, high = infinity;  // positive encodings ascend with their values
  while (high - low > 1) {
    const uint16_t middle = low + (high - low) / 2;
    (value_of(middle, mantissa_bits) <= magnitude ? low : high) = middle;
  }
  const double below = value_of(low, mantissa_bits);
  const double above = high == infinity ? 2 * below - value_of(low - 1, mantissa_bits) : value_of(high, mantissa_bits);
  const double to_below = magnitude - below, to_above = above - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && (low & 1));
  return sign | (up ? high : low);
}

void expect_widened(const std::vector<float>& got, int mantissa_bits) {
  for (size_t i = 0; i < got.size(); ++i) {
    const double want = value_of(static_cast<uint16_t>(i), mantissa_bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_EQ(got[i], want) << i;
      ASSERT_EQ(std::signbit(got[i]), std::signbit(want)) << i;
    }
  }
}

std::vector<float> floats_to_narrow(int mantissa_bits) {
  std::vector<float> values = {0.f, -0.f, 1e-45f, -1e-45f, 1e-40f, INFINITY, -INFINITY, 1e9f, -1e9f, 65504.f, 65519.996f,
                               65520.f, 70000.f, 3.4028235e38f, -3.4028235e38f, 3.3895314e38f, 3.3961776e38f};
  // Every encoding, every midpoint of two neighbours and the floats beside it.
  for (int bits = 0; bits < 0x7FFF; ++bits) {
    const double a = value_of(bits, mantissa_bits), b = value_of(bits + 1, mantissa_bits);
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    const float middle = static_cast<float>((a + b) / 2);
    for (float x : {static_cast<float>(a), middle, std::nextafter(middle, 0.f), std::nextafter(middle, 1e38f)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(x)) values.push_back(x);
  }
  return values;
}

void expect_narrowed(const std::vector<float>& values, const std::vector<uint16_t>& got, int mantissa_bits) {
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(got[i], nearest(values[i], mantissa_bits)) << values[i];
}

std::vector<uint16_t> all_bits() {
  std::vector<uint16_t> bits(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  return bits;
}

TEST(Simd, WidensEveryF16) {
  std::vector<float> got(1 << 16);
  HWY_DYNAMIC_DISPATCH(widen_f16)(all_bits().data(), got.data(), got.size());
  expect_widened(got, 10);
}

TEST(Simd, WidensEveryBF16) {
  std::vector<float> got(1 << 16);
  HWY_DYNAMIC_DISPATCH(widen_bf16)(all_bits().data(), got.data(), got.size());
  expect_widened(got, 7);
}

TEST(Simd, NarrowsToF16TiesToEven) {
  const auto values = floats_to_narrow(10);
  std::vector<uint16_t> got(values.size());
  HWY_DYNAMIC_DISPATCH(narrow_f16)(values.data(), got.data(), got.size());
  expect_narrowed(values, got, 10);
}

TEST(Simd, NarrowsToBF16TiesToEven) {
  const auto values = floats_to_narrow(7);
  std::vector<uint16_t> got(values.size());
  HWY_DYNAMIC_DISPATCH(narrow_bf16)(values.data(), got.data(), got.size());
  expect_narrowed(values, got, 7);
}

TEST(Simd, NarrowingKeepsNaN) {
  std::vector<float> nans;
  for (uint32_t payload : {0x7F800001u, 0x7F801000u, 0x7FBFFFFFu, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu})
    nans.push_back(std::bit_cast<float>(payload));
  std::vector<uint16_t> f16(nans.size()), bf16(nans.size());
  HWY_DYNAMIC_DISPATCH(narrow_f16)(nans.data(), f16.data(), nans.size());
  HWY_DYNAMIC_DISPATCH(narrow_bf16)(nans.data(), bf16.data(), nans.size());
  for (size_t i = 0; i < nans.size(); ++i) {
    EXPECT_TRUE(std::isnan(value_of(f16[i], 10))) << i;
    EXPECT_TRUE(std::isnan(value_of(bf16[i], 7))) << i;
  }
}

TEST(Simd, TailsTouchNothingBeyond) {
  const size_t bytes = HWY_DYNAMIC_DISPATCH(vector_bytes)();
  for (size_t size : {1, 2, 4, 8}) {
    for (size_t n = 1; n < bytes / size; ++n) {
      // The source ends with its heap block, where an address sanitizer sees a read beyond it.
      std::vector<uint8_t> src(n * size), dst(bytes + 1, 0xEE);
      for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<uint8_t>(i + 1);
      HWY_DYNAMIC_DISPATCH(copy_tail_of)(size, src.data(), dst.data(), n);
      ASSERT_EQ(std::memcmp(src.data(), dst.data(), src.size()), 0) << size << " " << n;
      for (size_t i = src.size(); i < dst.size(); ++i) ASSERT_EQ(dst[i], 0xEE) << size << " " << n;
    }
  }
}

TEST(Simd, KernelsRunAsTheActiveTarget) {
  const std::string active = simd::active_target();  // asking must not change what runs
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(target_name)(), active);
  EXPECT_TRUE(simd::cpu_has_baseline());
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(target_name)(), active);
}

TEST(Simd, TargetNames) {
  EXPECT_TRUE(simd::cpu_has_baseline());
  EXPECT_THROW(simd::cap_target("sse9"), std::invalid_argument);
  const std::string before = simd::active_target();
  simd::cap_target("");
  simd::cap_target("avx3");
  EXPECT_EQ(before, simd::active_target());
}

}  // namespace
}  // namespace flexcpu
#endif  // HWY_ONCE
