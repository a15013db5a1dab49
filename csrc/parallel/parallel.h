#pragma once
// The one OpenMP helper.
//
// The number of threads is asked of torch above and passed down: no layer below device/ knows torch. A region is entered
// only when more than one thread has a grain of work, so a forked child with one thread never touches OpenMP.

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace flexcpu::parallel {

// Least work of one thread, in cheap elements (one load, one or two operations, one store each). At 2 threads a region
// costs about as much as 8 k of them, so half of that is lost at the threshold.
inline constexpr int64_t kElementGrain = 32 * 1024;

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The calling thread's setting, torch.set_num_threads(), where nobody passes it down.
inline int max_threads() { return omp_get_max_threads(); }

// Threads worth starting for `work` units of which one thread should have at least `grain`.
inline int team_size(int64_t work, int64_t grain, int threads) {
  if (threads <= 1 || work < 2 * grain || omp_in_parallel()) return 1;
  return static_cast<int>(std::min<int64_t>(threads, work / grain));
}

// Calls body(begin, end) over a partition of [0, count) into contiguous parts, one a thread. `team` comes from
// team_size(). An exception of the body is rethrown on the calling thread.
template <typename Body>
void for_range(int64_t count, int team, const Body& body) {
  if (team <= 1 || count <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel num_threads(team)
  {
    const int64_t part = divide_up(count, omp_get_num_threads());
    const int64_t begin = std::min(count, omp_get_thread_num() * part);
    const int64_t end = std::min(count, begin + part);
    try {
      if (begin < end) body(begin, end);
    } catch (...) {
#pragma omp critical(flexcpu_for_range)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace flexcpu::parallel
