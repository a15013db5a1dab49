// Collapsing, cutting and walking loop nests keeps the set of visited element tuples; result strides are PyTorch's.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "layout/loop_nest.h"
#include "layout/result_strides.h"

namespace flexcpu::layout {
namespace {

using Tuple = std::array<int64_t, 3>;  // byte offsets of the three operands

LoopNest<3> random_nest(std::mt19937& random) {
  LoopNest<3> nest;
  nest.rank = static_cast<int>(random() % 6);
  for (int d = 0; d < nest.rank; ++d) nest.extents[d] = random() % 10 ? 1 + random() % 4 : 0;
  for (int n = 0; n < 3; ++n) {
    nest.element_size[n] = 1 << random() % 4;
    int64_t stride = 1;
    std::vector<int> order(nest.rank);
    for (int d = 0; d < nest.rank; ++d) order[d] = nest.rank - 1 - d;
    if (random() % 2) std::shuffle(order.begin(), order.end(), random);
    for (int d : order) {
      nest.strides[n][d] = (n > 0 && random() % 4 == 0 ? 0 : random() % 4 ? stride : -stride);
      stride *= nest.extents[d] + random() % 2;
    }
  }
  return nest;
}

std::vector<Tuple> tuples_of(const LoopNest<3>& nest) {
  std::vector<Tuple> tuples;
  for (int64_t i = 0; i < nest.numel(); ++i) {
    Tuple tuple;
    for (int n = 0; n < 3; ++n) tuple[n] = reinterpret_cast<int64_t>(nest.data[n]);
    for (int64_t d = nest.rank - 1, rest = i; d >= 0; rest /= nest.extents[d], --d)
      for (int n = 0; n < 3; ++n) tuple[n] += rest % nest.extents[d] * nest.strides[n][d] * nest.element_size[n];
    tuples.push_back(tuple);
  }
  std::sort(tuples.begin(), tuples.end());
  return tuples;
}

std::vector<Tuple> walked(const LoopNest<3>& nest) {
  std::vector<Tuple> tuples;
  const Block<3> block = inner_block(nest);
  for_each_block(nest, [&](const std::array<std::byte*, 3>& data) {
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t c = 0; c < block.columns; ++c) {
        Tuple tuple;
        for (int n = 0; n < 3; ++n) {
          const int64_t steps = r * block.row_stride[n] + c * block.column_stride[n];
          tuple[n] = reinterpret_cast<int64_t>(data[n]) + steps * nest.element_size[n];
        }
        tuples.push_back(tuple);
      }
    }
  });
  std::sort(tuples.begin(), tuples.end());
  return tuples;
}

TEST(LoopNest, CollapseKeepsTheTuples) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    LoopNest<3> nest = random_nest(random);
    const auto before = tuples_of(nest);
    ASSERT_EQ(before, walked(nest));
    collapse(nest);
    ASSERT_EQ(before, tuples_of(nest));
    ASSERT_EQ(before, walked(nest));
    for (int d = 0; d < nest.rank; ++d) {
      ASSERT_NE(nest.extents[d], 1);
      if (nest.numel() == 0) continue;
      ASSERT_GE(nest.strides[0][d], 0);
      if (d > 0) {
        ASSERT_GE(nest.strides[0][d - 1], nest.strides[0][d]);
      }
    }
  }
}

TEST(LoopNest, PartsMakeTheWhole) {
  std::mt19937 random(2);
  for (int i = 0; i < 1000; ++i) {
    const LoopNest<3> nest = random_nest(random);
    if (nest.rank == 0) continue;
    const int d = dimension_to_split(nest, 2);
    const int64_t middle = nest.extents[d] / 2;
    auto tuples = tuples_of(part_of(nest, d, 0, middle));
    const auto rest = tuples_of(part_of(nest, d, middle, nest.extents[d]));
    tuples.insert(tuples.end(), rest.begin(), rest.end());
    std::sort(tuples.begin(), tuples.end());
    ASSERT_EQ(tuples, tuples_of(nest));
  }
}

