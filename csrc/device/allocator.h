#pragma once
// The device's allocator, as c10 and torch.accelerator see it.

#include <c10/core/CachingDeviceAllocator.h>

namespace flexcpu::device {

c10::DeviceAllocator* allocator();

// Bytes alive in buffers.
int64_t memory_allocated();

}  // namespace flexcpu::device
