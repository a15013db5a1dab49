#include "layout/result_strides.h"

#include <algorithm>

namespace flexcpu::layout {
namespace {

// Whether a tensor's strides are those that packing its dimensions in `order`, innermost first, gives. Dimensions of
// extent 1 may have any stride.
template <typename Order>
bool is_packed(Shape shape, const Order& order) {
  int64_t expected = 1;
  for (int d : order) {
    if (shape.sizes[d] == 1) continue;
    if (shape.strides[d] != expected) return false;
    expected *= shape.sizes[d];
  }
  return true;
}

bool is_channels_last(Shape shape) {
  return shape.sizes.size() == 4 && is_packed(shape, std::array{1, 3, 2, 0});
}

bool is_dense(Shape shape) {
  const int rank = static_cast<int>(shape.sizes.size());
  if (rank == 1) return shape.sizes[0] < 2 || shape.strides[0] == 1;
  std::array<int, kMaxRank> order;
  for (int d = 0; d < rank; ++d) order[d] = d;
  std::sort(order.begin(), order.begin() + rank, [&](int a, int b) {
    if (shape.sizes[a] < 2) return false;
    return shape.sizes[b] < 2 || shape.strides[a] < shape.strides[b];
  });
  int64_t expected = 1;
  for (int i = 0; i < rank; ++i) {
    const int d = order[i];
    if (shape.sizes[d] < 2) return true;
    if (shape.strides[d] != expected) return false;
    expected *= shape.sizes[d];
  }
  return true;
}

template <typename Order>
void pack(Extents sizes, const Order& order, bool keep_empty, std::span<int64_t> strides) {
  int64_t next = 1;
  for (int d : order) {
    strides[d] = next;
    next *= keep_empty ? sizes[d] : std::max<int64_t>(sizes[d], 1);
  }
}

// Positive: dimension `a` belongs outside dimension `b`; negative: inside; 0: the operands do not tell.
int compare(Extents sizes, std::span<const Shape> operands, int a, int b) {
  const int rank = static_cast<int>(sizes.size());
  for (const Shape& operand : operands) {
    const int missing = rank - static_cast<int>(operand.sizes.size());
    const auto stride = [&](int d) -> int64_t {
      const int s = d - missing;
      return s < 0 || (operand.sizes[s] == 1 && sizes[d] != 1) ? 0 : operand.strides[s];
    };
    const int64_t stride_a = stride(a), stride_b = stride(b);
    if (stride_a == 0 || stride_b == 0) continue;
    if (stride_a != stride_b) return stride_a > stride_b ? 1 : -1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

}  // namespace

bool is_contiguous(Shape shape) {
  int64_t expected = 1;
  bool packed = true;
  for (int d = static_cast<int>(shape.sizes.size()) - 1; d >= 0; --d) {
    if (shape.sizes[d] == 0) return true;
    if (shape.sizes[d] == 1) continue;
    packed = packed && shape.strides[d] == expected;
    expected *= shape.sizes[d];
  }
  return packed;
}

void result_strides(Extents sizes, std::span<const Shape> operands, std::span<int64_t> strides) {
  const int rank = static_cast<int>(sizes.size());
  std::array<int, kMaxRank> buffer;
  const std::span<int> order(buffer.data(), rank);  // innermost first
  for (int i = 0; i < rank; ++i) order[i] = rank - 1 - i;

  const bool same_shape = std::all_of(operands.begin(), operands.end(), [&](const Shape& operand) {
    return std::equal(operand.sizes.begin(), operand.sizes.end(), sizes.begin(), sizes.end());
  });
  if (same_shape) {
    if (std::all_of(operands.begin(), operands.end(), is_contiguous)) return pack(sizes, order, false, strides);
    if (std::all_of(operands.begin(), operands.end(), is_channels_last))
      return pack(sizes, std::array{1, 3, 2, 0}, false, strides);
    const Strides first = operands[0].strides;
    const bool same_layout = std::all_of(operands.begin(), operands.end(), [&](const Shape& operand) {
      return is_dense(operand) && std::equal(first.begin(), first.end(), operand.strides.begin());
    });
    if (same_layout) {
      std::copy(first.begin(), first.end(), strides.begin());
      return;
    }
  }

  // An insertion sort that leaves alone what the operands do not order; the comparison is not transitive, so the steps
  // themselves are part of the rule.
  for (int i = 1; i < rank; ++i) {
    int moving = i;
    for (int j = i - 1; j >= 0; --j) {
      const int comparison = compare(sizes, operands, order[j], order[moving]);
      if (comparison < 0) break;
      if (comparison > 0) {
        std::swap(order[j], order[moving]);
        moving = j;
      }
    }
  }
  bool row_major = true;
  for (int i = 0; i < rank; ++i) row_major = row_major && order[i] == rank - 1 - i;
  pack(sizes, order, !row_major, strides);
}

}  // namespace flexcpu::layout
