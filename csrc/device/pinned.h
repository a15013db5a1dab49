#pragma once
// Pinned memory. Host memory is all the same to this device, so pinning is a label: is_pinned() is true of what
// pin_memory() returned, and of nothing else.

#include <c10/core/Allocator.h>

namespace flexcpu::device {

c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);

}  // namespace flexcpu::device
