// The OpenMP helper: partitions, team sizes, exceptions, and that a team really runs.

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "parallel/parallel.h"

namespace flexcpu::parallel {
namespace {

TEST(Parallel, TeamSize) {
  EXPECT_EQ(team_size(1000, 10, 1), 1);
  EXPECT_EQ(team_size(19, 10, 4), 1);
  EXPECT_EQ(team_size(20, 10, 4), 2);
  EXPECT_EQ(team_size(35, 10, 4), 3);
  EXPECT_EQ(team_size(1000, 10, 4), 4);
  EXPECT_EQ(team_size(0, 10, 4), 1);
}

TEST(Parallel, EveryIndexOnce) {
  for (int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    for (int team : {1, 2, 3, 4}) {
      std::vector<std::atomic<int>> visits(count);
      for_range(count, team, [&](int64_t begin, int64_t end) {
        EXPECT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      for (const auto& n : visits) ASSERT_EQ(n, 1);
    }
  }
}

TEST(Parallel, SeveralThreadsRun) {
  std::atomic<int> arrived = 0;
  std::array<std::thread::id, 2> ids;
  for_range(2, 2, [&](int64_t begin, int64_t) {
    ids[begin] = std::this_thread::get_id();
    ++arrived;
    while (arrived < 2) std::this_thread::yield();  // ends only if both run at a time
  });
  EXPECT_NE(ids[0], ids[1]);
}

TEST(Parallel, NoTeamInsideATeam) {
  for_range(2, 2, [](int64_t, int64_t) { EXPECT_EQ(team_size(1000, 10, 4), 1); });
}

TEST(Parallel, ExceptionsReachTheCaller) {
  for (int team : {1, 3}) {
    const auto fail = [&] {
      for_range(3, team, [](int64_t, int64_t end) {
        if (end == 3) throw std::runtime_error("last");
      });
    };
    EXPECT_THROW(fail(), std::runtime_error);
  }
}

}  // namespace
}  // namespace flexcpu::parallel
