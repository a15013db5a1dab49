// Binary kernels against scalar loops: every op, dtype and access, random layouts, one thread and several.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "elements.h"
#include "kernels/elementwise/binary.h"

namespace flexcpu {
namespace {

using plan::BinaryOp;
using plan::ElementwiseRoute;
using namespace flexcpu::test;

constexpr BinaryOp kOps[] = {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv, BinaryOp::kAddScaled};

template <typename W>
W smith(W a, W b) {
  using R = typename W::value_type;
  const R c = b.real(), d = b.imag(), zero = 0;
  if (c == 0 && d == 0) return {a.real() / zero, a.imag() / zero};
  if (std::abs(c) >= std::abs(d)) {
    const R ratio = d / c, scale = 1 / (c + d * ratio);
    return {(a.real() + a.imag() * ratio) * scale, (a.imag() - a.real() * ratio) * scale};
  }
  const R ratio = c / d, scale = 1 / (d + c * ratio);
  return {(a.imag() + a.real() * ratio) * scale, (a.imag() * ratio - a.real()) * scale};
}

template <typename W>
W multiply(W a, W b) {
  if constexpr (is_std_complex<W>) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  } else if constexpr (std::is_integral_v<W>) {
    return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

// Every real operation rounded to f16.
std::complex<float> scaled_sum_of_c32(std::complex<float> a, std::complex<float> b, std::complex<float> alpha) {
  const auto product = [](float x, float y) { return static_cast<float>(F16(x * y)); };
  const float real = F16(product(alpha.real(), b.real()) - product(alpha.imag(), b.imag()));
  const float imaginary = F16(product(alpha.real(), b.imag()) + product(alpha.imag(), b.real()));
  return {a.real() + real, a.imag() + imaginary};
}

template <typename W>
W compute(BinaryOp op, W a, W b, W alpha) {
  if constexpr (std::is_same_v<W, bool>) {
    return op == BinaryOp::kAdd ? a || b : a && b;
  } else if constexpr (std::is_integral_v<W>) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    if (op == BinaryOp::kAdd) return static_cast<W>(x + y);
    if (op == BinaryOp::kSub) return static_cast<W>(x - y);
    if (op == BinaryOp::kMul) return multiply(a, b);
    return static_cast<W>(x + static_cast<uint64_t>(alpha) * y);
  } else {
    switch (op) {
      case BinaryOp::kAdd: return a + b;
      case BinaryOp::kSub: return a - b;
      case BinaryOp::kMul: return multiply(a, b);
      case BinaryOp::kAddScaled: return a + multiply(alpha, b);
      case BinaryOp::kDiv:
        if constexpr (is_std_complex<W>) return smith(a, b);
        else return a / b;
    }
  }
  return a;
}

template <typename To, typename From>
To convert(From x) {
  const auto w = widened(x);
  using W = decltype(w);
  if constexpr (std::is_same_v<To, C32> || is_std_complex<To>) {
    if constexpr (is_std_complex<std::remove_const_t<W>>) {
      if constexpr (std::is_same_v<To, C32>) {
        return C32{F16(static_cast<float>(w.real())), F16(static_cast<float>(w.imag()))};
      } else {
        return To(w);
      }
    } else if constexpr (std::is_same_v<To, C32>) {
      return C32{F16(static_cast<float>(w)), F16(0.f)};
    } else {
      return To(static_cast<typename To::value_type>(w), 0);
    }
  } else if constexpr (is_std_complex<std::remove_const_t<W>>) {
    return static_cast<To>(w.real());
  } else if constexpr (std::is_same_v<To, F16> || std::is_same_v<To, BF16>) {
    return To(static_cast<float>(w));
  } else {
    return static_cast<To>(w);
  }
}

struct Layout {
  std::vector<int64_t> strides;
  int64_t offset = 0, length = 0;  // of the first element; of the storage
};

// A storage just large enough for `sizes` with these strides.
Layout layout_of(const std::vector<int64_t>& sizes, std::vector<int64_t> strides) {
  Layout layout{std::move(strides)};
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return layout;
    const int64_t reach = (sizes[d] - 1) * layout.strides[d];
    (reach < 0 ? layout.offset : last) += std::abs(reach);
  }
  layout.length = layout.offset + last + 1;
  return layout;
}

// Dimensions in any order, some reversed, with gaps, and for inputs some repeated.
Layout random_layout(const std::vector<int64_t>& sizes, bool repeats, std::mt19937& random) {
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (random() % 2) std::shuffle(order.begin(), order.end(), random);
  std::vector<int64_t> strides(sizes.size());
  int64_t next = random() % 4 ? 1 : 2;
  for (int i = static_cast<int>(order.size()) - 1; i >= 0; --i) {
    const int d = order[i];
    if (repeats && random() % 5 == 0) continue;
    strides[d] = random() % 5 ? next : -next;
    next *= sizes[d] + (random() % 4 ? 0 : 1);
  }
  return layout_of(sizes, strides);
}

int64_t index_of(const std::vector<int64_t>& sizes, const Layout& layout, int64_t linear) {
  int64_t index = layout.offset;
  for (int d = static_cast<int>(sizes.size()) - 1; d >= 0; --d) {
    index += linear % sizes[d] * layout.strides[d];
    linear /= sizes[d];
  }
  return index;
}

struct Case {
  BinaryOp op;
  std::vector<int64_t> sizes;
  Layout layouts[3];
  int threads = 1;
  bool in_place = false;
  bool exact = false;  // any numbers instead of small ones

