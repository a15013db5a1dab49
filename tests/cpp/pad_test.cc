// Padding and windows against scalar references.

#include "kernels/pad/pad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/im2col/im2col.h"

namespace flexcpu {
namespace {

// Rows and columns from any indices, also those that are no mode's.
TEST(Pad, AnyIndices) {
  std::mt19937 random(3);
  for (int64_t unit : {1, 2, 3, 4, 8, 12, 16, 40}) {
    for (int round = 0; round < 200; ++round) {
      const int64_t rows = 1 + random() % 5, columns = 1 + random() % 40, src_rows = 4, src_columns = 30;
      std::vector<std::byte> src(src_rows * src_columns * unit), fill(unit, std::byte{7});
      for (auto& b : src) b = static_cast<std::byte>(random());
      std::vector<kernels::PaddedDimension> dimensions = {{rows, src_columns * unit, {}}, {columns, unit, {}}};
      const auto draw = [&](int64_t size) {
        return random() % 4 == 0 ? kernels::kFill : static_cast<int64_t>(random() % size);
      };
      for (int64_t r = 0; r < rows; ++r) dimensions[0].index.push_back(draw(src_rows));
      for (int64_t c = 0; c < columns; ++c) {
        const bool runs = c > 0 && random() % 3 && dimensions[1].index[c - 1] + 1 < src_columns;
        dimensions[1].index.push_back(runs ? dimensions[1].index[c - 1] + 1 : draw(src_columns));
      }
      std::vector<std::byte> dst(rows * columns * unit), expected = dst;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t from_row = dimensions[0].index[r], from_column = dimensions[1].index[c];
          const bool fills = from_row == kernels::kFill || from_column == kernels::kFill;
          const auto from = fills ? fill.begin() : src.begin() + (from_row * src_columns + from_column) * unit;
          std::copy_n(from, unit, expected.begin() + (r * columns + c) * unit);
        }
      }
      kernels::pad({dst.data(), src.data(), dimensions, unit, fill.data()}, 1);
      ASSERT_EQ(dst, expected) << rows << " x " << columns << " of " << unit;
    }
  }
}

TEST(Im2col, EveryWindow) {
  std::mt19937 random(4);
  for (int64_t size : {1, 2, 4, 8, 16}) {
    for (int round = 0; round < 200; ++round) {
      kernels::Im2col c{};
      c.element_size = size;
      c.images = 1 + random() % 2;
      c.channels = 1 + random() % 3;
      for (int i : {0, 1}) {
        c.size[i] = 1 + random() % 12;
        c.kernel[i] = 1 + random() % 4;
        c.dilation[i] = 1 + random() % 3;
        c.padding[i] = random() % 9;
        c.stride[i] = 1 + random() % 4;
        const int64_t room = c.size[i] + 2 * c.padding[i] - c.dilation[i] * (c.kernel[i] - 1) - 1;
        c.padding[i] += room < 0 ? -room : 0;
        c.output[i] = (c.size[i] + 2 * c.padding[i] - c.dilation[i] * (c.kernel[i] - 1) - 1) / c.stride[i] + 1;
      }
      const int64_t gap = 1 + random() % 2;
      c.src_strides[3] = gap * size;
      c.src_strides[2] = c.size[1] * c.src_strides[3];
      c.src_strides[1] = c.size[0] * c.src_strides[2];
      c.src_strides[0] = c.channels * c.src_strides[1];
      std::vector<std::byte> src(c.images * c.src_strides[0]);
      for (auto& b : src) b = static_cast<std::byte>(1 + random() % 255);
      std::vector<std::byte> expected;
      for (int64_t plane = 0; plane < c.images * c.channels; ++plane) {
        for (int64_t place = 0; place < c.kernel[0] * c.kernel[1]; ++place) {
          for (int64_t window = 0; window < c.output[0] * c.output[1]; ++window) {
            const int64_t y = place / c.kernel[1] * c.dilation[0] - c.padding[0] + window / c.output[1] * c.stride[0];
            const int64_t x = place % c.kernel[1] * c.dilation[1] - c.padding[1] + window % c.output[1] * c.stride[1];
            const bool is_inside = y >= 0 && y < c.size[0] && x >= 0 && x < c.size[1];
            const auto* from = src.data() + plane * c.src_strides[1] + y * c.src_strides[2] + x * c.src_strides[3];
            for (int64_t b = 0; b < size; ++b) expected.push_back(is_inside ? from[b] : std::byte{0});
          }
        }
      }
      std::vector<std::byte> dst(expected.size(), std::byte{0xA5});
      c.dst = dst.data();
      c.src = src.data();
      kernels::im2col(c, 1);
      ASSERT_EQ(dst, expected) << size << " bytes, round " << round;
    }
  }
}

}  // namespace
}  // namespace flexcpu
