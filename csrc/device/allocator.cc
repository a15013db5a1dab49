#include "device/allocator.h"

#include <unistd.h>

#include <cstring>

#include "device/storage.h"
#include "memory/statistics.h"

namespace flexcpu::device {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

void report(const memory::Gauge& gauge, c10::CachingAllocator::StatArray& to) {
  to[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)] = {
      .current = gauge.current(), .peak = gauge.peak(), .allocated = gauge.allocated(), .freed = gauge.freed()};
}

class FlexAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    auto storage = new_storage(nbytes);
    return std::move(storage->_mutable_data_ptr_no_checks());
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop_owner; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }

  bool initialized() override { return true; }
  // Freed blocks go back to the system at once: there is nothing to empty.
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const memory::Statistics& now = memory::statistics();
    DeviceStats stats;
    report(now.allocations, stats.allocation);
    report(now.allocations, stats.active);
    report(now.allocations, stats.segment);
    report(now.allocated_bytes, stats.allocated_bytes);
    report(now.allocated_bytes, stats.reserved_bytes);
    report(now.allocated_bytes, stats.active_bytes);
    report(now.allocated_bytes, stats.requested_bytes);
    stats.num_ooms = now.out_of_memory.load(std::memory_order_relaxed);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {
    memory::statistics().allocations.reset_accumulated();
    memory::statistics().allocated_bytes.reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex) override {
    memory::statistics().allocations.reset_peak();
    memory::statistics().allocated_bytes.reset_peak();
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
int64_t memory_allocated() { return memory::statistics().allocated_bytes.current(); }

}  // namespace flexcpu::device
