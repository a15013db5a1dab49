#pragma once
// Storages on shared buffers: the c10 side of memory/buffer.h.
//
// A storage of ours has DataPtr(bytes, context = Buffer, deleter = drop_owner), the bytes being all of the buffer or a part
// of it (a clone of a slice shares what it needs), and an armed materializer, the *hook*: c10
// calls it, once, when foreign code asks for a mutable pointer. The hook gives the storage bytes of its own and marks them
// escaped. Our own code never asks c10 for a mutable pointer, so an armed hook means that nobody else ever got one.
//
// A storage's DataPtr is read and replaced under that storage's lock: two threads may take data_ptr() of one shared tensor,
// or clone it, while a third makes it unshare. c10's own const readers take no lock and no pin. On a CPU storage, where CPU
// kernels are such readers, bytes that were shared therefore stay until the storage dies, even when it has moved to others.
//
// A flex storage's bytes may be pending (pending.h). Whatever below asks for bytes settles them first.
//
// CPU storages carry buffers too (Tensor.cpu() shares): everything here takes either device.

#include <c10/core/Storage.h>

#include <bitset>
#include <utility>
#include <vector>

#include "layout/arrangement.h"
#include "memory/buffer.h"

namespace flexcpu::device {

inline const c10::Device kFlex{c10::DeviceType::PrivateUse1, 0};
inline const c10::Device kCpu{c10::DeviceType::CPU};

// Keeps a buffer's bytes alive for the length of an op.
class Pin {
 public:
  using Use = memory::Buffer::Use;

  Pin() = default;
  Pin(memory::Buffer* buffer, Use use) : buffer_(buffer), use_(use) {
    if (buffer_) buffer_->pin(use_);
  }
  Pin(Pin&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)), use_(other.use_) {}
  Pin& operator=(Pin&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(use_, other.use_);
    return *this;
  }
  ~Pin() {
    if (buffer_) buffer_->unpin(use_);
  }
  memory::Buffer* buffer() const { return buffer_; }

 private:
  memory::Buffer* buffer_ = nullptr;
  Use use_ = Use::kRead;
};

// Bytes of a storage and what keeps them alive. `pin` is empty when the bytes are not a buffer of ours: then the storage
// itself has to outlive the access.
struct Access {
  void* data;
  Pin pin;
};

// A new DataPtr of ours on `nbytes` uninitialised bytes. Throws c10::OutOfMemoryError with the sizes.
c10::DataPtr new_bytes(size_t nbytes, c10::Device device = kFlex);

// A new storage of `nbytes` uninitialised bytes. Throws c10::OutOfMemoryError with the size.
c10::intrusive_ptr<c10::StorageImpl> new_storage(size_t nbytes, c10::Device device = kFlex);

// Makes a DataPtr one of ours on `device`: foreign bytes are wrapped into a buffer (they stay where they are; `data`'s
// deleter runs when the last owner is gone).
c10::DataPtr own(c10::DataPtr data, size_t nbytes, c10::Device device = kFlex);

// A new storage on a DataPtr of ours.
c10::intrusive_ptr<c10::StorageImpl> storage_on(c10::DataPtr data, size_t nbytes);

// A new storage that shares `nbytes` of `storage`'s bytes from `offset` on; null when they may not be shared, do not begin
// where a buffer of their own would (memory::kAlignment), or are less than half of the buffer (a small share must not keep
// many bytes alive). A CPU storage that had to leave shared bytes once shares no more: it keeps those (Buffer::keep).
c10::intrusive_ptr<c10::StorageImpl> share(c10::StorageImpl* storage, size_t offset, size_t nbytes, c10::Device device);

// A new flex storage that shares a CPU storage's bytes copy-on-write, whatever owns them (a mapped file); null when they have
// escaped. The caller answers for it that nobody else holds a pointer to them.
c10::intrusive_ptr<c10::StorageImpl> share_by_adopting(c10::StorageImpl* storage);

// A new storage over the same bytes for good: both see each other's writes. The bytes escape; whichever is resized first
// leaves them to the other.
c10::intrusive_ptr<c10::StorageImpl> alias(c10::StorageImpl* storage, c10::Device device);

// A view of a storage in elements of `element_size` bytes, for a rearranged copy: the copy's dimension d walks the view's
// dimension d, backwards if `flipped[d]`, and is dense in the order of `strides`.
struct Rearranged {
  layout::Extents sizes;
  layout::Strides view_strides;
  int64_t view_offset;
  std::bitset<layout::kMaxRank> flipped;
  layout::Strides strides;
  int64_t element_size;
};

// A new flex storage on such a copy, which is pending (pending.h), or shares the bytes where nothing is left to rearrange. Null
// when it has to be made at once: the bytes may not be shared, are many more than the copy's, or are pending and cannot be
// written as one arrangement.
c10::intrusive_ptr<c10::StorageImpl> defer(c10::StorageImpl* storage, const Rearranged& copy);

// Bytes to read, of pending ones in place: if they never were read, and a view of them (in elements of `element_size` bytes, at
// least one) can be walked in the source, then true, and `loops` are the view's over the source's elements, from `access.data`
// on. Else false, and `access` is as by read().
bool read_in_place(c10::StorageImpl* storage, layout::Extents sizes, layout::Strides strides, int64_t offset,
                   int64_t element_size, std::vector<layout::Loop>& loops, Access& access);

bool is_pending(c10::StorageImpl* storage);

// Makes `dst` an owner of `src`'s bytes instead of its own. False, and nothing done, when either may not be swapped or
// shared, or the sizes differ.
bool replace_by_sharing(c10::StorageImpl* dst, c10::StorageImpl* src);

// Bytes to read, as they are.
Access read(c10::StorageImpl* storage);
// Bytes to write: the storage's own, whoever shared them before. With `discard`, shared bytes are not copied.
Access write(c10::StorageImpl* storage, bool discard);

// Grows or shrinks to `nbytes`; the common prefix is kept. Peers keep their bytes and their size.
void resize(c10::StorageImpl* storage, size_t nbytes);

// Replaces a storage's bytes by `data` (foreign bytes are wrapped into a buffer), and arms the hook again.
void install(c10::StorageImpl* storage, c10::DataPtr data, size_t nbytes);

// Escapes: foreign code may hold on to the returned bytes and write to them at any time, as long as the storage lives.
void* escape(c10::StorageImpl* storage);

// The storage's buffer, pinned; null when its bytes are not ours.
Pin buffer_of(c10::StorageImpl* storage);

// The deleter of our DataPtrs; its context is a Buffer or null.
void drop_owner(void* buffer);

}  // namespace flexcpu::device
