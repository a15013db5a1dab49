#pragma once
// Where CPU kernels get memory while they work for flex tensors: from kLeast bytes on, results are born as buffers of the
// block cache and become flex tensors without a copy. Everywhere else the CPU's allocator is what it was.

#include <c10/core/Allocator.h>

#include "memory/buffer.h"

namespace flexcpu::device {

// For the length of a CPU kernel's call, on this thread.
class CpuKernelScope {
 public:
  CpuKernelScope();
  ~CpuKernelScope();
  CpuKernelScope(const CpuKernelScope&) = delete;
  CpuKernelScope& operator=(const CpuKernelScope&) = delete;

 private:
  const bool outer_;
};

// Once, before any lock under which kernel buffers are taken over is protected at fork().
void protect_kernel_buffers_at_fork();

// The buffer under a CPU kernel's allocation, whose ownership passes to the caller, leaving `data` empty; null, and `data` as
// it was, for any other bytes.
memory::Buffer* take_kernel_buffer(c10::DataPtr& data);

}  // namespace flexcpu::device
