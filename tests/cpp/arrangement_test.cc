// Arrangements: views of arrays that were not made, composed into loops over the source, against index arithmetic.

#include "layout/arrangement.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace flexcpu::layout {
namespace {

using Indices = std::vector<int64_t>;

// Elements of a strided array in row-major order.
void walk(const Indices& sizes, const Indices& strides, int64_t offset, Indices& found, size_t d = 0) {
  if (d == sizes.size()) return found.push_back(offset);
  for (int64_t i = 0; i < sizes[d]; ++i) walk(sizes, strides, offset + i * strides[d], found, d + 1);
}

Indices elements(const Indices& sizes, const Indices& strides, int64_t offset) {
  Indices found;
  walk(sizes, strides, offset, found);
  return found;
}

struct Array {
  Indices sizes, strides, source_strides;

  std::vector<Loop> loops() const {
    std::vector<Loop> loops;
    for (size_t d = 0; d < sizes.size(); ++d) loops.push_back({static_cast<int>(d), sizes[d], source_strides[d]});
    return loops;
  }
  // The source element of every element of the array.
  Indices sources() const {
    const Indices places = elements(sizes, strides, 0), sources = elements(sizes, source_strides, 0);
    Indices by_place(places.size());
    for (size_t i = 0; i < places.size(); ++i) by_place[places[i]] = sources[i];
    return by_place;
  }
};

struct View {
  Indices sizes, strides;
  int64_t offset = 0;
};

// Whether the view composes; then its elements are checked.
bool composes(const Array& array, const View& view) {
  Arrangement arrangement;
  EXPECT_TRUE(arrange(array.loops(), array.strides, arrangement));
  std::vector<Loop> loops;
  int64_t source_offset;
  if (!compose(arrangement, view.sizes, view.strides, view.offset, loops, source_offset)) return false;
  Indices sizes, strides;
  int64_t product = 1;
  int axis = -1;
  for (const Loop& loop : loops) {
    sizes.push_back(loop.extent);
    strides.push_back(loop.stride);
    if (loop.axis != axis) {
      if (axis >= 0) {
        EXPECT_EQ(product, view.sizes[axis]);
      }
      EXPECT_EQ(loop.axis, axis + 1);
      product = 1;
      axis = loop.axis;
    }
    product *= loop.extent;
  }
  const Indices sources = array.sources();
  Indices expected;
  for (const int64_t place : elements(view.sizes, view.strides, view.offset)) expected.push_back(sources[place]);
  EXPECT_EQ(elements(sizes, strides, source_offset), expected);
  return true;
}

TEST(Arrangement, WhatTheSourceWalksAsOneIsOne) {
  Arrangement arrangement;
  const Array same{{2, 3, 4}, {12, 4, 1}, {12, 4, 1}};
  ASSERT_TRUE(arrange(same.loops(), same.strides, arrangement));
  EXPECT_TRUE(arrangement.is_trivial());
  const Array flipped{{2, 3, 4}, {12, 4, 1}, {-12, -4, -1}};
  ASSERT_TRUE(arrange(flipped.loops(), flipped.strides, arrangement));
  EXPECT_EQ(arrangement.rank, 1);
  EXPECT_FALSE(arrangement.is_trivial());
  const Array transposed{{3, 1, 4}, {4, 4, 1}, {1, 77, 3}};
  ASSERT_TRUE(arrange(transposed.loops(), transposed.strides, arrangement));
  EXPECT_EQ(arrangement.rank, 2);
}

TEST(Arrangement, AGappyArrayIsRefused) {
  Arrangement arrangement;
  const Array gappy{{2, 3}, {4, 1}, {1, 2}};
  EXPECT_FALSE(arrange(gappy.loops(), gappy.strides, arrangement));
}

TEST(Arrangement, ViewsOfOneDimensionCompose) {
  const Array flip{{6}, {1}, {-1}};
  EXPECT_TRUE(composes(flip, {{6}, {1}}));
  EXPECT_TRUE(composes(flip, {{3}, {2}, 1}));
  EXPECT_TRUE(composes(flip, {{2, 3}, {3, 1}}));
  EXPECT_TRUE(composes(flip, {{3, 4}, {1, 1}}));  // overlapping windows
  EXPECT_TRUE(composes(flip, {{6, 5}, {1, 0}}));
}

TEST(Arrangement, ADimensionThatRunsOverTwoIsSplit) {
  const Array heads{{2, 3, 4, 5}, {60, 20, 5, 1}, {60, 5, 15, 1}};  // (B, H, S, D) of (B, S, H, D)
  EXPECT_TRUE(composes(heads, {{6, 4, 5}, {20, 5, 1}}));
  EXPECT_TRUE(composes(heads, {{2, 3, 20}, {60, 20, 1}}));
  EXPECT_TRUE(composes(heads, {{120}, {1}}));
  EXPECT_TRUE(composes(heads, {{60}, {2}}) == false);   // steps over the end of a row
  EXPECT_TRUE(composes(heads, {{5, 6}, {1, 20}}));
  EXPECT_TRUE(composes(heads, {{4, 5}, {5, 1}, 80}));
  EXPECT_FALSE(composes(heads, {{6, 5}, {5, 1}}));      // ends within a head
}

TEST(Arrangement, AnExpandedSourceRepeats) {
  const Array expanded{{4, 3}, {3, 1}, {0, 1}};
  EXPECT_TRUE(composes(expanded, {{12}, {1}}));
  EXPECT_TRUE(composes(expanded, {{3, 4}, {1, 3}}));
}

TEST(Arrangement, RandomViewsOfRandomArrays) {
  std::mt19937_64 random(5);
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  int composed = 0;
  for (int round = 0; round < 20'000; ++round) {
    const int rank = static_cast<int>(pick(1, 4));
    Array array;
    for (int d = 0; d < rank; ++d) array.sizes.push_back(pick(1, 4));
    std::vector<int> order(rank), source_order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    array.strides.resize(rank), array.source_strides.resize(rank);
    int64_t stride = 1;
    for (const int d : order) array.strides[d] = std::exchange(stride, stride * array.sizes[d]);
    const int64_t count = stride;
    std::shuffle(order.begin(), order.end(), random);
    stride = pick(1, 2);
    for (const int d : order) {
      array.source_strides[d] = pick(0, 5) == 0 ? 0 : stride * (pick(0, 1) ? 1 : -1);
      stride *= array.sizes[d];
    }
    View view;
    const int view_rank = static_cast<int>(pick(0, 3));
    int64_t last = 0;
    for (int d = 0; d < view_rank; ++d) {
      view.sizes.push_back(pick(1, 6));
      view.strides.push_back(pick(0, 1) ? pick(0, count) : array.strides[pick(0, rank - 1)]);
      last += (view.sizes.back() - 1) * view.strides.back();
    }
    if (last >= count) continue;
    view.offset = pick(0, count - 1 - last);
    composed += composes(array, view);
  }
  EXPECT_GT(composed, 3000);
}

}  // namespace
}  // namespace flexcpu::layout
