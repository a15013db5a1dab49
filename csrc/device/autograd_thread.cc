#include "device/autograd_thread.h"

#include <torch/csrc/autograd/engine.h>

namespace flexcpu::device {
namespace {

std::atomic<bool> counts{false};

}  // namespace

void keep_backward_on_caller() {
  torch::autograd::Engine::get_default_engine().initialize_device_threads_pool();
  counts.store(true, std::memory_order_release);
}

c10::DeviceIndex device_count() noexcept { return counts.load(std::memory_order_acquire) ? 1 : 0; }

}  // namespace flexcpu::device
