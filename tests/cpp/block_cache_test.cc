// The block cache: size classes, reuse, what is kept and what goes back, threads and forks.

#include "memory/block_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "memory/statistics.h"

namespace flexcpu::memory {
namespace {

constexpr size_t kKiB = 1024, kMiB = kKiB * kKiB;

int64_t reserved() { return statistics().reserved_bytes.current(); }

class BlockCacheTest : public testing::Test {
 protected:
  void SetUp() override { empty_block_cache(); }
  void TearDown() override {
    set_block_cache_limit(limit_);
    set_memory_limit(SIZE_MAX);
    empty_block_cache();
    EXPECT_EQ(reserved(), reserved_before_);
  }

 private:
  const size_t limit_ = block_cache_limit();
  const int64_t reserved_before_ = (empty_block_cache(), reserved());
};

// A pattern that depends on the block: overlapping blocks spoil it.
void fill(Block block, size_t size, uint64_t seed) {
  for (size_t i = 0; i + 8 <= size; i += std::max<size_t>(8, size / 64 & ~size_t{7})) {
    const uint64_t value = seed ^ i;
    std::memcpy(block.data + i, &value, 8);
  }
  std::memset(block.data - kHeader, static_cast<int>(seed & 0xff), kHeader);
  block.data[size - 1] = static_cast<std::byte>(seed);
}

bool holds(Block block, size_t size, uint64_t seed) {
  for (size_t i = 0; i + 8 <= size; i += std::max<size_t>(8, size / 64 & ~size_t{7})) {
    uint64_t value;
    std::memcpy(&value, block.data + i, 8);
    const bool is_last = i + 8 == size;  // its last byte was overwritten
    if (is_last ? (value << 8) != ((seed ^ i) << 8) : value != (seed ^ i)) return false;
  }
  return block.data[-1] == static_cast<std::byte>(seed) && block.data[size - 1] == static_cast<std::byte>(seed);
}

TEST_F(BlockCacheTest, EverySizeGetsAnAlignedBlockOfBoundedCapacity) {
  std::vector<size_t> sizes;
  for (size_t size = 1; size <= 4096; ++size) sizes.push_back(size);
  for (size_t size = 4096; size <= 64 * kMiB; size *= 2)
    for (const size_t off : {-1, 0, 1, 3000}) sizes.push_back(size + off);
  for (const size_t size : sizes) {
    const Block block = take_block(size);
    EXPECT_GE(block.capacity, size);
    EXPECT_LE(block.capacity, std::max(size + 63, size + size / 4)) << size;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data) % (block.capacity >= 2 * kMiB ? 2 * kMiB : kAlignment), 0) << size;
    block.data[-static_cast<int>(kHeader)] = block.data[0] = block.data[block.capacity - 1] = std::byte{1};
    give_block(block);
  }
}

TEST_F(BlockCacheTest, AFreedBlockComesBack) {
  for (const size_t size : {40, 1000, 5000, 40'000, 1'000'000, 5'000'000}) {
    const Block first = take_block(size);
    give_block(first);
    const Block second = take_block(size - size / 50);
    EXPECT_EQ(second.data, first.data) << size;
    EXPECT_EQ(second.capacity, first.capacity);
    give_block(second);
  }
}

TEST_F(BlockCacheTest, MoreThanThereIsThrows) {
  for (const size_t size : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 50, (size_t{1} << 47) + 1, size_t{1} << 46})
    EXPECT_THROW(take_block(size), std::bad_alloc) << size;
}

TEST_F(BlockCacheTest, NoMoreIsKeptThanTheLimit) {
  const int64_t before = reserved();
  set_block_cache_limit(3 * kMiB);
  std::vector<Block> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(take_block(kMiB));
  for (const Block block : blocks) give_block(block);
  EXPECT_EQ(reserved() - before, static_cast<int64_t>(3 * kMiB));
  set_block_cache_limit(0);
  EXPECT_EQ(reserved(), before);
  give_block(take_block(8 * kMiB));
  EXPECT_EQ(reserved(), before);
}

TEST_F(BlockCacheTest, KeptBlocksOfOtherSizesMakeRoom) {
  const int64_t before = reserved();
  // A program that needs 40 MiB at a time, in blocks of ever other sizes, holds little more.
  for (size_t size = 40 * kMiB; size > 20 * kMiB; size -= kMiB) give_block(take_block(size));
  EXPECT_LE(reserved() - before, static_cast<int64_t>((40 + 5 + 5 + 16) * kMiB));
}

TEST_F(BlockCacheTest, TheMemoryLimitIsKept) {
  set_memory_limit(64 * kMiB);
  const Block held = take_block(50 * kMiB);
  EXPECT_THROW(take_block(40 * kMiB), std::bad_alloc);
  give_block(held);
  give_block(take_block(40 * kMiB));
}

