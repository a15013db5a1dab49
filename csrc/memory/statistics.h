#pragma once
// What the device's memory holds, counted as it changes. Every figure is process-wide and read without a lock.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace flexcpu::memory {

// One figure of torch.cuda.memory_stats(): now, at its highest, and all that ever came and went.
class Gauge {
 public:
  void increase(int64_t amount) {
    const int64_t allocated = allocated_.fetch_add(amount, std::memory_order_relaxed) + amount;
    const int64_t now = allocated - freed_.load(std::memory_order_relaxed);
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void decrease(int64_t amount) { freed_.fetch_add(amount, std::memory_order_relaxed); }
  void reset_peak() { peak_.store(current(), std::memory_order_relaxed); }
  // Later totals count from here.
  void reset_accumulated() {
    allocated_before_.store(allocated_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    freed_before_.store(freed_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

  int64_t current() const { return allocated_.load(std::memory_order_relaxed) - freed_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  int64_t allocated() const { return since(allocated_, allocated_before_); }
  int64_t freed() const { return since(freed_, freed_before_); }

 private:
  static int64_t since(const std::atomic<int64_t>& total, const std::atomic<int64_t>& before) {
    return total.load(std::memory_order_relaxed) - before.load(std::memory_order_relaxed);
  }

  std::atomic<int64_t> allocated_{0}, freed_{0}, peak_{0}, allocated_before_{0}, freed_before_{0};
};

// As torch.cuda's: of blocks that threads keep for themselves, and of all larger ones (block_cache.h).
enum class Pool { kSmall, kLarge };

Pool pool_of(size_t bytes);

// A figure of both pools.
class PooledGauge {
 public:
  void increase(Pool pool, int64_t amount) {
    pools_[static_cast<int>(pool)].increase(amount);
    raise_peak();
  }
  void decrease(Pool pool, int64_t amount) { pools_[static_cast<int>(pool)].decrease(amount); }
  void reset_peak() {
    for (Gauge& pool : pools_) pool.reset_peak();
    peak_.store(current(), std::memory_order_relaxed);
  }
  void reset_accumulated() {
    for (Gauge& pool : pools_) pool.reset_accumulated();
  }

  const Gauge& of(Pool pool) const { return pools_[static_cast<int>(pool)]; }
  int64_t current() const { return pools_[0].current() + pools_[1].current(); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  int64_t allocated() const { return pools_[0].allocated() + pools_[1].allocated(); }
  int64_t freed() const { return pools_[0].freed() + pools_[1].freed(); }

 private:
  void raise_peak() {
    const int64_t now = current();
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }

  Gauge pools_[2];
  std::atomic<int64_t> peak_{0};
};

struct Statistics {
  PooledGauge allocations;         // buffers alive
  PooledGauge allocated_bytes;     // their sizes
  PooledGauge segments;            // blocks of the system's memory, in use or kept
  PooledGauge reserved_bytes;      // their capacities
  std::atomic<int64_t> retries{0};  // the system had no more until what was kept went back
  std::atomic<int64_t> shares{0};  // copies that became an increment
  std::atomic<int64_t> unshares{0};  // first writes that had to copy after all
  std::atomic<int64_t> deferred{0};  // rearranged copies that were put off
  std::atomic<int64_t> settled{0};   // those that had to be made after all
  std::atomic<int64_t> out_of_memory{0};

  std::array<PooledGauge*, 4> gauges() { return {&allocations, &allocated_bytes, &segments, &reserved_bytes}; }
};

Statistics& statistics();

// A block that came from the system, or went back.
void count_reserved(size_t capacity);
void count_returned(size_t capacity);

// Is told of every buffer that comes (bytes > 0) and goes (bytes < 0), when there is one: the profiler.
using Observer = void (*)(const void* data, int64_t bytes);
inline std::atomic<Observer> observer{nullptr};

}  // namespace flexcpu::memory