  int64_t numel() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }
};

std::string describe(const Case& c) {
  std::string text = "op " + std::to_string(static_cast<int>(c.op)) + " threads " + std::to_string(c.threads) + " sizes";
  for (int64_t s : c.sizes) text += " " + std::to_string(s);
  for (const Layout& layout : c.layouts) {
    text += " |";
    for (int64_t s : layout.strides) text += " " + std::to_string(s);
  }
  return text;
}

template <DType kDst, DType kA, DType kB, DType kCompute>
plan::BinaryPlan check(const Case& c, std::mt19937& random) {
  using C = Element<kCompute>;
  using Dst = Element<kDst>;
  using A = Element<kA>;
  using B = Element<kB>;
  // Not std::vector<bool>.
  const auto dst = std::make_unique<Dst[]>(c.layouts[0].length + 1);
  const auto a = std::make_unique<A[]>(c.layouts[1].length + 1);
  const auto b = std::make_unique<B[]>(c.layouts[2].length + 1);
  const auto fill = [&]<typename T>(T* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = c.exact ? any_number<T>(random) : small_number<T>(random);
  };
  fill(dst.get(), c.layouts[0].length + 1);
  fill(a.get(), c.layouts[1].length + 1);
  fill(b.get(), c.layouts[2].length + 1);
  const C alpha = small_number<C>(random);

  const auto want = std::make_unique<Dst[]>(c.layouts[0].length + 1);
  std::copy_n(dst.get(), c.layouts[0].length + 1, want.get());
  for (int64_t i = 0; i < c.numel(); ++i) {
    const int64_t at = index_of(c.sizes, c.layouts[0], i);
    C x;
    if constexpr (kDst == kA) {
      x = convert<C>(c.in_place ? dst[at] : a[index_of(c.sizes, c.layouts[1], i)]);
    } else {
      x = convert<C>(a[index_of(c.sizes, c.layouts[1], i)]);
    }
    const C y = convert<C>(b[index_of(c.sizes, c.layouts[2], i)]);
    auto z = compute(c.op, widened(x), widened(y), widened(alpha));
    if constexpr (kCompute == DType::kC32)
      if (c.op == BinaryOp::kAddScaled) z = scaled_sum_of_c32(widened(x), widened(y), widened(alpha));
    want[at] = convert<Dst>(narrowed<C>(z));
  }

  plan::BinaryPlan plan;
  plan.op = c.op;
  plan.alpha = Value::of(widened(alpha));
  plan.elements.compute = kCompute;
  plan.elements.dtypes = {kDst, kA, kB};
  auto& nest = plan.elements.nest;
  nest.rank = static_cast<int>(c.sizes.size());
  std::copy(c.sizes.begin(), c.sizes.end(), nest.extents.begin());
  const void* inputs[] = {dst.get() + c.layouts[0].offset, a.get() + c.layouts[1].offset, b.get() + c.layouts[2].offset};
  if (c.in_place) inputs[1] = inputs[0];
  for (int n = 0; n < 3; ++n) {
    const Layout& layout = c.layouts[c.in_place && n == 1 ? 0 : n];
    layout::set_operand(nest, n, inputs[n], c.sizes, layout.strides, size_of(plan.elements.dtypes[n]));
  }
  plan_elementwise(plan.elements, c.threads);
  kernels::binary(plan);

  for (int64_t i = 0; i <= c.layouts[0].length; ++i) {
    if (!same(dst[i], want[i])) {
      ADD_FAILURE() << name_of(kDst) << " " << name_of(kCompute) << " element " << i << " of " << describe(c) << " route "
                    << plan::name_of(plan.elements.route);
      break;
    }
  }
  return plan;
}

