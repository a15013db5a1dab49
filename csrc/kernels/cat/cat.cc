#include "kernels/cat/cat.h"

#include <algorithm>

#include "kernels/copy/block.h"
#include "parallel/parallel.h"

namespace flexcpu::kernels {
namespace {

using plan::CatInput;
using plan::CatPlan;

// Elements [begin, end) of the result, in the order in which they lie there.
void copy_runs(const CatPlan& plan, int64_t begin, int64_t end) {
  int64_t row = begin / plan.columns, skip = begin % plan.columns;
  for (int64_t at = begin; at < end; ++row) {
    for (const CatInput& input : plan.inputs) {
      if (skip >= input.columns) {
        skip -= input.columns;
        continue;
      }
      const int64_t count = std::min(input.columns - skip, end - at);
      copy_run(plan.dst + at * plan.element_size, input.data + (row * input.columns + skip) * plan.element_size,
               count * plan.element_size, plan.streams);
      at += count;
      skip = 0;
      if (at == end) return;
    }
  }
}

void copy_short_runs(const CatPlan& plan, int64_t begin, int64_t end) {
  const int64_t size = plan.element_size;
  for (int64_t row = begin; row < end; row += plan.block_rows) {
    const int64_t rows = std::min(plan.block_rows, end - row);
    std::byte* dst = plan.dst + row * plan.columns * size;
    for (const CatInput& input : plan.inputs) {
      // The longer side is the inner loop.
      Block block{.dst = dst, .src = input.data + row * input.columns * size, .rows = input.columns, .columns = rows,
                  .dst_row_stride = size, .dst_column_stride = plan.columns * size,
                  .src_row_stride = size, .src_column_stride = input.columns * size};
      copy_strided(block, size);
      dst += input.columns * size;
    }
  }
}

void interleave_rows(const CatPlan& plan, int64_t begin, int64_t end) {
  const std::byte* src[4] = {};
  for (size_t n = 0; n < plan.inputs.size(); ++n) src[n] = plan.inputs[n].data + begin * plan.element_size;
  interleave_runs(plan.dst + begin * plan.columns * plan.element_size, src, static_cast<int64_t>(plan.inputs.size()),
                  end - begin, plan.element_size);
}

}  // namespace

void cat(const CatPlan& plan) {
  switch (plan.route) {
    case plan::CatRoute::kInterleave:
      return parallel::for_range(plan.rows, plan.team, [&](int64_t begin, int64_t end) {
        interleave_rows(plan, begin, end);
      });
    case plan::CatRoute::kShortRuns:
      return parallel::for_range(plan.rows, plan.team, [&](int64_t begin, int64_t end) {
        copy_short_runs(plan, begin, end);
      });
    case plan::CatRoute::kRuns:
      return parallel::for_range(plan.rows * plan.columns, plan.team, [&](int64_t begin, int64_t end) {
        copy_runs(plan, begin, end);
      });
  }
}

}  // namespace flexcpu::kernels
