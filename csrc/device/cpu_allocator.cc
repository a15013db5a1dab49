#include "device/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <mutex>
#include <unordered_map>

#include "device/storage.h"

namespace flexcpu::device {
namespace {

using memory::Buffer;

constexpr size_t kLeast = 64 << 10;  // malloc serves less without a page fault

thread_local bool works_for_flex = false;

// Buffers by the address of their bytes. c10's raw interface frees by address alone, and oneDNN's layer uses it.
class KernelBuffers {
 public:
  void add(Buffer* buffer) {
    std::lock_guard<std::mutex> guard(mutex_);
    buffers_[buffer->data()] = buffer;
  }
  Buffer* remove(void* data) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = buffers_.find(data);
    if (found == buffers_.end()) return nullptr;
    Buffer* buffer = found->second;
    buffers_.erase(found);
    return buffer;
  }
  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, Buffer*> buffers_;
};

KernelBuffers& kernel_buffers() {
  static auto* instance = new KernelBuffers;  // storages may outlive static destructors
  return *instance;
}

class CpuAllocator final : public c10::Allocator {
 public:
  explicit CpuAllocator(c10::Allocator* stock) : stock_(stock) { stock_deleter_ = stock->raw_deleter(); }

  c10::DataPtr allocate(size_t nbytes) override {
    if (!works_for_flex || nbytes < kLeast) return stock_->allocate(nbytes);
    c10::DataPtr bytes = new_bytes(nbytes, kCpu);
    auto* buffer = static_cast<Buffer*>(bytes.get_context());
    kernel_buffers().add(buffer);
    bytes.release_context();
    return {buffer->data(), buffer->data(), &free, kCpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t count) const override { stock_->copy_data(to, from, count); }

  static void free(void* data) {
    if (Buffer* buffer = kernel_buffers().remove(data))
      buffer->release();
    else
      stock_deleter_(data);
  }

 private:
  c10::Allocator* const stock_;
  inline static c10::DeleterFnPtr stock_deleter_ = nullptr;
};

// With the first kernel: a process that never uses the device keeps its allocator.
void install_allocator() {
  static const bool installed = [] {
    c10::SetCPUAllocator(new CpuAllocator(c10::GetCPUAllocator()));  // storages may outlive static destructors
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace

CpuKernelScope::CpuKernelScope() : outer_(works_for_flex) {
  install_allocator();
  works_for_flex = true;
}

CpuKernelScope::~CpuKernelScope() { works_for_flex = outer_; }

void protect_kernel_buffers_at_fork() {
  pthread_atfork([] { kernel_buffers().mutex().lock(); }, [] { kernel_buffers().mutex().unlock(); },
                 [] { kernel_buffers().mutex().unlock(); });
}

memory::Buffer* take_kernel_buffer(c10::DataPtr& data) {
  if (data.get_deleter() != &CpuAllocator::free) return nullptr;
  Buffer* buffer = kernel_buffers().remove(data.get());
  if (buffer) data.release_context();
  return buffer;
}

}  // namespace flexcpu::device
