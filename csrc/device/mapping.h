#pragma once
// Shared memory between processes. The CPU storage that carries the mapping stays behind the flex storage's buffer, so that
// torch's own CPU machinery can pass it on.

#include <c10/core/StorageImpl.h>

namespace flexcpu::device {

// Puts a flex storage on the bytes of a CPU storage in shared memory, for good: its contents are the mapping's, it is never
// shared copy-on-write, and it cannot be resized. Throws when the mapping is smaller than the storage.
void put_on_mapping(c10::StorageImpl* flex, c10::StorageImpl* mapping);

// The CPU storage in shared memory behind a flex storage, or null.
c10::intrusive_ptr<c10::StorageImpl> mapping_of(c10::StorageImpl* flex);

// Whether a CPU storage in shared memory was made under the sharing strategy file_descriptor, not file_system.
bool is_mapped_by_descriptor(const c10::StorageImpl* mapping);

}  // namespace flexcpu::device
