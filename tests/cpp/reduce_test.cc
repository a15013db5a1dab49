// Sums and means against exact arithmetic: dtypes, layouts, routes, chunks, threads.

#include "kernels/reduce/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "plan/reduce.h"

namespace flexcpu {
namespace {

// A source of any rank in memory of its own, which of its dimensions are reduced, and where the outputs go.
struct Case {
  std::vector<int64_t> extents;
  std::vector<bool> reduced;
  std::vector<int64_t> src_strides, dst_strides;
  int64_t src_offset = 0, src_length = 1, dst_offset = 0, dst_length = 1;
};

// Strides of `extents` whose dimensions lie in memory in `order`, `gap` elements between neighbours.
void place(const std::vector<int64_t>& extents, const std::vector<int>& order, int64_t gap,
           const std::vector<bool>& reversed, const std::vector<bool>& skipped, std::vector<int64_t>& strides,
           int64_t& offset, int64_t& length) {
  strides.assign(extents.size(), 0);
  int64_t stride = gap + 1;
  for (size_t k = order.size(); k-- > 0;) {
    const int d = order[k];
    if (skipped[d]) continue;
    strides[d] = reversed[d] ? -stride : stride;
    if (reversed[d]) offset += (extents[d] - 1) * stride;
    stride *= std::max<int64_t>(1, extents[d]);
  }
  length = stride;
}

Case contiguous(const std::vector<int64_t>& extents, const std::vector<bool>& reduced) {
  Case c;
  c.extents = extents;
  c.reduced = reduced;
  std::vector<int> order(extents.size());
  std::iota(order.begin(), order.end(), 0);
  const std::vector<bool> none(extents.size());
  place(extents, order, 0, none, none, c.src_strides, c.src_offset, c.src_length);
  place(extents, order, 0, none, reduced, c.dst_strides, c.dst_offset, c.dst_length);
  return c;
}

plan::ReducePlan plan_of(const Case& c, void* dst, DType dst_dtype, const void* src, DType src_dtype, DType element,
                         bool is_mean, int threads) {
  layout::LoopNest<2> nest;
  nest.rank = static_cast<int>(c.extents.size());
  std::copy(c.extents.begin(), c.extents.end(), nest.extents.begin());
  nest.data = {static_cast<std::byte*>(dst) + c.dst_offset * size_of(dst_dtype),
               static_cast<std::byte*>(const_cast<void*>(src)) + c.src_offset * size_of(src_dtype)};
  nest.element_size = {size_of(dst_dtype), size_of(src_dtype)};
  for (size_t d = 0; d < c.extents.size(); ++d) {
    nest.strides[0][d] = c.reduced[d] ? 0 : c.dst_strides[d];
    nest.strides[1][d] = c.src_strides[d];
  }
  return plan::plan_sum(nest, dst_dtype, src_dtype, element, is_mean, threads);
}

// Calls visit(output, source) with the places of every element.
template <typename Visit>
void for_each_element(const Case& c, const Visit& visit) {
  int64_t count = 1;
  for (int64_t e : c.extents) count *= e;
  std::vector<int64_t> index(c.extents.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t to = c.dst_offset, from = c.src_offset;
    for (size_t d = 0; d < index.size(); ++d) {
      to += index[d] * (c.reduced[d] ? 0 : c.dst_strides[d]);
      from += index[d] * c.src_strides[d];
    }
    visit(to, from);
    for (size_t d = index.size(); d-- > 0 && ++index[d] == c.extents[d];) index[d] = 0;
  }
}

template <typename T>
constexpr DType kDType = DType::kOther;
template <> constexpr DType kDType<bool> = DType::kBool;
template <> constexpr DType kDType<uint8_t> = DType::kU8;
template <> constexpr DType kDType<int8_t> = DType::kI8;
template <> constexpr DType kDType<int16_t> = DType::kI16;
template <> constexpr DType kDType<int32_t> = DType::kI32;
template <> constexpr DType kDType<int64_t> = DType::kI64;
template <> constexpr DType kDType<uint16_t> = DType::kU16;
template <> constexpr DType kDType<uint32_t> = DType::kU32;
template <> constexpr DType kDType<uint64_t> = DType::kU64;
template <> constexpr DType kDType<float> = DType::kF32;
template <> constexpr DType kDType<double> = DType::kF64;
template <> constexpr DType kDType<std::complex<float>> = DType::kC64;
template <> constexpr DType kDType<std::complex<double>> = DType::kC128;

// Sums of integers: exact, modulo 2^64.
template <typename T>
void check_integers(const Case& c, std::mt19937_64& random, const std::string& what, const char* route = nullptr) {
  std::vector<uint8_t> bytes(c.src_length * sizeof(T));
  for (auto& b : bytes) b = static_cast<uint8_t>(random());
  std::vector<int64_t> expected(c.dst_length, 77), actual(c.dst_length, 77);
  for_each_element(c, [&](int64_t to, int64_t) { expected[to] = 0; });
  for_each_element(c, [&](int64_t to, int64_t from) {
    T value;
    std::memcpy(&value, bytes.data() + from * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, bool>) value = bytes[from] != 0;
    expected[to] = static_cast<int64_t>(static_cast<uint64_t>(expected[to]) + static_cast<uint64_t>(value));
  });
  for (int threads : {1, 3}) {
    std::fill(actual.begin(), actual.end(), 77);
    const auto plan =
        plan_of(c, actual.data(), DType::kI64, bytes.data(), kDType<T>, DType::kI64, false, threads);
    if (route) {
      ASSERT_STREQ(name_of(plan.route), route) << what;
    }
    kernels::reduce(plan);
    ASSERT_EQ(actual, expected) << name_of(kDType<T>) << ", " << name_of(plan.route) << ", " << what;
  }
}

template <typename T>
using RealOf = decltype(std::abs(T()));

template <typename T>
double magnitude(T x) {
  return static_cast<double>(std::abs(x));
}

// Sums and means of floats: within a few roundings of the sum of magnitudes, and the same for any number of threads.
template <typename T, typename Wide>
void check_floats(const Case& c, std::mt19937_64& random, const std::string& what, const char* route = nullptr) {
  std::normal_distribution<double> normal;
  std::vector<T> src(c.src_length);
  auto* parts = reinterpret_cast<RealOf<T>*>(src.data());
  for (size_t i = 0; i < src.size() * sizeof(T) / sizeof(RealOf<T>); ++i)
    parts[i] = static_cast<RealOf<T>>(normal(random) + 0.5);
  std::vector<Wide> expected(c.dst_length);
  std::vector<double> scale(c.dst_length);
  std::vector<int64_t> count(c.dst_length);
  for_each_element(c, [&](int64_t to, int64_t from) {
    expected[to] += Wide(src[from]);
    scale[to] += magnitude(Wide(src[from]));
    ++count[to];
  });
  for (bool is_mean : {false, true}) {
    std::vector<T> actual(c.dst_length, T(77)), again;
    const auto plan = plan_of(c, actual.data(), kDType<T>, src.data(), kDType<T>, kDType<T>, is_mean, 1);
    if (route) {
      ASSERT_STREQ(name_of(plan.route), route) << what;
    }
    kernels::reduce(plan);
    for (int threads : {2, 3}) {
      again.assign(c.dst_length, T(77));
      kernels::reduce(plan_of(c, again.data(), kDType<T>, src.data(), kDType<T>, kDType<T>, is_mean, threads));
      ASSERT_EQ(std::memcmp(again.data(), actual.data(), actual.size() * sizeof(T)), 0)
          << threads << " threads, " << what;
    }
    for (int64_t i = 0; i < c.dst_length; ++i) {
      if (count[i] == 0) {
        ASSERT_EQ(actual[i], T(77)) << "a gap was written, " << what;
        continue;
      }
      const double divisor = is_mean ? static_cast<double>(count[i]) : 1;
      const double error = magnitude(Wide(actual[i]) - expected[i] / static_cast<RealOf<Wide>>(divisor));
      ASSERT_LE(error, 4 * std::numeric_limits<RealOf<T>>::epsilon() * scale[i] / divisor)
          << name_of(kDType<T>) << ", " << name_of(plan.route) << ", " << what << ", output " << i;
    }
  }
}

TEST(Reduce, RandomLayouts) {
  std::mt19937_64 random(5);
  const auto one_in = [&](int n) { return random() % n == 0; };
  for (int round = 0; round < 1500; ++round) {
    const int rank = static_cast<int>(random() % 6);
    Case c;
    for (int d = 0; d < rank; ++d)
      c.extents.push_back(1 + static_cast<int64_t>(random() % (rank < 3 ? 150 : one_in(3) ? 24 : 5)));
    if (rank && rank < 4 && one_in(10)) c.extents[random() % rank] += 1500;
    std::vector<int> dst_order(rank);
    std::iota(dst_order.begin(), dst_order.end(), 0);
    auto src_order = dst_order;
    if (one_in(2)) std::shuffle(src_order.begin(), src_order.end(), random);
    if (one_in(4)) std::shuffle(dst_order.begin(), dst_order.end(), random);
    std::vector<bool> src_reversed(rank), dst_reversed(rank), repeated(rank), none(rank);
    for (int d = 0; d < rank; ++d) {
      c.reduced.push_back(one_in(2));
      src_reversed[d] = one_in(5);
      dst_reversed[d] = one_in(8);
      repeated[d] = one_in(10);
    }
    place(c.extents, src_order, one_in(3), src_reversed, repeated, c.src_strides, c.src_offset, c.src_length);
    auto kept = dst_reversed;
    for (int d = 0; d < rank; ++d) kept[d] = dst_reversed[d] && !c.reduced[d];
    place(c.extents, dst_order, one_in(4), kept, c.reduced, c.dst_strides, c.dst_offset, c.dst_length);
    std::string what = "round " + std::to_string(round) + ":";
    for (int d = 0; d < rank; ++d)
      what += std::string(c.reduced[d] ? " reduced " : " kept ") + std::to_string(c.extents[d]) + "/" +
              std::to_string(c.src_strides[d]);
    switch (random() % 13) {
      case 0: check_integers<bool>(c, random, what); break;
      case 1: check_integers<uint8_t>(c, random, what); break;
      case 2: check_integers<int8_t>(c, random, what); break;
      case 3: check_integers<int16_t>(c, random, what); break;
      case 4: check_integers<int32_t>(c, random, what); break;
      case 5: check_integers<int64_t>(c, random, what); break;
      case 6: check_integers<uint16_t>(c, random, what); break;
      case 7: check_integers<uint32_t>(c, random, what); break;
      case 8: check_integers<uint64_t>(c, random, what); break;
      case 9: check_floats<float, double>(c, random, what); break;
      case 10: check_floats<double, long double>(c, random, what); break;
      case 11: check_floats<std::complex<float>, std::complex<double>>(c, random, what); break;
      case 12: check_floats<std::complex<double>, std::complex<long double>>(c, random, what); break;
    }
    if (HasFatalFailure()) return;
  }
}

TEST(Reduce, EverySmallMatrix) {
  std::mt19937_64 random(6);
  for (int64_t rows : {1, 2, 3, 7, 8, 9, 15, 16, 17}) {
    for (int64_t columns = 1; columns < 150; columns += columns < 40 ? 1 : 7) {
      const std::string what = std::to_string(rows) + " x " + std::to_string(columns);
      for (int which = 0; which < 4; ++which) {
        const auto c = contiguous({rows, columns}, {which % 2 == 1, which / 2 == 1});
        check_integers<int8_t>(c, random, what);
        check_integers<uint32_t>(c, random, what);
        check_floats<float, double>(c, random, what);
        check_floats<std::complex<float>, std::complex<double>>(c, random, what);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Reduce, LongOnesInChunks) {
  std::mt19937_64 random(7);
  check_floats<float, double>(contiguous({1 << 20}, {true}), random, "all", "horizontal");
  check_floats<float, double>(contiguous({70000, 9}, {true, false}), random, "tall", "vertical");
  check_floats<float, double>(contiguous({3, 200001}, {false, true}), random, "wide", "horizontal");
  check_floats<double, long double>(contiguous({20, 1000, 33}, {true, true, false}), random, "two dimensions",
                                    "vertical");
  check_floats<float, double>(contiguous({300, 40, 50}, {true, false, true}), random, "first and last", "horizontal");
  check_floats<float, double>(contiguous({50000, 4}, {false, true}), random, "narrow", "vertical");
  check_integers<uint8_t>(contiguous({1 << 20}, {true}), random, "all");
  check_integers<bool>(contiguous({40000, 20}, {true, false}), random, "tall");
}

// The error of a long sum of numbers of one sign stays far below that of adding one after the other.
TEST(Reduce, LongSumsAreAccurate) {
  const int64_t count = 1 << 22;
  const std::vector<float> tenths(count, 0.1f);
  float total = 0;
  kernels::reduce(plan_of(contiguous({count}, {true}), &total, DType::kF32, tenths.data(), DType::kF32, DType::kF32,
                          false, 1));
  const double exact = static_cast<double>(0.1f) * count;
  EXPECT_LE(std::fabs(total - exact) / exact, 4 * std::numeric_limits<float>::epsilon());
}

TEST(Reduce, HalvesAreAddedInFloat) {
  const int64_t count = 3000;
  std::vector<uint16_t> halves(count), brains(count);
  for (int64_t i = 0; i < count; ++i) {
    halves[i] = static_cast<uint16_t>(0x3C00 + i % 2);           // 1 or 1 + 2^-10
    brains[i] = static_cast<uint16_t>(0x3F80 + (i % 2));         // 1 or 1 + 2^-7
  }
  const auto c = contiguous({count}, {true});
  uint16_t half = 0, brain = 0;
  float wide = 0;
  kernels::reduce(plan_of(c, &half, DType::kF16, halves.data(), DType::kF16, DType::kF16, true, 1));
  kernels::reduce(plan_of(c, &brain, DType::kBF16, brains.data(), DType::kBF16, DType::kBF16, true, 1));
  kernels::reduce(plan_of(c, &wide, DType::kF32, halves.data(), DType::kF16, DType::kF32, false, 1));
  EXPECT_EQ(half, 0x3C00);   // 1 + 2^-11 ties to even
  EXPECT_EQ(brain, 0x3F80);  // 1 + 2^-8 ties to even
  EXPECT_EQ(wide, count + count / 2 * 0x1p-10f);
}

TEST(Reduce, ConvertsBeforeAdding) {
  std::vector<double> src(2000, 1 + 0x1p-30);
  const auto c = contiguous({2000}, {true});
  float narrowed = 0;
  kernels::reduce(plan_of(c, &narrowed, DType::kF32, src.data(), DType::kF64, DType::kF32, false, 1));
  EXPECT_EQ(narrowed, 2000.0f);
  std::fill(src.begin(), src.end(), 1.75);
  int64_t whole = 0;
  kernels::reduce(plan_of(c, &whole, DType::kI64, src.data(), DType::kF64, DType::kI64, false, 1));
  EXPECT_EQ(whole, 2000);
  const std::vector<int32_t> integers(2000, 1 << 30);
  int32_t wrapped = 0;
  kernels::reduce(plan_of(c, &wrapped, DType::kI32, integers.data(), DType::kI32, DType::kI32, false, 1));
  EXPECT_EQ(wrapped, static_cast<int32_t>(static_cast<uint32_t>(uint64_t{2000} << 30)));
  double mean = 0;
  kernels::reduce(plan_of(c, &mean, DType::kF64, integers.data(), DType::kI32, DType::kF64, true, 1));
  EXPECT_EQ(mean, 0x1p30);
}

TEST(Reduce, SpecialValues) {
  for (int64_t at : {0, 5, 1023, 1024, 2999}) {
    std::vector<float> src(3000, 1.0f);
    float total = 0;
    const auto sum = [&] {
      kernels::reduce(plan_of(contiguous({3000}, {true}), &total, DType::kF32, src.data(), DType::kF32, DType::kF32,
                              false, 1));
      return total;
    };
    src[at] = NAN;
    EXPECT_TRUE(std::isnan(sum()));
    src[at] = -INFINITY;
    EXPECT_EQ(sum(), -INFINITY);
    src[(at + 100) % 3000] = INFINITY;
    EXPECT_TRUE(std::isnan(sum()));
  }
}

TEST(Reduce, NothingToAdd) {
  std::vector<float> dst(4, 77);
  const auto c = contiguous({4, 0}, {false, true});
  kernels::reduce(plan_of(c, dst.data(), DType::kF32, nullptr, DType::kF32, DType::kF32, false, 2));
  EXPECT_EQ(dst, std::vector<float>(4, 0));
  kernels::reduce(plan_of(c, dst.data(), DType::kF32, nullptr, DType::kF32, DType::kF32, true, 2));
  for (float x : dst) EXPECT_TRUE(std::isnan(x));
  int64_t total = 77;
  kernels::reduce(plan_of(contiguous({3, 0, 5}, {true, true, true}), &total, DType::kI64, nullptr, DType::kBool,
                          DType::kI64, false, 2));
  EXPECT_EQ(total, 0);
}

}  // namespace
}  // namespace flexcpu