Case contiguous_case(BinaryOp op, std::vector<int64_t> sizes) {
  Case c{op, std::move(sizes), {}};
  std::vector<int64_t> strides(c.sizes.size());
  int64_t next = 1;
  for (int d = static_cast<int>(strides.size()) - 1; d >= 0; next *= c.sizes[d--]) strides[d] = next;
  for (Layout& layout : c.layouts) layout = layout_of(c.sizes, strides);
  return c;
}

class Binary : public testing::TestWithParam<DType> {
 protected:
  template <typename F>
  void for_each_op(F f) {
    for (BinaryOp op : kOps)
      if (!plan::refuse_binary(op, GetParam())) f(op);
  }

  plan::BinaryPlan run(const Case& c) {
    return with_dtype(GetParam(), [&]<DType kDType>() { return check<kDType, kDType, kDType, kDType>(c, random_); });
  }

  std::mt19937 random_{7};
};

INSTANTIATE_TEST_SUITE_P(DTypes, Binary, testing::ValuesIn(kAllDTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Binary, EveryLengthOfEveryForm) {
  for_each_op([&](BinaryOp op) {
    for (int64_t n = 0; n <= 140; ++n) {
      for (int64_t stride_a : {1, 0, 2, -1}) {
        for (int64_t stride_b : {1, 0, -1}) {
          Case c{op, {n}, {layout_of({n}, {1}), layout_of({n}, {stride_a}), layout_of({n}, {stride_b})}};
          run(c);
        }
      }
    }
  });
}

TEST_P(Binary, AnyNumbers) {
  for_each_op([&](BinaryOp op) {
    // Fused and separate scaled additions differ on these.
    if (op == BinaryOp::kAddScaled && is_floating(GetParam())) return;
    Case c = contiguous_case(op, {5000});
    c.exact = true;
    run(c);
  });
}

TEST_P(Binary, RandomLayouts) {
  for_each_op([&](BinaryOp op) {
    for (int i = 0; i < 150; ++i) {
      Case c{op, {}, {}};
      const int rank = static_cast<int>(random_() % 5);
      for (int d = 0; d < rank; ++d) c.sizes.push_back(random_() % 12 ? 1 + random_() % (rank < 3 ? 90 : 14) : 0);
      c.in_place = random_() % 4 == 0;
      c.threads = 1 + static_cast<int>(random_() % 2);
      for (int n = 0; n < 3; ++n) c.layouts[n] = random_layout(c.sizes, n > 0, random_);
      run(c);
      if (HasFailure()) return;
    }
  });
}

TEST_P(Binary, ShortRows) {
  for_each_op([&](BinaryOp op) {
    for (int i = 0; i < 10; ++i) {
      Case c{op, {1 + static_cast<int64_t>(random_() % 3), 300 + static_cast<int64_t>(random_() % 1000),
                  1 + static_cast<int64_t>(random_() % 15)}, {}};
      c.in_place = random_() % 4 == 0;
      for (int n = 0; n < 3; ++n) c.layouts[n] = random_layout(c.sizes, n > 0, random_);
      run(c);
      if (HasFailure()) return;
    }
  });
}

TEST_P(Binary, ThreadsCutAnyDimension) {
  const std::vector<int64_t> shapes[] = {{100003}, {3, 40001}, {40001, 3}, {2, 200, 401}, {40, 30, 7, 13}};
  for_each_op([&](BinaryOp op) {
    for (const auto& sizes : shapes) {
      Case c = contiguous_case(op, sizes);
      c.threads = 3;
      c.layouts[2] = random_layout(sizes, true, random_);
      EXPECT_EQ(run(c).elements.team, 3);
    }
  });
}

// Conversions on the way in and out: inputs and result of any dtype whose numbers the compute dtype can take.
template <DType kCompute>
void check_mixed(BinaryOp op, std::mt19937& random) {
  Case c{op, {33, 150}, {}};
  const auto pick = [&] { return random_layout(c.sizes, true, random); };
  const auto one = [&]<DType kDst, DType kA, DType kB>() {
    c.layouts[0] = random_layout(c.sizes, false, random);
    c.layouts[1] = pick();
    c.layouts[2] = pick();
    c.in_place = kDst == kA && random() % 2;
    EXPECT_GE(static_cast<int>((check<kDst, kA, kB, kCompute>(c, random).elements.route)),
              static_cast<int>(ElementwiseRoute::kTiles));
  };
  if constexpr (is_complex(kCompute)) {
    one.template operator()<kCompute, DType::kF32, kCompute>();
    one.template operator()<DType::kC64, DType::kI16, DType::kC32>();
    one.template operator()<DType::kC128, DType::kC64, DType::kF16>();
  } else if constexpr (is_floating(kCompute)) {
    one.template operator()<kCompute, DType::kI64, kCompute>();
    one.template operator()<DType::kBF16, DType::kBF16, DType::kF32>();
    one.template operator()<DType::kF64, DType::kBool, DType::kU32>();
    one.template operator()<DType::kF16, kCompute, DType::kF64>();
  } else if constexpr (kCompute != DType::kBool) {
    one.template operator()<kCompute, DType::kBool, kCompute>();
    one.template operator()<DType::kI8, DType::kI8, DType::kI64>();
    one.template operator()<DType::kF32, DType::kU8, DType::kI16>();
  } else {
    one.template operator()<DType::kF32, DType::kBool, DType::kBool>();
  }
}

TEST_P(Binary, MixedDTypes) {
  for_each_op([&](BinaryOp op) {
    for (int i = 0; i < 5; ++i)
      with_dtype(GetParam(), [&]<DType kDType>() { check_mixed<kDType>(op, random_); });
  });
}

TEST(BinaryWideScalar, IsNotRoundedFirst) {
  const float scalar = 0.1f;  // neither an f16 nor a bf16
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (BinaryOp op : {BinaryOp::kMul, BinaryOp::kDiv}) {
      for (int64_t n : {1, 5, 100, 5000}) {
        const auto run = [&]<typename T>(T) {
          std::mt19937 random(3);
          std::vector<T> a(n), dst(n);
          for (T& x : a) x = any_number<T>(random);
          plan::BinaryPlan plan;
          plan.op = op;
          plan.wide_scalar = true;
          plan.elements.compute = dtype;
          plan.elements.dtypes = {dtype, dtype, DType::kF32};
          auto& nest = plan.elements.nest;
          nest.rank = 1;
          nest.extents[0] = n;
          const int64_t one = 1;
          layout::set_operand(nest, 0, dst.data(), {&n, 1}, {&one, 1}, 2);
          layout::set_operand(nest, 1, a.data(), {&n, 1}, {&one, 1}, 2);
          layout::set_operand(nest, 2, &scalar, {}, {}, 4);
          plan_elementwise(plan.elements, 1, 2);
          EXPECT_EQ(plan.elements.route, ElementwiseRoute::kContiguous);
          kernels::binary(plan);
          for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(same(dst[i], T(compute<float>(op, a[i], scalar, 0)))) << i;
        };
        dtype == DType::kF16 ? run(F16()) : run(BF16());
      }
    }
  }
}

