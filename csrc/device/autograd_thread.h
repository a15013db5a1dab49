#pragma once
// Backward runs on the thread that calls it, as on the CPU.
//
// The autograd engine would give an accelerator a thread of its own, whose OpenMP team then fights the caller's, and whose
// existence makes backward in forked children an error. Two measures together avoid that:
//   - the engine's thread pool is started while the device still reports no devices (keep_backward_on_caller);
//   - a thread that uses the device has autograd multithreading switched off (enter). InferenceMode restores the flag when
//     it ends, so every allocation and fallback sets it again.

#include <c10/core/AutogradState.h>

#include <atomic>

namespace flexcpu::device {

// Starts the engine's thread pool; device_count() is 0 before and 1 after.
void keep_backward_on_caller();
c10::DeviceIndex device_count() noexcept;

// Whether the process has used the device yet.
inline std::atomic<bool> was_used{false};

// To be called by every op that makes or fills a flex tensor.
inline void enter() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  if (!was_used.load(std::memory_order_relaxed)) [[unlikely]] was_used.store(true, std::memory_order_relaxed);
}

}  // namespace flexcpu::device
