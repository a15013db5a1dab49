#include "device/storage.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <pthread.h>

#include <cstring>
#include <mutex>
#include <new>

#include "device/allocator.h"
#include "device/storage_lock.h"
#include "memory/statistics.h"

namespace flexcpu::device {
namespace {

using memory::Buffer;

void hook(c10::StorageImpl* storage);

// The buffer under a DataPtr of ours; null for foreign bytes and for storages of no bytes.
Buffer* buffer_under(const c10::DataPtr& data) {
  return data.get_deleter() == &drop_owner ? static_cast<Buffer*>(data.get_context()) : nullptr;
}

c10::DataPtr data_ptr_on(Buffer* buffer, c10::Device device) {
  return {buffer ? buffer->data() : nullptr, buffer, &drop_owner, device};
}

Buffer* allocate(size_t nbytes) {
  if (nbytes == 0) return nullptr;
  try {
    return Buffer::allocate(nbytes);
  } catch (const std::bad_alloc&) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "flex out of memory. Tried to allocate ", nbytes, " bytes; ",
                     memory_allocated(), " bytes are allocated on the device.");
  }
}

void arm(c10::StorageImpl* storage) {
  if (!storage->has_materializer()) storage->set_materializer(&hook);
}

// Puts `fresh` in place of the storage's bytes and returns the old DataPtr, which the caller destroys after unlocking: a
// foreign deleter may want the GIL.
c10::DataPtr swap_in(c10::StorageImpl* storage, Buffer* fresh) {
  c10::DataPtr old = data_ptr_on(fresh, storage->device());
  std::swap(storage->_mutable_data_ptr_no_checks(), old);
  return old;
}

// Gives the storage bytes of its own, under its lock. Returns the old DataPtr where they were shared.
c10::DataPtr unshare(c10::StorageImpl* storage, Buffer* shared, bool discard) {
  Buffer* own = allocate(shared->size());
  if (!discard) {
    std::memcpy(own->data(), shared->data(), std::min(shared->size(), storage->nbytes()));
    memory::statistics().unshares.fetch_add(1, std::memory_order_relaxed);
  }
  return swap_in(storage, own);
}

// Keeps `storage` alive from a DataPtr over its bytes: they are neither ours nor can they be moved out of it.
c10::DataPtr data_ptr_keeping(c10::StorageImpl* storage, void* data) {
  c10::raw::intrusive_ptr::incref(storage);
  return {data, storage, [](void* p) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(p)); },
          storage->device()};
}

// c10 is about to hand out a mutable pointer, and will disarm the hook afterwards.
void hook(c10::StorageImpl* storage) { escape(storage); }

struct ForkHandlers {
  ForkHandlers() { pthread_atfork(&StorageLock::acquire_all, &StorageLock::release_all, &StorageLock::release_all); }
} const fork_handlers;

}  // namespace

void drop_owner(void* buffer) {
  if (buffer) static_cast<Buffer*>(buffer)->release();
}

void* escape(c10::StorageImpl* storage) {
  c10::DataPtr old;
  StorageLock lock(storage);
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (Buffer* buffer = buffer_under(data)) {
    while (!buffer->escape()) {
      old = unshare(storage, buffer, /*discard=*/false);
      buffer = buffer_under(data);
    }
    buffer->bump_generation();
  }
  return data.get();
}

Access read(c10::StorageImpl* storage) {
  StorageLock lock(storage);
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  return {data.get(), Pin(buffer_under(data), Pin::Use::kRead)};
}

Access write(c10::StorageImpl* storage, bool discard) {
  c10::DataPtr old;
  StorageLock lock(storage);
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  Buffer* buffer = buffer_under(data);
  if (buffer) {
    if (buffer->is_shared()) {
      old = unshare(storage, buffer, discard);
      buffer = buffer_under(data);
    }
    buffer->bump_generation();
  }
  return {data.get(), Pin(buffer, Pin::Use::kWrite)};
}

