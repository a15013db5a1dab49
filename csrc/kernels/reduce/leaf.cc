#include "kernels/reduce/leaf.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce/leaf.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/compat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flexcpu::HWY_NAMESPACE {

using kernels::AddLeaf;
using kernels::Leaf;

// A bool in memory: any byte but zero is true.
struct Bool {
  uint8_t byte;
};

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, hwy::float16_t> || std::is_same_v<T, hwy::bfloat16_t>;

// How values of T in memory are added: the lanes that hold them within a leaf, and the accumulators. A leaf has so few
// values that the sum of those of 8 and 16 bits fits 32-bit lanes.
template <typename T>
struct Sum {
  using Lane = std::conditional_t<
      sizeof(T) <= 2, int32_t,
      std::conditional_t<std::is_same_v<T, uint32_t>, uint64_t, std::conditional_t<sizeof(T) == 4, int64_t, T>>>;
  using Accumulator = uint64_t;  // unsigned, since it may wrap
};
template <typename T>
  requires(std::is_floating_point_v<T> || kIsHalf<T>)
struct Sum<T> {
  using Lane = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using Accumulator = double;
};

// Lanes(d) values, or the first n of them and zeros.
template <class D, typename T, typename... Count>
HWY_INLINE hn::Vec<D> load_lanes(D d, const T* p, Count... n) {
  if constexpr (std::is_same_v<T, Bool>) {
    const hn::Rebind<uint8_t, D> bytes;
    const auto v = LoadAs(bytes, reinterpret_cast<const uint8_t*>(p), n...);
    return hn::PromoteTo(d, hn::Min(v, hn::Set(bytes, 1)));
  } else if constexpr (kIsHalf<T> || sizeof(T) == sizeof(hn::TFromD<D>)) {
    return LoadAs(d, p, n...);
  } else {
    return hn::PromoteTo(d, LoadAs(hn::Rebind<T, D>(), p, n...));
  }
}

// accumulators[i] += lane i.
template <class D, typename A>
HWY_INLINE void add_lanes(D d, hn::Vec<D> v, A* accumulators) {
  if constexpr (sizeof(A) == sizeof(hn::TFromD<D>)) {
    const hn::Rebind<A, D> da;
    hn::StoreU(hn::Add(hn::LoadU(da, accumulators), hn::BitCast(da, v)), da, accumulators);
  } else {
    const hn::Half<D> half;
    const hn::Rebind<std::conditional_t<std::is_same_v<A, double>, double, int64_t>, decltype(half)> wide;
    add_lanes(wide, hn::PromoteTo(wide, hn::LowerHalf(half, v)), accumulators);
    add_lanes(wide, hn::PromoteTo(wide, hn::UpperHalf(half, v)), accumulators + hn::Lanes(wide));
  }
}

// For the first n lanes.
template <class D, typename A>
HWY_INLINE void add_lanes(D d, hn::Vec<D> v, A* accumulators, int64_t n) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (int64_t i = 0; i < n; ++i) accumulators[i] += static_cast<A>(lanes[i]);
}

// The sum of one vector from each of kRows rows.
template <int kRows, class D, typename T, typename... Count>
HWY_INLINE hn::Vec<D> add_rows(D d, const T* src, int64_t stride, Count... n) {
  if constexpr (kRows == 1) {
    return load_lanes(d, src, n...);
  } else {
    const auto upper = add_rows<kRows / 2>(d, src, stride, n...);
    const auto* lower = reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(src) + kRows / 2 * stride);
    return hn::Add(upper, add_rows<kRows / 2>(d, lower, stride, n...));
  }
}

// The sum of one vector from every row, eight rows at a time.
template <class D, typename T, typename... Count>
HWY_INLINE hn::Vec<D> add_all_rows(D d, const T* src, const Leaf& leaf, Count... n) {
  const auto* row = reinterpret_cast<const std::byte*>(src);
  const auto add = [&]<int kRows>(hn::Vec<D> sum) HWY_ATTR {
    sum = hn::Add(sum, add_rows<kRows>(d, reinterpret_cast<const T*>(row), leaf.row_stride, n...));
    row += kRows * leaf.row_stride;
    return sum;
  };
  auto sum = hn::Zero(d);
  for (int64_t left = leaf.rows; left >= 8; left -= 8) sum = add.template operator()<8>(sum);
  if (leaf.rows & 4) sum = add.template operator()<4>(sum);
  if (leaf.rows & 2) sum = add.template operator()<2>(sum);
  if (leaf.rows & 1) sum = add.template operator()<1>(sum);
  return sum;
}

template <typename T>
void add_columns(void* accumulators, const Leaf& leaf) {
  const hn::ScalableTag<typename Sum<T>::Lane> d;
  const int64_t lanes = hn::Lanes(d);
  auto* sums = static_cast<typename Sum<T>::Accumulator*>(accumulators);
  const auto* src = reinterpret_cast<const T*>(leaf.src);
  int64_t c = 0;
  for (; c + lanes <= leaf.columns; c += lanes) add_lanes(d, add_all_rows(d, src + c, leaf), sums + c);
  const int64_t left = leaf.columns - c;
  if (left) add_lanes(d, add_all_rows(d, src + c, leaf, left), sums + c, left);
}

