#pragma once
// How contiguous tensors are joined along a dimension: chosen from layouts alone, never from data.
//
// The dimensions outside it are the rows, it and those inside it are the columns: a row of the result is a row of every
// input, one after another.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flexcpu::plan {

// In the order in which they are tried.
enum class CatRoute : uint8_t {
  kInterleave,  // 2 to 4 inputs of one column
  kShortRuns,   // rows too short to be copied one by one: input by input, in blocks of rows that stay in L1
  kRuns,        // row by row
};
inline constexpr int kCatRoutes = 3;
const char* name_of(CatRoute route);

struct CatInput {
  const std::byte* data;  // `rows` x `columns`
  int64_t columns;
};

struct CatPlan {
  CatRoute route = CatRoute::kRuns;
  std::byte* dst = nullptr;
  int64_t rows = 1, columns = 0;
  int64_t element_size = 1;
  std::vector<CatInput> inputs = {};  // none of them empty
  int64_t block_rows = 0;             // of kShortRuns
  bool streams = false;               // kRuns writes past the cache
  int team = 1;                       // threads
  const char* refusals[kCatRoutes] = {};  // by route
};

// Fills in the plan: dst, rows, element_size and inputs are given. `threads`: as many as may be used.
void plan_cat(CatPlan& plan, int threads);

}  // namespace flexcpu::plan
