#include "device/pinned.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <cstring>
#include <map>
#include <mutex>

namespace flexcpu::device {
namespace {

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) return {nullptr, nullptr, &free, c10::Device(c10::DeviceType::CPU)};
    void* data = c10::alloc_cpu(nbytes);
    std::lock_guard<std::mutex> guard(mutex());
    blocks()[static_cast<const std::byte*>(data)] = nbytes;
    return {data, data, &free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }

  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  static bool contains(const void* data) {
    std::lock_guard<std::mutex> guard(mutex());
    auto block = blocks().upper_bound(static_cast<const std::byte*>(data));
    if (block == blocks().begin()) return false;
    --block;
    return static_cast<const std::byte*>(data) < block->first + block->second;
  }

 private:
  // Never destroyed: tensors may outlive static destructors.
  static std::mutex& mutex() {
    static auto* instance = new std::mutex;
    return *instance;
  }
  static std::map<const std::byte*, size_t>& blocks() {
    static auto* instance = new std::map<const std::byte*, size_t>;
    return *instance;
  }
  static void free(void* data) {
    if (!data) return;
    {
      std::lock_guard<std::mutex> guard(mutex());
      blocks().erase(static_cast<const std::byte*>(data));
    }
    c10::free_cpu(data);
  }
};

PinnedAllocator instance;
REGISTER_HOST_ALLOCATOR(c10::DeviceType::PrivateUse1, &instance)

}  // namespace

c10::Allocator* pinned_allocator() { return &instance; }
bool is_pinned(const void* data) { return PinnedAllocator::contains(data); }

}  // namespace flexcpu::device
