// Copies against a scalar reference: every pair of dtypes, every kind of layout, every route.

#include "kernels/copy/copy.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/copy/cast.h"
#include "plan/copy.h"

namespace flexcpu {
namespace {

using Nest = layout::LoopNest<2>;

constexpr DType kAll[] = {DType::kBool, DType::kU8,  DType::kI8,  DType::kI16, DType::kI32, DType::kI64,
                          DType::kU16,  DType::kU32, DType::kU64, DType::kF16, DType::kBF16, DType::kF32,
                          DType::kF64,  DType::kC32, DType::kC64, DType::kC128};

bool is_float(DType d) { return is_floating(d) || is_complex(d); }

DType part_of(DType d) {
  return d == DType::kC32 ? DType::kF16 : d == DType::kC64 ? DType::kF32 : d == DType::kC128 ? DType::kF64 : d;
}

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof(T));
}

// A value of any real dtype: floats as double, the others as an integer that holds all of them.
struct Value {
  bool is_float = false;
  double real = 0;
  __int128 integer = 0;
};

double widen_half(uint16_t bits) {
  const double sign = bits & 0x8000 ? -1 : 1;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction ? std::copysign(NAN, sign) : sign * INFINITY;
  return exponent ? sign * std::ldexp(1024 + fraction, exponent - 25) : sign * std::ldexp(fraction, -24);
}

uint16_t narrow_to_half(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return sign | 0x7E00;
  if (magnitude >= 65520) return sign | 0x7C00;
  const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  const int units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));  // ties to even
  return sign + static_cast<uint16_t>((exponent + 14) * 1024 + units);  // a subnormal has no leading 1024
}

uint16_t narrow_to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  const uint32_t rest = bits & 0xFFFF;
  uint32_t upper = bits >> 16;
  if (rest > 0x8000 || (rest == 0x8000 && upper % 2)) ++upper;
  return static_cast<uint16_t>(upper);
}

Value read(DType d, const std::byte* p) {
  const auto real = [](double x) { return Value{true, x, 0}; };
  const auto integer = [](__int128 x) { return Value{false, 0, x}; };
  switch (d) {
    case DType::kBool: return integer(load<uint8_t>(p) != 0);
    case DType::kU8: return integer(load<uint8_t>(p));
    case DType::kI8: return integer(load<int8_t>(p));
    case DType::kI16: return integer(load<int16_t>(p));
    case DType::kI32: return integer(load<int32_t>(p));
    case DType::kI64: return integer(load<int64_t>(p));
    case DType::kU16: return integer(load<uint16_t>(p));
    case DType::kU32: return integer(load<uint32_t>(p));
    case DType::kU64: return integer(load<uint64_t>(p));
    case DType::kF16: return real(widen_half(load<uint16_t>(p)));
    case DType::kBF16: return real(std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(p)) << 16));
    case DType::kF32: return real(load<float>(p));
    case DType::kF64: return real(load<double>(p));
    default: ADD_FAILURE(); return {};
  }
}

// What cvttsd2si gives for an integer of `bits` bits.
int64_t truncate(double x, int bits) {
  const double limit = std::ldexp(1, bits - 1);
  const double whole = std::trunc(x);
  if (whole < limit && whole >= -limit) return static_cast<int64_t>(whole);
  return bits == 64 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
}

__int128 integer_of(const Value& v, DType to) {
  if (!v.is_float) return v.integer;
  switch (to) {
    case DType::kI8: case DType::kI16: case DType::kU16: case DType::kI32: return truncate(v.real, 32);
    case DType::kU64:
      if (v.real >= 0x1p63) return static_cast<uint64_t>(truncate(v.real - 0x1p63, 64)) ^ (uint64_t{1} << 63);
      [[fallthrough]];
    default: return truncate(v.real, 64);
  }
}

float float_of(const Value& v) { return v.is_float ? static_cast<float>(v.real) : static_cast<float>(v.integer); }

