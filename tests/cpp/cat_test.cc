// Concatenations against a scalar reference: every element size, every route.

#include "kernels/cat/cat.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/copy/block.h"

namespace flexcpu {
namespace {

std::vector<std::byte> random_bytes(int64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

void check_cat(int64_t rows, const std::vector<int64_t>& widths, int64_t size, int threads, const char* route) {
  std::mt19937 random(static_cast<uint32_t>(rows + size));
  int64_t columns = 0;
  std::vector<std::vector<std::byte>> inputs;
  for (int64_t width : widths) {
    inputs.push_back(random_bytes(rows * width * size, random));
    columns += width;
  }
  std::vector<std::byte> dst(rows * columns * size + 1, std::byte{0xA5}), expected;
  for (int64_t r = 0; r < rows; ++r) {
    for (size_t n = 0; n < widths.size(); ++n) {
      const auto row = inputs[n].begin() + r * widths[n] * size;
      expected.insert(expected.end(), row, row + widths[n] * size);
    }
  }
  expected.push_back(std::byte{0xA5});

  plan::CatPlan plan;
  plan.dst = dst.data();
  plan.rows = rows;
  plan.element_size = size;
  for (size_t n = 0; n < widths.size(); ++n) plan.inputs.push_back({inputs[n].data(), widths[n]});
  plan_cat(plan, threads);
  ASSERT_STREQ(name_of(plan.route), route) << rows << " rows of " << columns << " x " << size;
  kernels::cat(plan);
  ASSERT_EQ(dst, expected) << rows << " rows of " << columns << " x " << size << ", " << route;
}

TEST(Cat, Routes) {
  for (int64_t size : {1, 2, 4, 8, 16}) {
    for (int threads : {1, 2, 3}) {
      const int64_t line = 64 / size;
      check_cat(1, {3, 70000, 1, 90000}, size, threads, "runs");
      check_cat(300, {line, 3 * line + 1, 200}, size, threads, "runs");
      check_cat(70000, {1, line, 1}, size, threads, "runs");
      check_cat(40000, {1, 1, 1, 1, 1}, size, threads, "short runs");
      if (size < 16) check_cat(40000, {1, 3}, size, threads, "short runs");
      for (int64_t ways : {2, 3, 4})
        check_cat(40001, std::vector<int64_t>(ways, 1), size, threads, size == 16 ? "short runs" : "interleave");
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Cat, InterleavesOfEveryLength) {
  for (int64_t size : {1, 2, 4, 8})
    for (int64_t ways : {2, 3, 4})
      for (int64_t rows = 16; rows < 200; ++rows) check_cat(rows, std::vector<int64_t>(ways, 1), size, 1, "interleave");
}

TEST(Cat, SaysWhyNotFaster) {
  std::vector<std::byte> bytes(1024);
  plan::CatPlan plan{.dst = bytes.data(), .rows = 2, .element_size = 4, .inputs = {{bytes.data(), 1}, {bytes.data(), 60}}};
  plan_cat(plan, 1);
  EXPECT_EQ(plan.route, plan::CatRoute::kRuns);
  EXPECT_STREQ(plan.refusals[0], "the inputs have several columns");
  EXPECT_STREQ(plan.refusals[1], "the rows of an input are long");
}

// Runs past the cache, at every alignment of either end.
TEST(CopyRun, Streams) {
  std::mt19937 random(5);
  for (int64_t bytes : {0, 1, 63, 4095, 4096, 4097, 5000, 8191}) {
    for (int64_t shift = 0; shift < 66; ++shift) {
      const auto src = random_bytes(bytes + 80, random);
      std::vector<std::byte> dst(bytes + 160, std::byte{0xA5}), expected = dst;
      std::copy_n(src.begin() + shift % 7, bytes, expected.begin() + shift);
      kernels::copy_run(dst.data() + shift, src.data() + shift % 7, bytes, /*streams=*/true);
      ASSERT_EQ(dst, expected) << bytes << " bytes at " << shift;
    }
  }
}

}  // namespace
}  // namespace flexcpu
