#pragma once
// What the device's memory holds, counted as it changes. Every figure is process-wide and read without a lock.

#include <atomic>
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

struct Statistics {
  Gauge allocations;               // buffers alive
  Gauge allocated_bytes;           // their sizes
  std::atomic<int64_t> shares{0};  // copies that became an increment
  std::atomic<int64_t> unshares{0};  // first writes that had to copy after all
  std::atomic<int64_t> out_of_memory{0};
};

Statistics& statistics();

}  // namespace flexcpu::memory