void write(DType d, std::byte* p, const Value& v, bool negate) {
  const __int128 sign = negate ? -1 : 1;
  const auto bits = [&](double) { return static_cast<uint64_t>(sign * integer_of(v, d)); };
  const uint16_t half_sign = negate ? 0x8000 : 0;
  switch (d) {
    case DType::kBool: return store<uint8_t>(p, v.is_float ? v.real != 0 : v.integer != 0);
    case DType::kU8: case DType::kI8: return store<uint8_t>(p, bits(0));
    case DType::kU16: case DType::kI16: return store<uint16_t>(p, bits(0));
    case DType::kU32: case DType::kI32: return store<uint32_t>(p, bits(0));
    case DType::kU64: case DType::kI64: return store<uint64_t>(p, bits(0));
    case DType::kF16: return store<uint16_t>(p, narrow_to_half(float_of(v)) ^ half_sign);
    case DType::kBF16: return store<uint16_t>(p, narrow_to_bf16(float_of(v)) ^ half_sign);
    case DType::kF32: return store<float>(p, negate ? -float_of(v) : float_of(v));
    case DType::kF64: {
      const double x = v.is_float ? v.real : static_cast<double>(v.integer);
      return store<double>(p, negate ? -x : x);
    }
    default: ADD_FAILURE();
  }
}

void convert_one(DType to, std::byte* dst, DType from, const std::byte* src, bool conjugate, bool negate) {
  if (to == from && !(conjugate && is_complex(to)) && !negate) {
    std::memcpy(dst, src, size_of(to));
    return;
  }
  const DType to_part = part_of(to), from_part = part_of(from);
  const Value real = read(from_part, src);
  const Value imaginary =
      is_complex(from) ? read(from_part, src + size_of(from_part)) : Value{.is_float = is_float(to)};
  if (to == DType::kBool && is_complex(from)) {
    store<uint8_t>(dst, real.real != 0 || imaginary.real != 0);
    return;
  }
  write(to_part, dst, real, negate);
  if (is_complex(to)) write(to_part, dst + size_of(to_part), imaginary, negate != conjugate);
}

// Values whose conversions differ, then random bits.
std::vector<std::byte> interesting(DType dtype, int64_t count, uint32_t seed) {
  constexpr double values[] = {
      0.,       -0.,     1.,       -1.,     1.5,       -1.5,    0.1,      127.7,   128.,     200.,    255.9,
      256.,     -129.,   -300.,    32768.,  40000.,    65504.,  65519.,   65520.,  65535.,   65536.,  70000.,
      -32769.,  -70000., 0x1p31,   3e9,     0x1p32,    5e9,     -0x1p31,  -3e9,    -5e9,     0x1p62,  0x1p63,
      0x1.8p63, 0x1p64,  1e20,     -0x1p63, -0x1.8p63, -1e20,   1e39,     -1e39,   NAN,      -NAN,    INFINITY,
      -INFINITY, 6e-8,   3e-8,     2.98e-8, 1e-40,     -1e-45,  1.0009765625, 1.00048828125, 1.0014648438, 1.00390625,
      1.01171875, 0x1.0000010001p0, 0x1.0020000001p0, 16777217., 0x1.fffffffffffffp63, 9007199254740993.};
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count * size_of(dtype));
  const DType part = part_of(dtype);
  const int64_t parts = count * (is_complex(dtype) ? 2 : 1);
  for (int64_t i = 0; i < parts; ++i) {
    std::byte* p = bytes.data() + i * size_of(part);
    const uint64_t bits = random();
    if (random() % 4 == 0) {
      std::memcpy(p, &bits, size_of(part));
    } else {
      write(part, p, {true, values[(i + seed) % std::size(values)], 0}, false);
    }
  }
  return bytes;
}

