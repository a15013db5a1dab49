#include "kernels/copy/stages.h"

#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/copy/stages.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/compat-inl.h"

// Apart from f16 these are plain loops: the compiler vectorizes them for each target. Highway's conversions
// saturate where the hardware's, which are wanted here, do not.

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {

using Stage = kernels::Cast::Stage;

// A bool in memory: any byte but zero is true.
struct Bool {
  uint8_t byte;
};

struct BF16 {
  uint16_t bits;
};

HWY_INLINE float widen(BF16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Rounded to nearest, ties to even. NaNs, which only floats have, become quiet.
template <bool kMayBeNaN>
HWY_INLINE BF16 narrow(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  if constexpr (!kMayBeNaN) return {static_cast<uint16_t>(rounded)};
  return {static_cast<uint16_t>(x == x ? rounded : bits >> 16 | 0x40)};
}

constexpr double kTwoTo63 = 9223372036854775808.0;

template <typename To, typename From>
HWY_INLINE To convert(From x) {
  if constexpr (std::is_same_v<From, Bool>) {
    return convert<To>(static_cast<uint8_t>(x.byte != 0));
  } else if constexpr (std::is_same_v<From, BF16>) {
    return convert<To>(widen(x));
  } else if constexpr (std::is_same_v<To, BF16>) {
    return narrow<std::is_floating_point_v<From>>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, Bool>) {
    return {static_cast<uint8_t>(x != 0)};
  } else if constexpr (!std::is_floating_point_v<From> || std::is_floating_point_v<To>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_same_v<To, uint64_t>) {
    constexpr From limit = static_cast<From>(kTwoTo63);
    const bool is_high = x >= limit;
    const auto low = static_cast<int64_t>(is_high ? x - limit : x);
    return static_cast<uint64_t>(low) ^ (is_high ? uint64_t{1} << 63 : 0);
  } else if constexpr (std::is_same_v<To, uint8_t> || std::is_same_v<To, uint32_t> || std::is_same_v<To, int64_t>) {
    return static_cast<To>(static_cast<int64_t>(x));
  } else {
    return static_cast<To>(static_cast<int32_t>(x));
  }
}

template <typename To, typename From>
void convert_values(void* dst, const void* src, int64_t count) {
  auto* to = static_cast<To*>(dst);
  auto* from = static_cast<const From*>(src);
  for (int64_t i = 0; i < count; ++i) to[i] = convert<To>(from[i]);
}

// One of To and From is float, the other hwy::float16_t.
template <typename To, typename From>
void convert_half(void* dst, const void* src, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  auto* to = static_cast<To*>(dst);
  auto* from = static_cast<const From*>(src);
  int64_t i = 0;
  HWY_UNROLL(4)
  for (; i + lanes <= count; i += lanes) StoreAs(LoadAs(d, from + i), d, to + i);
  if (i < count) StoreAs(LoadAs(d, from + i, count - i), d, to + i, count - i);
}

template <typename To>
Stage conversion_from(DType from) {
  switch (from) {
    case DType::kBool: return convert_values<To, Bool>;
    case DType::kU8: return convert_values<To, uint8_t>;
    case DType::kI8: return convert_values<To, int8_t>;
    case DType::kI16: return convert_values<To, int16_t>;
    case DType::kI32: return convert_values<To, int32_t>;
    case DType::kI64: return convert_values<To, int64_t>;
    case DType::kU16: return convert_values<To, uint16_t>;
    case DType::kU32: return convert_values<To, uint32_t>;
    case DType::kU64: return convert_values<To, uint64_t>;
    case DType::kBF16: return convert_values<To, BF16>;
    case DType::kF32: return convert_values<To, float>;
    case DType::kF64: return convert_values<To, double>;
    default: return nullptr;
  }
}

Stage conversion(DType to, DType from) {
  if (from == DType::kF16) return convert_half<float, hwy::float16_t>;
  switch (to) {
    case DType::kBool: return conversion_from<Bool>(from);
    case DType::kU8: return conversion_from<uint8_t>(from);
    case DType::kI8: return conversion_from<int8_t>(from);
    case DType::kI16: return conversion_from<int16_t>(from);
    case DType::kI32: return conversion_from<int32_t>(from);
    case DType::kI64: return conversion_from<int64_t>(from);
    case DType::kU16: return conversion_from<uint16_t>(from);
    case DType::kU32: return conversion_from<uint32_t>(from);
    case DType::kU64: return conversion_from<uint64_t>(from);
    case DType::kF16: return convert_half<hwy::float16_t, float>;
    case DType::kBF16: return conversion_from<BF16>(from);
    case DType::kF32: return conversion_from<float>(from);
    case DType::kF64: return conversion_from<double>(from);
    default: return nullptr;
  }
}

// Parts are moved as bits.
template <typename Bits>
void take_first(void* dst, const void* src, int64_t count) {
  auto* to = static_cast<Bits*>(dst);
  auto* from = static_cast<const Bits*>(src);
  for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
}

Stage first_of_pair(int64_t part_size) {
  return part_size == 2 ? take_first<uint16_t> : part_size == 4 ? take_first<uint32_t> : take_first<uint64_t>;
}

template <typename Bits>
void append_zero(void* dst, const void* src, int64_t count) {
  auto* to = static_cast<Bits*>(dst);
  auto* from = static_cast<const Bits*>(src);
  for (int64_t i = 0; i < count; ++i) {
    to[2 * i] = from[i];
    to[2 * i + 1] = 0;
  }
}

Stage pair_with_zero(int64_t part_size) {
  return part_size == 2 ? append_zero<uint16_t> : part_size == 4 ? append_zero<uint32_t> : append_zero<uint64_t>;
}

void either_of_pair(void* dst, const void* src, int64_t count) {
  auto* to = static_cast<uint8_t*>(dst);
  auto* from = static_cast<const uint8_t*>(src);
  for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i] | from[2 * i + 1];
}

template <typename Bits, bool kEven, bool kOdd>
void flip_signs(void* dst, const void* src, int64_t count) {
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  auto* to = static_cast<Bits*>(dst);
  auto* from = static_cast<const Bits*>(src);
  for (int64_t i = 0; i + 1 < count; i += 2) {
    to[i] = from[i] ^ (kEven ? sign : 0);
    to[i + 1] = from[i + 1] ^ (kOdd ? sign : 0);
  }
  if (count % 2) to[count - 1] = from[count - 1] ^ (kEven ? sign : 0);
}

template <typename Bits>
Stage sign_flipper(bool even, bool odd) {
  if (even && odd) return flip_signs<Bits, true, true>;
  return even ? flip_signs<Bits, true, false> : flip_signs<Bits, false, true>;
}

template <typename T>
void negate(void* dst, const void* src, int64_t count) {
  auto* to = static_cast<T*>(dst);
  auto* from = static_cast<const T*>(src);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(T{0} - from[i]);
}

Stage sign_changer(DType part, bool even, bool odd) {
  const int64_t size = size_of(part);
  if (is_floating(part)) {
    return size == 2   ? sign_flipper<uint16_t>(even, odd)
           : size == 4 ? sign_flipper<uint32_t>(even, odd)
                       : sign_flipper<uint64_t>(even, odd);
  }
  return size == 1 ? negate<uint8_t> : size == 2 ? negate<uint16_t> : size == 4 ? negate<uint32_t> : negate<uint64_t>;
}

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flexcpu {
HWY_EXPORT(conversion);
HWY_EXPORT(first_of_pair);
HWY_EXPORT(pair_with_zero);
HWY_EXPORT(either_of_pair);
HWY_EXPORT(sign_changer);
}  // namespace flexcpu

namespace flexcpu::kernels {

Cast::Stage conversion(DType dst, DType src) { return HWY_DYNAMIC_DISPATCH(flexcpu::conversion)(dst, src); }
Cast::Stage first_of_pair(int64_t part_size) { return HWY_DYNAMIC_DISPATCH(flexcpu::first_of_pair)(part_size); }
Cast::Stage pair_with_zero(int64_t part_size) { return HWY_DYNAMIC_DISPATCH(flexcpu::pair_with_zero)(part_size); }
void either_of_pair(void* dst, const void* src, int64_t count) {
  HWY_DYNAMIC_DISPATCH(flexcpu::either_of_pair)(dst, src, count);
}
Cast::Stage sign_changer(DType part, bool even, bool odd) {
  return HWY_DYNAMIC_DISPATCH(flexcpu::sign_changer)(part, even, odd);
}

}  // namespace flexcpu::kernels
#endif  // HWY_ONCE
