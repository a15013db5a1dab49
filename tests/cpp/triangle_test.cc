// Triangles against a scalar reference: every element size, diagonals beyond either corner, layouts, in place.

#include "kernels/triangle/triangle.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace flexcpu {
namespace {

constexpr int64_t kBatch = 3, kRows = 7, kColumns = 9;

// `step`: elements between neighbours in a row.
void check(int64_t size, kernels::Triangle which, int64_t diagonal, int64_t step, bool in_place, int threads) {
  std::vector<std::byte> src(kBatch * kRows * kColumns * step * size), dst(src.size(), std::byte{0xA5});
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<std::byte>(i % 254 + 1);
  if (in_place) dst = src;
  auto expected = dst;
  layout::LoopNest<2> nest;
  nest.rank = 3;
  nest.extents = {kBatch, kRows, kColumns};
  nest.data = {dst.data(), in_place ? dst.data() : src.data()};
  nest.element_size = {size, size};
  for (auto& strides : nest.strides) strides = {kRows * kColumns * step, kColumns * step, step};
  for (int64_t at = 0; at < kBatch * kRows * kColumns; ++at) {
    const int64_t row = at / kColumns % kRows, column = at % kColumns;
    const bool kept = which == kernels::Triangle::kLower ? column - row <= diagonal : column - row >= diagonal;
    std::byte* p = expected.data() + at * step * size;
    kept ? std::memcpy(p, src.data() + at * step * size, size) : std::memset(p, 0, size);
  }
  kernels::triangle(nest, which, diagonal, threads);
  ASSERT_EQ(dst, expected) << size << " bytes, diagonal " << diagonal << ", step " << step << ", " << in_place;
}

TEST(Triangle, DiagonalsLayoutsAndSizes) {
  for (int64_t size : {1, 2, 4, 8, 16}) {
    for (auto which : {kernels::Triangle::kLower, kernels::Triangle::kUpper}) {
      for (int64_t diagonal = -10; diagonal <= 12; ++diagonal) {
        check(size, which, diagonal, 1, false, 1);
        check(size, which, diagonal, 1, true, 1);
        check(size, which, diagonal, 2, true, 1);
        if (HasFatalFailure()) return;
      }
      for (int64_t diagonal : {INT64_MIN, INT64_MAX}) check(size, which, diagonal, 1, false, 2);
    }
  }
}

}  // namespace
}  // namespace flexcpu