// Equal bits, any NaN equal to any other.
::testing::AssertionResult same(DType dtype, const std::byte* actual, const std::byte* expected) {
  const DType part = part_of(dtype);
  for (int64_t i = 0; i < size_of(dtype); i += size_of(part)) {
    if (std::memcmp(actual + i, expected + i, size_of(part)) == 0) continue;
    if (is_floating(part)) {
      const double a = read(part, actual + i).real, b = read(part, expected + i).real;
      if (std::isnan(a) && std::isnan(b)) continue;
      return ::testing::AssertionFailure() << name_of(dtype) << ": " << a << ", expected " << b;
    }
    return ::testing::AssertionFailure()
           << name_of(dtype) << ": " << static_cast<int64_t>(read(part, actual + i).integer) << ", expected "
           << static_cast<int64_t>(read(part, expected + i).integer);
  }
  return ::testing::AssertionSuccess();
}

TEST(Cast, EveryPairOfDtypes) {
  for (DType to : kAll) {
    for (DType from : kAll) {
      for (int sign = 0; sign < 4; ++sign) {
        const bool conjugate = sign & 1, negate = sign & 2;
        if (negate && to == DType::kBool) continue;
        const kernels::Cast cast(to, from, conjugate, negate);
        for (int64_t count : {1, 3, 17, 64, 511, 512, 1100}) {
          const auto src = interesting(from, count, static_cast<uint32_t>(count));
          std::vector<std::byte> dst(count * size_of(to));
          if (cast.is_identity()) {
            dst.assign(src.begin(), src.end());
          } else {
            cast(dst.data(), src.data(), count);
          }
          for (int64_t i = 0; i < count; ++i) {
            std::byte expected[16];
            convert_one(to, expected, from, src.data() + i * size_of(from), conjugate, negate);
            ASSERT_TRUE(same(to, dst.data() + i * size_of(to), expected))
                << "from " << name_of(from) << ", element " << i << " of " << count << ", sign " << sign;
          }
        }
      }
    }
  }
}

TEST(Cast, InPlaceWhereTheSizesAgree) {
  for (DType to : kAll) {
    for (DType from : kAll) {
      if (size_of(to) != size_of(from)) continue;
      const kernels::Cast cast(to, from, false, false);
      if (cast.is_identity()) continue;
      const int64_t count = 1100;
      const auto src = interesting(from, count, 7);
      auto both = src;
      cast(both.data(), both.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        std::byte expected[16];
        convert_one(to, expected, from, src.data() + i * size_of(from), false, false);
        ASSERT_TRUE(same(to, both.data() + i * size_of(to), expected)) << "from " << name_of(from) << ", element " << i;
      }
    }
  }
}

// An operand in memory of its own: room for every layout of `extents` that a test asks for.
struct Layout {
  std::vector<int64_t> strides;
  int64_t offset = 0, length = 1;  // of the storage, in elements
};

// `order`: dimensions from the outermost in memory to the innermost. `gap` elements between neighbours of the
// innermost.
Layout make_layout(const std::vector<int64_t>& extents, const std::vector<int>& order, int64_t gap,
                   const std::vector<bool>& reversed, const std::vector<bool>& repeated) {
  Layout layout;
  layout.strides.resize(extents.size());
  int64_t stride = gap + 1;
  for (size_t k = order.size(); k-- > 0;) {
    const int d = order[k];
    if (repeated[d]) {
      layout.strides[d] = 0;
      continue;
    }
    layout.strides[d] = reversed[d] ? -stride : stride;
    if (reversed[d]) layout.offset += (extents[d] - 1) * stride;
    stride *= extents[d];
  }
  layout.length = stride + gap;
  return layout;
}

