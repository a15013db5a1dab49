#pragma once
// What the device's memory holds, counted as it changes. Every figure is process-wide and read without a lock.

#include <atomic>
#include <cstdint>

namespace flexcpu::memory {

// One figure of torch.cuda.memory_stats(): now, at its highest, and all that ever came and went.
class Gauge {
 public:
  void increase(int64_t amount) {
    allocated_.fetch_add(amount, std::memory_order_relaxed);
    const int64_t now = current_.fetch_add(amount, std::memory_order_relaxed) + amount;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void decrease(int64_t amount) {
    freed_.fetch_add(amount, std::memory_order_relaxed);
    current_.fetch_sub(amount, std::memory_order_relaxed);
  }
  void reset_peak() { peak_.store(current(), std::memory_order_relaxed); }
  void reset_accumulated() {
    allocated_.store(0, std::memory_order_relaxed);
    freed_.store(0, std::memory_order_relaxed);
  }

  int64_t current() const { return current_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  int64_t allocated() const { return allocated_.load(std::memory_order_relaxed); }
  int64_t freed() const { return freed_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> current_{0}, peak_{0}, allocated_{0}, freed_{0};
};

struct Statistics {
  Gauge allocations;               // buffers alive
  Gauge allocated_bytes;           // their sizes
  std::atomic<int64_t> shares{0};  // copies that became an increment
  std::atomic<int64_t> unshares{0};  // first writes that had to copy after all
  std::atomic<int64_t> out_of_memory{0};
};

Statistics& statistics();

}  // namespace flexcpu::memory