TEST(BinaryPlan, Routes) {
  const auto route = [](std::vector<int64_t> sizes, std::vector<int64_t> a, std::vector<int64_t> b) {
    Case c = contiguous_case(BinaryOp::kAdd, sizes);
    c.layouts[1] = layout_of(sizes, std::move(a));
    c.layouts[2] = layout_of(sizes, std::move(b));
    std::mt19937 random(1);
    const auto plan = check<DType::kF32, DType::kF32, DType::kF32, DType::kF32>(c, random).elements;
    EXPECT_EQ(plan.refusal != nullptr, plan.route >= ElementwiseRoute::kShortRows);
    return plan.route;
  };
  EXPECT_EQ(route({64, 64}, {64, 1}, {64, 1}), ElementwiseRoute::kContiguous);
  EXPECT_EQ(route({64, 64}, {0, 0}, {64, 1}), ElementwiseRoute::kContiguous);
  EXPECT_EQ(route({64, 64}, {64, 1}, {0, 1}), ElementwiseRoute::kRows);
  EXPECT_EQ(route({64, 64}, {1, 0}, {64, 1}), ElementwiseRoute::kRows);
  EXPECT_EQ(route({64, 64}, {80, 1}, {64, 1}), ElementwiseRoute::kRows);
  EXPECT_EQ(route({64, 64}, {-64, -1}, {64, 1}), ElementwiseRoute::kTiles);
  EXPECT_EQ(route({64, 64}, {128, 2}, {64, 1}), ElementwiseRoute::kTiles);
  EXPECT_EQ(route({64, 64}, {0, 0}, {0, 0}), ElementwiseRoute::kTiles);
  EXPECT_EQ(route({64, 64}, {1, 64}, {64, 1}), ElementwiseRoute::kTransposed);
  EXPECT_EQ(route({20, 19, 18}, {342, 1, 19}, {342, 18, 1}), ElementwiseRoute::kTransposed);
  EXPECT_EQ(route({5000, 3}, {3, 1}, {0, 1}), ElementwiseRoute::kShortRows);
  EXPECT_EQ(route({5000, 3}, {4, 1}, {0, 0}), ElementwiseRoute::kShortRows);
  EXPECT_EQ(route({5000, 3}, {1, 0}, {-3, -1}), ElementwiseRoute::kShortRows);
  EXPECT_EQ(route({4, 3}, {3, 1}, {0, 1}), ElementwiseRoute::kRows);
}

TEST(BinaryPlan, Refusals) {
  EXPECT_EQ(plan::refuse_binary(BinaryOp::kMul, DType::kU16), nullptr);
  EXPECT_NE(plan::refuse_binary(BinaryOp::kAdd, DType::kU16), nullptr);
  EXPECT_NE(plan::refuse_binary(BinaryOp::kSub, DType::kBool), nullptr);
  EXPECT_NE(plan::refuse_binary(BinaryOp::kDiv, DType::kI32), nullptr);
  EXPECT_NE(plan::refuse_binary(BinaryOp::kDiv, DType::kC32), nullptr);
  EXPECT_NE(plan::refuse_binary(BinaryOp::kMul, DType::kOther), nullptr);
}

}  // namespace
}  // namespace flexcpu