template <typename T, int kParts>
HWY_INLINE void add_piece(void* accumulators, const Leaf& leaf) {
  using Accumulator = typename Sum<T>::Accumulator;
  const hn::ScalableTag<typename Sum<T>::Lane> d;
  const int64_t lanes = hn::Lanes(d);
  constexpr int n = 8;
  hn::Vec<decltype(d)> sums[n];
  HWY_UNROLL(8)
  for (int k = 0; k < n; ++k) sums[k] = hn::Zero(d);
  for (int64_t r = 0; r < leaf.rows; ++r) {
    const auto* src = reinterpret_cast<const T*>(leaf.src + r * leaf.row_stride);
    int64_t left = leaf.columns;
    for (; left >= n * lanes; left -= n * lanes, src += n * lanes) {
      HWY_UNROLL(8)
      for (int k = 0; k < n; ++k) sums[k] = hn::Add(sums[k], load_lanes(d, src + k * lanes));
    }
    HWY_UNROLL(8)
    for (int k = 0; k < n - 1; ++k) {
      if (left < lanes) break;
      sums[k] = hn::Add(sums[k], load_lanes(d, src));
      left -= lanes, src += lanes;
    }
    if (left) sums[n - 1] = hn::Add(sums[n - 1], load_lanes(d, src, left));
  }
  HWY_UNROLL(3)
  for (int half = n / 2; half > 0; half /= 2) {
    HWY_UNROLL(4)
    for (int k = 0; k < half; ++k) sums[k] = hn::Add(sums[k], sums[k + half]);
  }
  auto* totals = static_cast<Accumulator*>(accumulators);
  using Lane = typename Sum<T>::Lane;
  // GCC adds 64-bit lanes as signed numbers, which must not wrap.
  constexpr bool may_wrap = std::is_integral_v<Lane> && sizeof(Lane) == 8;
  if constexpr (kParts == 1 && !may_wrap) {
    totals[0] += static_cast<Accumulator>(hn::GetLane(hn::SumOfLanes(d, sums[0])));
  } else {
    HWY_ALIGN Lane lane[hn::MaxLanes(d)];
    hn::Store(sums[0], d, lane);
    for (int64_t half = lanes / 2; half >= kParts; half /= 2)
      for (int64_t i = 0; i < half; ++i) lane[i] += lane[i + half];
    for (int part = 0; part < kParts; ++part) totals[part] += static_cast<Accumulator>(lane[part]);
  }
}

// Pieces whose chains of additions have 16 links in each row.
template <typename T, int kParts>
void add_all(void* accumulators, const Leaf& leaf) {
  const hn::ScalableTag<typename Sum<T>::Lane> d;
  const int64_t piece = 16 * 8 * hn::Lanes(d);
  for (int64_t c = 0; c < leaf.columns; c += piece)
    add_piece<T, kParts>(accumulators, {leaf.src + c * sizeof(T), leaf.row_stride, leaf.rows,
                                        HWY_MIN(piece, leaf.columns - c)});
}

template <typename T>
AddLeaf total_adder_of(bool in_pairs) {
  if constexpr (std::is_floating_point_v<T> || kIsHalf<T>) {
    if (in_pairs) return add_all<T, 2>;
  }
  return add_all<T, 1>;
}

AddLeaf column_adder(DType real) {
  switch (real) {
    case DType::kBool: return add_columns<Bool>;
    case DType::kU8: return add_columns<uint8_t>;
    case DType::kI8: return add_columns<int8_t>;
    case DType::kI16: return add_columns<int16_t>;
    case DType::kI32: return add_columns<int32_t>;
    case DType::kU16: return add_columns<uint16_t>;
    case DType::kU32: return add_columns<uint32_t>;
    case DType::kI64:
    case DType::kU64: return add_columns<uint64_t>;
    case DType::kF16: return add_columns<hwy::float16_t>;
    case DType::kBF16: return add_columns<hwy::bfloat16_t>;
    case DType::kF32: return add_columns<float>;
    case DType::kF64: return add_columns<double>;
    default: return nullptr;
  }
}

AddLeaf total_adder(DType real, bool in_pairs) {
  switch (real) {
    case DType::kBool: return total_adder_of<Bool>(in_pairs);
    case DType::kU8: return total_adder_of<uint8_t>(in_pairs);
    case DType::kI8: return total_adder_of<int8_t>(in_pairs);
    case DType::kI16: return total_adder_of<int16_t>(in_pairs);
    case DType::kI32: return total_adder_of<int32_t>(in_pairs);
    case DType::kU16: return total_adder_of<uint16_t>(in_pairs);
    case DType::kU32: return total_adder_of<uint32_t>(in_pairs);
    case DType::kI64:
    case DType::kU64: return total_adder_of<uint64_t>(in_pairs);
    case DType::kF16: return total_adder_of<hwy::float16_t>(in_pairs);
    case DType::kBF16: return total_adder_of<hwy::bfloat16_t>(in_pairs);
    case DType::kF32: return total_adder_of<float>(in_pairs);
    case DType::kF64: return total_adder_of<double>(in_pairs);
    default: return nullptr;
  }
}

}  // namespace flexcpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flexcpu {
namespace {
HWY_EXPORT(column_adder);
HWY_EXPORT(total_adder);
}  // namespace

namespace kernels {

AddLeaf column_adder(DType real) { return HWY_DYNAMIC_DISPATCH(flexcpu::column_adder)(real); }
AddLeaf total_adder(DType real, bool in_pairs) { return HWY_DYNAMIC_DISPATCH(flexcpu::total_adder)(real, in_pairs); }

}  // namespace kernels
}  // namespace flexcpu
#endif  // HWY_ONCE