TEST_F(BlockCacheTest, TheMemoryLimitIsKeptBetweenThreads) {
  set_memory_limit(100 * kMiB);
  for (int round = 0; round < 30; ++round) {
    std::atomic<int> taken{0};
    std::vector<Block> blocks(8);
    std::vector<std::thread> threads;
    for (Block& block : blocks) {
      block = {nullptr, 0};
      threads.emplace_back([&] {
        try {
          block = take_block(60 * kMiB);
          ++taken;
        } catch (const std::bad_alloc&) {
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(taken, 1);
    for (const Block block : blocks)
      if (block.data) give_block(block);
    empty_block_cache();
  }
}

TEST_F(BlockCacheTest, SegmentsAreListed) {
  const auto find = [](const void* address) {
    Segment found{};
    for_each_segment([&](const Segment& segment) {
      if (segment.address == address) found = segment;
    });
    return found;
  };
  const Block block = take_block(5 * kMiB);
  EXPECT_EQ(find(block.data).size, 5 * kMiB);
  EXPECT_EQ(find(block.data).capacity, block.capacity);
  give_block(block);
  EXPECT_EQ(find(block.data).capacity, block.capacity);
  EXPECT_EQ(find(block.data).size, 0);
  empty_block_cache();
  EXPECT_EQ(find(block.data).address, nullptr);
}

size_t random_size(std::mt19937_64& random) {
  const size_t bound = size_t{64} << std::uniform_int_distribution(0, 16)(random);
  return std::uniform_int_distribution<size_t>(1, bound)(random);
}

void torture(uint64_t seed, int rounds) {
  struct Held {
    Block block;
    size_t size;
    uint64_t seed;
  };
  std::mt19937_64 random(seed);
  std::vector<Held> held;
  for (int i = 0; i < rounds; ++i) {
    if (held.size() < 40 || random() % 2) {
      const size_t size = random_size(random);
      held.push_back({take_block(size), size, random()});
      fill(held.back().block, size, held.back().seed);
    }
    if (held.size() > 60 || random() % 2) {
      std::swap(held[random() % held.size()], held.back());
      ASSERT_TRUE(holds(held.back().block, held.back().size, held.back().seed));
      give_block(held.back().block);
      held.pop_back();
    }
    if (random() % 5000 == 0) empty_block_cache();
  }
  for (const Held& last : held) {
    ASSERT_TRUE(holds(last.block, last.size, last.seed));
    give_block(last.block);
  }
  empty_block_cache();
}

TEST_F(BlockCacheTest, BlocksNeverOverlap) { torture(1, 50'000); }

TEST_F(BlockCacheTest, BlocksNeverOverlapWithThreads) {
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed) threads.emplace_back([seed] { torture(seed, 20'000); });
  for (auto& thread : threads) thread.join();
}

// What one thread allocates another one frees, and nothing piles up.
TEST_F(BlockCacheTest, FreesByAnotherThreadDoNotPileUp) {
  const int64_t before = reserved();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Block> queue;
  bool done = false;
  std::thread consumer([&] {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return done || !queue.empty(); });
      if (queue.empty()) return;
      const Block block = queue.front();
      queue.pop_front();
      lock.unlock();
      give_block(block);
      changed.notify_all();
      lock.lock();
    }
  });
  std::mt19937_64 random(7);
  int64_t most = 0;
  for (int i = 0; i < 30'000; ++i) {
    const Block block = take_block(1 + random() % 100'000);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.size() < 50; });
    queue.push_back(block);
    changed.notify_all();
    if (i > 1000) most = std::max(most, reserved() - before);
  }
  {
    std::lock_guard guard(mutex);
    done = true;
  }
  changed.notify_all();
  consumer.join();
  EXPECT_LE(most, static_cast<int64_t>(60 * 125 * kKiB + 16 * kMiB + 16 * kMiB));
}

// As the storage layer does where there is one.
const bool is_protected = (protect_block_cache_at_fork(), true);

TEST_F(BlockCacheTest, AForkedChildGoesOnWhileThreadsAllocate) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) give_block(take_block(100'000));
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (const size_t size : {100, 100'000, 3'000'000}) give_block(take_block(size));
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
  }
  stop = true;
  other.join();
}

TEST_F(BlockCacheTest, BlocksMayBeFreedWhenTheirThreadIsOver) {
  std::vector<Block> blocks;
  std::thread([&] {
    for (int i = 0; i < 100; ++i) blocks.push_back(take_block(1000));
  }).join();
  for (const Block block : blocks) give_block(block);
}

}  // namespace
}  // namespace flexcpu::memory