// Copies and compares element by element; bytes of dst's storage between the elements must stay.
void check_copy(const std::vector<int64_t>& extents, DType to, const Layout& dst_layout, DType from,
                const Layout& src_layout, bool conjugate, bool negate, int threads, const std::string& what,
                const char* route = nullptr) {
  const int64_t dst_size = size_of(to), src_size = size_of(from);
  const auto src = interesting(from, src_layout.length, 3);
  std::vector<std::byte> dst(dst_layout.length * dst_size, std::byte{0xA5});
  std::vector<std::byte> expected = dst;

  Nest nest;
  nest.rank = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), nest.extents.begin());
  layout::set_operand(nest, 0, dst.data() + dst_layout.offset * dst_size, extents, dst_layout.strides, dst_size);
  layout::set_operand(nest, 1, src.data() + src_layout.offset * src_size, extents, src_layout.strides, src_size);
  const auto plan = plan::plan_copy(nest, to, from, conjugate, negate, threads);
  if (route) {
    ASSERT_STREQ(name_of(plan.route), route) << what;
  }
  kernels::copy(plan);

  std::vector<int64_t> index(extents.size());
  for (int64_t i = 0; i < nest.numel(); ++i) {
    int64_t d_at = dst_layout.offset, s_at = src_layout.offset;
    for (size_t d = 0; d < extents.size(); ++d) {
      d_at += index[d] * dst_layout.strides[d];
      s_at += index[d] * src_layout.strides[d];
    }
    convert_one(to, expected.data() + d_at * dst_size, from, src.data() + s_at * src_size, conjugate, negate);
    for (size_t d = extents.size(); d-- > 0 && ++index[d] == extents[d];) index[d] = 0;
  }
  for (int64_t i = 0; i < dst_layout.length; ++i)
    ASSERT_TRUE(same(to, dst.data() + i * dst_size, expected.data() + i * dst_size))
        << what << ", route " << name_of(plan.route) << ", element " << i << " from " << name_of(from);
}

Layout contiguous(const std::vector<int64_t>& extents) {
  std::vector<int> order(extents.size());
  std::iota(order.begin(), order.end(), 0);
  const std::vector<bool> none(extents.size());
  return make_layout(extents, order, 0, none, none);
}

