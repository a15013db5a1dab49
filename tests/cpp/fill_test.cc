// The fill kernel against scalar loops, and that it touches nothing else.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/fill/fill.h"

namespace flexcpu {
namespace {

// Fills a view into a noise buffer and compares all of it with a scalar loop's.
void check(int64_t size, std::vector<int64_t> sizes, std::vector<int64_t> strides, bool uniform, int threads = 1) {
  std::mt19937 random(5);
  int64_t low = 0, high = 0, numel = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    numel *= sizes[d];
    if (sizes[d] > 0) (strides[d] < 0 ? low : high) += (sizes[d] - 1) * strides[d];
  }
  const int64_t length = high - low + 3;
  std::vector<std::byte> got(length * size);
  for (std::byte& b : got) b = static_cast<std::byte>(random());
  std::vector<std::byte> want = got;

  Value value;
  for (int64_t i = 0; i < size; ++i) value.bytes[i] = static_cast<std::byte>(uniform ? 0x5A : 0x10 + i);
  layout::LoopNest<1> nest;
  nest.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), nest.extents.begin());
  layout::set_operand(nest, 0, got.data() + (1 - low) * size, sizes, strides, size);
  kernels::fill(nest, value, threads);

  for (int64_t i = 0; i < numel; ++i) {
    int64_t at = 1 - low, rest = i;
    for (int d = static_cast<int>(sizes.size()) - 1; d >= 0; rest /= sizes[d], --d) at += rest % sizes[d] * strides[d];
    std::memcpy(want.data() + at * size, value.bytes.data(), size);
  }
  ASSERT_EQ(got, want) << "size " << size << " numel " << numel << " threads " << threads;
}

class Fill : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Fill, testing::Values(1, 2, 4, 8, 16));

TEST_P(Fill, EveryLength) {
  for (int64_t n = 0; n < 200; ++n)
    for (int64_t stride : {1, -1, 3})
      for (bool uniform : {false, true}) check(GetParam(), {n}, {stride}, uniform);
}

TEST_P(Fill, Views) {
  for (bool uniform : {false, true}) {
    check(GetParam(), {}, {}, uniform);
    check(GetParam(), {7, 1, 9}, {9, 9, 1}, uniform);
    check(GetParam(), {7, 9}, {10, 1}, uniform);
    check(GetParam(), {7, 9}, {1, 7}, uniform);
    check(GetParam(), {7, 9}, {1, 8}, uniform);
    check(GetParam(), {7, 9}, {-20, 2}, uniform);
    check(GetParam(), {3, 4, 5, 6}, {1, 200, -3, 20}, uniform);
    check(GetParam(), {3, 0, 5}, {1, 1, 1}, uniform);
  }
}

TEST_P(Fill, Threads) {
  for (bool uniform : {false, true}) {
    check(GetParam(), {200003}, {1}, uniform, 3);
    check(GetParam(), {2, 70001}, {70002, 1}, uniform, 3);
    check(GetParam(), {70001, 3}, {4, 1}, uniform, 2);
  }
}

}  // namespace
}  // namespace flexcpu