LoopNest<2> nest_of(std::vector<int64_t> sizes, std::vector<int64_t> a, std::vector<int64_t> b) {
  LoopNest<2> nest;
  nest.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), nest.extents.begin());
  set_operand(nest, 0, nullptr, sizes, a, 4);
  set_operand(nest, 1, nullptr, sizes, b, 4);
  collapse(nest);
  return nest;
}

TEST(LoopNest, CollapseMergesWhatIsContiguous) {
  EXPECT_EQ(nest_of({2, 3, 4}, {12, 4, 1}, {12, 4, 1}).rank, 1);
  EXPECT_EQ(nest_of({2, 3, 4}, {1, 2, 6}, {1, 2, 6}).rank, 1);
  EXPECT_EQ(nest_of({2, 3, 4}, {12, 4, 1}, {0, 0, 0}).rank, 1);
  EXPECT_EQ(nest_of({2, 3, 4}, {-12, -4, -1}, {-12, -4, -1}).rank, 1);
  EXPECT_EQ(nest_of({2, 3, 4}, {12, 4, 1}, {0, 4, 1}).rank, 2);
  EXPECT_EQ(nest_of({2, 3, 4}, {12, 4, 1}, {15, 5, 1}).rank, 2);
  EXPECT_EQ(nest_of({2, 1, 4}, {4, 77, 1}, {4, 99, 1}).rank, 1);
  EXPECT_EQ(nest_of({1, 1}, {1, 1}, {1, 1}).rank, 0);
}

TEST(LoopNest, SetOperandBroadcasts) {
  LoopNest<1> nest;
  nest.rank = 3;
  nest.extents = {2, 3, 4};
  const std::array<int64_t, 2> sizes{3, 1}, strides{5, 7};
  set_operand(nest, 0, nullptr, sizes, strides, 4);
  EXPECT_EQ(nest.strides[0][0], 0);
  EXPECT_EQ(nest.strides[0][1], 5);
  EXPECT_EQ(nest.strides[0][2], 0);
}

TEST(LoopNest, SplitsTheOutermostLongEnough) {
  LoopNest<1> nest;
  nest.rank = 3;
  nest.extents = {2, 100, 1000};
  EXPECT_EQ(dimension_to_split(nest, 2), 1);
  EXPECT_EQ(dimension_to_split(nest, 32), 2);
  nest.extents = {4, 5, 6};
  EXPECT_EQ(dimension_to_split(nest, 4), 2);
}

std::vector<int64_t> strides_of(std::vector<int64_t> sizes, std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> operands) {
  std::vector<Shape> shapes;
  for (const auto& [s, t] : operands) shapes.push_back({s, t});
  std::vector<int64_t> strides(sizes.size());
  result_strides(sizes, shapes, strides);
  return strides;
}

TEST(ResultStrides, FollowTheOperands) {
  using V = std::vector<int64_t>;
  EXPECT_EQ(strides_of({2, 3}, {{{2, 3}, {3, 1}}, {{2, 3}, {3, 1}}}), (V{3, 1}));
  EXPECT_EQ(strides_of({2, 3}, {{{2, 3}, {1, 2}}, {{2, 3}, {1, 2}}}), (V{1, 2}));
  EXPECT_EQ(strides_of({2, 3}, {{{2, 3}, {1, 2}}, {{2, 3}, {3, 1}}}), (V{1, 2}));
  EXPECT_EQ(strides_of({2, 3}, {{{2, 3}, {3, 1}}, {{2, 3}, {1, 2}}}), (V{3, 1}));
  EXPECT_EQ(strides_of({2, 3}, {{{}, {}}, {{2, 3}, {1, 2}}}), (V{1, 2}));
  EXPECT_EQ(strides_of({2, 3, 4, 5}, {{{2, 3, 4, 5}, {60, 1, 15, 3}}, {{3, 1, 1}, {1, 1, 1}}}), (V{60, 1, 15, 3}));
  EXPECT_EQ(strides_of({0, 3}, {{{0, 3}, {3, 1}}}), (V{3, 1}));
  EXPECT_EQ(strides_of({2, 3}, {{{2, 3}, {6, 2}}}), (V{3, 1}));
  EXPECT_EQ(strides_of({}, {{{}, {}}}), V{});
}

}  // namespace
}  // namespace flexcpu::layout