TEST(Copy, RandomLayouts) {
  std::mt19937 random(11);
  const auto one_in = [&](int n) { return random() % n == 0; };
  for (int round = 0; round < 3000; ++round) {
    const int rank = random() % 6;
    std::vector<int64_t> extents(rank);
    for (auto& e : extents) e = 1 + random() % (rank < 3 ? 70 : one_in(3) ? 20 : 5);
    if (rank && rank < 3 && one_in(20)) extents[random() % rank] += 2000;
    std::vector<int> dst_order(rank), src_order(rank);
    std::iota(dst_order.begin(), dst_order.end(), 0);
    src_order = dst_order;
    if (one_in(2)) std::shuffle(src_order.begin(), src_order.end(), random);
    if (one_in(3)) std::shuffle(dst_order.begin(), dst_order.end(), random);
    std::vector<bool> none(rank), dst_reversed(rank), src_reversed(rank), repeated(rank);
    for (int d = 0; d < rank; ++d) {
      dst_reversed[d] = one_in(5);
      src_reversed[d] = one_in(5);
      repeated[d] = one_in(8);
    }
    const auto dst = make_layout(extents, dst_order, one_in(3) ? random() % 3 : 0, dst_reversed, none);
    const auto src = make_layout(extents, src_order, one_in(3) ? random() % 3 : 0, src_reversed, repeated);
    const DType to = kAll[random() % std::size(kAll)], from = one_in(2) ? to : kAll[random() % std::size(kAll)];
    const bool conjugate = one_in(4), negate = one_in(4) && to != DType::kBool;
    check_copy(extents, to, dst, from, src, conjugate, negate, 1 + random() % 3, "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
}

constexpr DType kEverySize[] = {DType::kU8, DType::kI16, DType::kF32, DType::kF64, DType::kC128};

TEST(Copy, TransposesOfEverySmallShape) {
  for (DType dtype : kEverySize) {
    for (int64_t rows : {8, 9, 15, 16, 17, 31, 33, 70, 130}) {
      for (int64_t columns = 8; columns < 140; columns += columns < 70 ? 1 : 13) {
        const std::vector<int64_t> extents = {rows, columns};
        const auto src = make_layout(extents, {1, 0}, 0, {rows % 2 == 1, columns % 2 == 1}, {false, false});
        check_copy(extents, dtype, contiguous(extents), dtype, src, false, false, 1,
                   std::to_string(rows) + " x " + std::to_string(columns), "transpose");
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Planes to pixels and back, whole and in part, either way round, with and without conversion.
TEST(Copy, InterleavesOfEveryLength) {
  const std::vector<bool> none(3);
  for (DType from : kEverySize) {
    for (DType to : {from, DType::kF32}) {
      for (int64_t ways : {2, 3, 4}) {
        for (int64_t length = 16; length < 300; length += length < 140 ? 1 : 31) {
          for (bool reversed : {false, true}) {
            const std::vector<int64_t> pixels = {2, length, ways};
            const std::string what = std::to_string(ways) + " of " + std::to_string(length);
            check_copy(pixels, to, contiguous(pixels), from,
                       make_layout(pixels, {0, 2, 1}, 0, {false, false, reversed}, none), false, false, 1, what,
                       "interleave");
            const std::vector<int64_t> planes = {2, ways, length};
            const auto src = make_layout(planes, {0, 2, 1}, 0, {false, reversed, false}, none);
            check_copy(planes, to, contiguous(planes), from, src, false, false, 1, what, "deinterleave");
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Some channels of more, the last of which are the end of src.
TEST(Copy, SomeOfWhatIsInterleaved) {
  for (DType dtype : kEverySize) {
    for (int64_t stride : {3, 4}) {
      for (int64_t length : {17, 64, 65, 200}) {
        const std::vector<int64_t> extents = {2, length};
        Layout src{.strides = {1, stride}, .offset = stride - 2, .length = stride * length};
        check_copy(extents, dtype, contiguous(extents), dtype, src, false, false, 1, std::to_string(length),
                   "deinterleave");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Copy, RepeatedElements) {
  for (DType dtype : kEverySize) {
    for (int64_t times : {2, 3, 4}) {
      const std::vector<int64_t> extents = {77, times};
      const auto src = make_layout(extents, {0, 1}, 0, {false, false}, {false, true});
      check_copy(extents, dtype, contiguous(extents), dtype, src, false, false, 1, std::to_string(times), "interleave");
    }
  }
}

TEST(Copy, ReversedRowsOfEveryLength) {
  for (DType dtype : kEverySize) {
    for (int64_t length = 32; length < 300; length += length < 140 ? 1 : 31) {
      const std::vector<int64_t> extents = {3, length};
      const auto src = make_layout(extents, {0, 1}, 0, {false, true}, {false, false});
      check_copy(extents, dtype, contiguous(extents), dtype, src, false, false, 1, std::to_string(length),
                 "reversed rows");
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Copy, LargeOnesFromSeveralThreads) {
  const std::vector<int64_t> extents = {5, 130, 257};
  const std::vector<bool> none(3);
  for (DType to : {DType::kU8, DType::kF32, DType::kBF16, DType::kC64}) {
    for (DType from : {DType::kU8, DType::kF32}) {
      for (int threads : {1, 2, 3}) {
        const auto dst = contiguous(extents);
        check_copy(extents, to, dst, from, contiguous(extents), false, false, threads, "contiguous", "contiguous");
        check_copy(extents, to, dst, from, make_layout(extents, {0, 2, 1}, 0, none, none), false, false, threads,
                   "matrices transposed", "transpose");
        check_copy(extents, to, dst, from, make_layout(extents, {2, 1, 0}, 0, none, none), false, false, threads,
                   "all dimensions swapped", "strided");
        check_copy(extents, to, dst, from, make_layout(extents, {1, 0, 2}, 0, none, none), false, false, threads,
                   "outer dimensions swapped", "rows");
        check_copy(extents, to, dst, from, make_layout(extents, {0, 1, 2}, 4, none, none), false, false, threads,
                   "every fifth", "strided");
        check_copy(extents, to, dst, from, make_layout(extents, {0, 1, 2}, 0, {true, true, true}, none), false, false,
                   threads, "reversed", "reversed rows");
        check_copy(extents, to, dst, from, make_layout(extents, {0, 1, 2}, 0, none, {true, false, true}), false, false,
                   threads, "expanded");
        if (HasFatalFailure()) return;
      }
    }
  }
}

// What is larger than the cache is written past it.
TEST(Copy, BeyondTheCache) {
  ASSERT_FALSE(plan::is_beyond_cache(1 << 20));
  const std::vector<int64_t> extents = {3000, 3001}, straight = {3001, 1}, gaps = {3003, 1};
  std::vector<float> src(3000 * 3003);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<float>(i);
  std::vector<float> dst(src.size() + 1);
  ASSERT_TRUE(plan::is_beyond_cache(static_cast<int64_t>(extents[0] * extents[1] * sizeof(float))));
  for (const auto& strides : {straight, gaps}) {
    for (int threads : {1, 2}) {
      std::fill(dst.begin(), dst.end(), -1.f);
      Nest nest;
      nest.rank = 2;
      std::copy(extents.begin(), extents.end(), nest.extents.begin());
      layout::set_operand(nest, 0, dst.data() + 1, extents, strides, 4);
      layout::set_operand(nest, 1, src.data(), extents, strides, 4);
      const auto plan = plan::plan_copy(nest, DType::kF32, DType::kF32, false, false, threads);
      ASSERT_TRUE(plan.streams);
      kernels::copy(plan);
      int64_t wrong = 0;
      for (int64_t i = 0; i < extents[0] * strides[0]; ++i)
        wrong += dst[1 + i] != (i % strides[0] < extents[1] ? src[i] : -1.f);
      ASSERT_EQ(wrong, 0) << strides[0] << ", " << threads << " threads";
    }
  }
}

TEST(Copy, PlansSayWhyNotFaster) {
  const std::vector<int64_t> extents = {64, 64};
  Nest nest;
  nest.rank = 2;
  std::copy(extents.begin(), extents.end(), nest.extents.begin());
  std::vector<float> dst(64 * 64), src(64 * 64);
  const std::vector<int64_t> straight = {64, 1}, across = {1, 64};
  layout::set_operand(nest, 0, dst.data(), extents, straight, 4);
  layout::set_operand(nest, 1, src.data(), extents, across, 4);
  const auto plan = plan::plan_copy(nest, DType::kF32, DType::kF32, false, false, 1);
  EXPECT_EQ(plan.route, plan::CopyRoute::kTranspose);
  EXPECT_STREQ(plan.refusals[0], "an operand is not contiguous");
  EXPECT_STREQ(plan.refusals[1], "the innermost dimension of an operand is not contiguous");
  EXPECT_STREQ(plan.refusals[2], "the innermost dimension of src is not walked backwards");
  EXPECT_STREQ(plan.refusals[3], "dst does not interleave 2 to 4 runs");
  EXPECT_STREQ(plan.refusals[4], "src does not interleave 2 to 4 runs");
  EXPECT_EQ(plan.refusals[5], nullptr);
}

TEST(Copy, InPlaceConjugation) {
  for (DType dtype : {DType::kC32, DType::kC64, DType::kC128}) {
    const int64_t count = 3000, size = size_of(dtype);
    const auto src = interesting(dtype, 2 * count, 5);
    auto both = src;
    Nest nest;
    nest.rank = 1;
    nest.extents[0] = count;
    for (int n : {0, 1}) {
      nest.data[n] = both.data();
      nest.strides[n][0] = 2;
      nest.element_size[n] = size;
    }
    kernels::copy(plan::plan_copy(nest, dtype, dtype, true, false, 2));
    for (int64_t i = 0; i < 2 * count; ++i) {
      std::byte expected[16];
      convert_one(dtype, expected, dtype, src.data() + i * size, i % 2 == 0, false);
      ASSERT_TRUE(same(dtype, both.data() + i * size, expected)) << i;
    }
  }
}

}  // namespace
}  // namespace flexcpu
