#include "kernels/pad/pad.h"

#include <algorithm>
#include <cstring>

#include "parallel/parallel.h"

namespace flexcpu::kernels {
namespace {

// The steps of a row that are neighbours in src as they are in dst.
struct Run {
  int64_t begin = 0, end = 0;
};

Run longest_run(const PaddedDimension& row) {
  if (row.index.empty()) return {0, row.extent};
  Run longest, run;
  for (int64_t i = 0; i < row.extent; ++i) {
    if (row.index[i] == kFill) {
      run = {i + 1, i + 1};
      continue;
    }
    if (i > run.begin && row.index[i] != row.index[i - 1] + 1) run.begin = i;
    run.end = i + 1;
    if (run.end - run.begin > longest.end - longest.begin) longest = run;
  }
  return longest;
}

// Units of a size that the compiler knows.
template <typename T>
struct Fixed {
  explicit Fixed(int64_t) {}
  int64_t size() const { return sizeof(T); }
  void copy(std::byte* dst, const std::byte* src) const { std::memcpy(dst, src, sizeof(T)); }
};

struct Any {
  explicit Any(int64_t unit) : unit(unit) {}
  int64_t size() const { return unit; }
  void copy(std::byte* dst, const std::byte* src) const { std::memcpy(dst, src, unit); }
  int64_t unit;
};

// Rows [begin, end) of dst.
template <typename Unit>
void pad_rows(const Padding& padding, Run run, int64_t begin, int64_t end) {
  const Unit unit(padding.unit);
  const auto& dimensions = padding.dimensions;
  const PaddedDimension& row = dimensions.back();
  const int64_t outer = std::ssize(dimensions) - 1;
  for (int64_t at = begin; at < end; ++at) {
    std::byte* dst = padding.dst + at * row.extent * unit.size();
    const std::byte* src = padding.src;
    int64_t rest = at;
    bool is_fill = false;
    for (int64_t d = outer - 1; d >= 0; --d) {
      int64_t index = rest % dimensions[d].extent;
      rest /= dimensions[d].extent;
      if (!dimensions[d].index.empty()) index = dimensions[d].index[index];
      is_fill = is_fill || index == kFill;
      src += index * dimensions[d].src_stride;
    }
    const auto pad_step = [&](int64_t i) {
      const bool fills = is_fill || row.index[i] == kFill;
      unit.copy(dst + i * unit.size(), fills ? padding.fill : src + row.index[i] * unit.size());
    };
    if (is_fill) {
      for (int64_t i = 0; i < row.extent; ++i) unit.copy(dst + i * unit.size(), padding.fill);
      continue;
    }
    for (int64_t i = 0; i < run.begin; ++i) pad_step(i);
    const int64_t first = row.index.empty() ? 0 : row.index[run.begin];
    std::memcpy(dst + run.begin * unit.size(), src + first * unit.size(), (run.end - run.begin) * unit.size());
    for (int64_t i = run.end; i < row.extent; ++i) pad_step(i);
  }
}

template <typename Unit>
void pad_all(const Padding& padding, int threads) {
  int64_t rows = 1;
  for (const auto& dimension : padding.dimensions.first(padding.dimensions.size() - 1)) rows *= dimension.extent;
  const PaddedDimension& row = padding.dimensions.back();
  Run run = longest_run(row);
  // A run of none has no place: all of the row is filled.
  if (run.begin == run.end) run = {0, 0};
  const int64_t work = rows * row.extent * parallel::divide_up(padding.unit, 8);
  const int team = parallel::team_size(work, parallel::kElementGrain, threads);
  parallel::for_range(rows, team, [&](int64_t begin, int64_t end) { pad_rows<Unit>(padding, run, begin, end); });
}

}  // namespace

void pad(const Padding& padding, int threads) {
  switch (padding.unit) {
    case 1: return pad_all<Fixed<uint8_t>>(padding, threads);
    case 2: return pad_all<Fixed<uint16_t>>(padding, threads);
    case 4: return pad_all<Fixed<uint32_t>>(padding, threads);
    case 8: return pad_all<Fixed<uint64_t>>(padding, threads);
    case 16: return pad_all<Fixed<std::byte[16]>>(padding, threads);
    default: return pad_all<Any>(padding, threads);
  }
}

}  // namespace flexcpu::kernels
