#pragma once
// The device's allocator, as c10 and torch.accelerator see it.

#include <c10/core/CachingDeviceAllocator.h>

#include <string>

namespace flexcpu::device {

c10::DeviceAllocator* allocator();

// What a c10::OutOfMemoryError says of an allocation of `nbytes` that failed.
std::string out_of_memory_text(size_t nbytes);

}  // namespace flexcpu::device
