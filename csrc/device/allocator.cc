#include "device/allocator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "device/storage.h"
#include "memory/block_cache.h"
#include "memory/statistics.h"

namespace flexcpu::device {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

template <typename Gauge>
c10::CachingAllocator::Stat stat_of(const Gauge& gauge) {
  return {.current = gauge.current(), .peak = gauge.peak(), .allocated = gauge.allocated(), .freed = gauge.freed()};
}

void report(const memory::PooledGauge& gauge, c10::CachingAllocator::StatArray& to) {
  using c10::CachingAllocator::StatType;
  to[static_cast<size_t>(StatType::AGGREGATE)] = stat_of(gauge);
  to[static_cast<size_t>(StatType::SMALL_POOL)] = stat_of(gauge.of(memory::Pool::kSmall));
  to[static_cast<size_t>(StatType::LARGE_POOL)] = stat_of(gauge.of(memory::Pool::kLarge));
}

std::string readable(size_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double count = static_cast<double>(bytes);
  for (; count >= 1024 && unit + 1 < std::size(kUnits); ++unit) count /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", count, kUnits[unit]);
  return text;
}

// The profiler sees allocations as those of CUDA's allocator.
void tell_profiler(const void* data, int64_t bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  const memory::Statistics& now = memory::statistics();
  c10::reportMemoryUsageToProfiler(const_cast<void*>(data), bytes, static_cast<size_t>(now.allocated_bytes.current()),
                                   static_cast<size_t>(now.reserved_bytes.current()), kFlex);
}

const bool observes = [] {
  memory::observer.store(&tell_profiler, std::memory_order_relaxed);
  return true;
}();

class FlexAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override { return new_bytes(nbytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &drop_owner; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { memory::empty_block_cache(); }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const memory::Statistics& now = memory::statistics();
    DeviceStats stats;
    report(now.allocations, stats.allocation);
    report(now.allocations, stats.active);
    report(now.segments, stats.segment);
    report(now.allocated_bytes, stats.allocated_bytes);
    report(now.reserved_bytes, stats.reserved_bytes);
    report(now.allocated_bytes, stats.active_bytes);
    report(now.allocated_bytes, stats.requested_bytes);
    stats.num_ooms = now.out_of_memory.load(std::memory_order_relaxed);
    stats.num_alloc_retries = now.retries.load(std::memory_order_relaxed);
    stats.num_device_alloc = now.segments.allocated();
    stats.num_device_free = now.segments.freed();
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {
    for (memory::PooledGauge* gauge : memory::statistics().gauges()) gauge->reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex) override {
    for (memory::PooledGauge* gauge : memory::statistics().gauges()) gauge->reset_peak();
  }
  // Free and total bytes of the machine: the device's memory is the host's.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return {page * static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)), page * static_cast<size_t>(sysconf(_SC_PHYS_PAGES))};
  }
};

FlexAllocator instance;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &instance);

}  // namespace

c10::DeviceAllocator* allocator() { return &instance; }

std::string out_of_memory_text(size_t nbytes) {
  const auto [free, total] = instance.getMemoryInfo(0);
  const auto allocated = static_cast<size_t>(memory::statistics().allocated_bytes.current());
  const auto reserved = static_cast<size_t>(memory::statistics().reserved_bytes.current());
  const size_t limit = memory::memory_limit();
  return c10::str("flex out of memory. Tried to allocate ", readable(nbytes), ". The machine has a total capacity of ",
                  readable(total), " of which ", readable(free), " is free. ",
                  limit < total ? c10::str("This process may use ", readable(limit), ". ") : std::string(),
                  "Of the allocated memory ", readable(allocated), " is allocated by PyTorch, and ",
                  readable(reserved - std::min(reserved, allocated)), " is reserved by PyTorch but unallocated.");
}

}  // namespace flexcpu::device
