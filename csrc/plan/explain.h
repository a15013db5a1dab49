#pragma once
// The plans that this thread has made, kept while somebody asks for them. While nobody does, a test of a thread's own
// flag is all that is paid.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout/dtype.h"
#include "layout/loop_nest.h"

namespace flexcpu::plan {

struct Refusal {
  const char* route;
  const char* reason;
};

struct Explanation {
  const char* family;              // "copy", "elementwise", ...
  const char* route;
  std::vector<Refusal> refusals;   // the routes that were offered before it
  std::vector<DType> dtypes;       // of the operands, the result first
  std::vector<int64_t> extents;    // of the collapsed loops, the innermost last
  int team;                        // threads
};

// Explanations being asked for on this thread, one in another.
extern constinit thread_local int explaining;

inline bool is_explained() { return explaining > 0; }
void explain(Explanation explanation);

template <int N>
std::vector<int64_t> extents_of(const layout::LoopNest<N>& nest) {
  return {nest.extents.begin(), nest.extents.begin() + nest.rank};
}

// Begins to keep what this thread's plans are; returns a mark, with which explained_since() ends it and gives what was
// kept meanwhile.
size_t begin_explaining();
std::vector<Explanation> explained_since(size_t mark);

}  // namespace flexcpu::plan