Pin buffer_of(c10::StorageImpl* storage) { return read(storage).pin; }

c10::intrusive_ptr<c10::StorageImpl> storage_on(Buffer* buffer, size_t nbytes, c10::Device device) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(nbytes), data_ptr_on(buffer, device),
      device.is_cpu() ? c10::GetCPUAllocator() : allocator(), /*resizable=*/true);
  storage->set_materializer(&hook);
  return storage;
}

c10::intrusive_ptr<c10::StorageImpl> new_storage(size_t nbytes, c10::Device device) {
  return storage_on(allocate(nbytes), nbytes, device);
}

Buffer* buffer_around(c10::DataPtr data, size_t nbytes) {
  if (Buffer* buffer = buffer_under(data)) {
    data.release_context();
    return buffer;
  }
  if (data.get() == nullptr) return nullptr;
  void* bytes = data.get();
  auto* holder = new c10::DataPtr(std::move(data));
  return Buffer::adopt(bytes, nbytes, holder, [](void* p) { delete static_cast<c10::DataPtr*>(p); });
}

c10::intrusive_ptr<c10::StorageImpl> share(c10::StorageImpl* storage, c10::Device device) {
  Buffer* buffer = nullptr;
  size_t nbytes;
  {
    StorageLock lock(storage);
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    nbytes = storage->nbytes();
    buffer = buffer_under(data);
    if (buffer ? !buffer->share() : data.get() != nullptr) return {};
  }
  return storage_on(buffer, nbytes, device);
}

c10::intrusive_ptr<c10::StorageImpl> alias(c10::StorageImpl* storage, c10::Device device) {
  escape(storage);
  Buffer* buffer;
  size_t nbytes;
  {
    StorageLock lock(storage);
    c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    nbytes = storage->nbytes();
    buffer = buffer_under(data);
    if (!buffer && data.get()) {
      buffer = buffer_around(storage->resizable() ? std::move(data) : data_ptr_keeping(storage, data.get()), nbytes);
      TORCH_CHECK(buffer->escape());
      if (!storage->resizable()) return storage_on(buffer, nbytes, device);
      data = data_ptr_on(buffer, storage->device());
      arm(storage);
    }
    if (buffer) buffer->alias();
  }
  return storage_on(buffer, nbytes, device);
}

bool replace_by_sharing(c10::StorageImpl* dst, c10::StorageImpl* src) {
  if (dst == src || dst->nbytes() != src->nbytes()) return false;
  Buffer* shared;
  {
    StorageLock lock(src);
    shared = buffer_under(src->_mutable_data_ptr_no_checks());
    if (!shared || !shared->share()) return false;
  }
  // The new owner: `dst`, or nobody.
  c10::DataPtr spare = data_ptr_on(shared, dst->device());
  StorageLock lock(dst);
  Buffer* own = buffer_under(dst->_mutable_data_ptr_no_checks());
  if (!own || own->is_escaped() || own->is_pinned_down()) return false;
  std::swap(dst->_mutable_data_ptr_no_checks(), spare);
  return true;
}

void install(c10::StorageImpl* storage, c10::DataPtr data, size_t nbytes) {
  const c10::Device device = storage->device();
  Buffer* buffer = buffer_around(std::move(data), nbytes);
  c10::DataPtr old;
  StorageLock lock(storage);
  old = data_ptr_on(buffer, device);
  std::swap(storage->_mutable_data_ptr_no_checks(), old);
  storage->set_nbytes(nbytes);
  arm(storage);
}

void resize(c10::StorageImpl* storage, size_t nbytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  Buffer* fresh = allocate(nbytes);
  c10::DataPtr old;
  StorageLock lock(storage);
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (fresh && data.get()) std::memcpy(fresh->data(), data.get(), std::min(nbytes, storage->nbytes()));
  old = swap_in(storage, fresh);
  storage->set_nbytes(nbytes);
  arm(storage);
}

}  // namespace flexcpu::device
