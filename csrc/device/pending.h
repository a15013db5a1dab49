#pragma once
// Pending bytes: a storage whose bytes are a rearranged copy of other bytes, not made yet.
//
// Such a storage has its size, and a DataPtr whose context says where the elements are. Its address is that of a page that
// nobody may read: code that takes a const pointer past c10's hook and this layer faults instead of reading what is not there.
// It owns the source's buffer with the source's storage, so whoever writes to that copies first. It is settled, the copy made, by
// whatever asks for its bytes; only a Reader that takes signed strides (operand.h) reads the source instead, once: what is
// read again is worth a copy.

#include <c10/core/Allocator.h>

#include <atomic>

#include "layout/arrangement.h"
#include "memory/buffer.h"

namespace flexcpu::device {

// The context of a pending DataPtr.
struct Pending {
  memory::Buffer* source;
  std::byte* origin;  // of the source's element 0 in the arrangement
  layout::Arrangement arrangement;
  int64_t element_size;
  bool was_read = false;
};

// The deleter of pending DataPtrs.
void drop_pending(void* pending);

inline Pending* pending_under(const c10::DataPtr& data) {
  return data.get_deleter() == &drop_pending ? static_cast<Pending*>(data.get_context()) : nullptr;
}

// The address of all pending bytes.
void* unreadable();

// Makes the copy, row-major in the arrangement, into `bytes`.
void carry_out(const Pending& pending, void* bytes);

// Copies of less are made at once; see bench/cases/flip.py and pending.py.
inline constexpr int64_t kLeastPendingFlip = 32 << 10;    // bytes
inline constexpr int64_t kLeastPendingClone = 256 << 10;  // bytes

// FLEXCPU_PENDING: on by default.
inline std::atomic<bool> may_be_pending{true};
// For tests: whether copies of any size are put off.
inline std::atomic<bool> are_small_pending{false};

}  // namespace flexcpu::device
