#include "device/storage.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <cstring>
#include <memory>
#include <new>

#include "device/allocator.h"
#include "device/cpu_allocator.h"
#include "device/pending.h"
#include "device/storage_lock.h"
#include "memory/block_cache.h"
#include "memory/statistics.h"
#include "parallel/parallel.h"

namespace flexcpu::device {
namespace {

using memory::Buffer;

void hook(c10::StorageImpl* storage);

// The buffer under a DataPtr of ours; null for foreign bytes and for storages of no bytes.
Buffer* buffer_under(const c10::DataPtr& data) {
  return data.get_deleter() == &drop_owner ? static_cast<Buffer*>(data.get_context()) : nullptr;
}

c10::DataPtr data_ptr_on(Buffer* buffer, void* data, c10::Device device) { return {data, buffer, &drop_owner, device}; }

c10::DataPtr data_ptr_on(Buffer* buffer, c10::Device device) {
  return data_ptr_on(buffer, buffer ? buffer->data() : nullptr, device);
}

Buffer* allocate(size_t nbytes) {
  if (nbytes == 0) return nullptr;
  TORCH_CHECK(static_cast<int64_t>(nbytes) >= 0, "flex was to allocate a negative number of bytes: ",
              static_cast<int64_t>(nbytes));
  try {
    return Buffer::allocate(nbytes);
  } catch (const std::bad_alloc&) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, out_of_memory_text(nbytes));
  }
}

void arm(c10::StorageImpl* storage) {
  if (!storage->has_materializer()) storage->set_materializer(&hook);
}

// Puts `data` in place of the storage's bytes and returns the old DataPtr, which the caller destroys after unlocking: a
// foreign deleter may want the GIL.
c10::DataPtr swap_in(c10::StorageImpl* storage, c10::DataPtr data) {
  std::swap(storage->_mutable_data_ptr_no_checks(), data);
  return data;
}

// Makes pending bytes, under the storage's lock, or leaves them uninitialised with `discard`. Returns the old DataPtr, for the
// caller to destroy after unlocking; an empty one when nothing was pending.
c10::DataPtr settle(c10::StorageImpl* storage, bool discard = false) {
  const Pending* pending = pending_under(storage->_mutable_data_ptr_no_checks());
  if (!pending) [[likely]] return {};
  Buffer* made = allocate(storage->nbytes());
  if (!discard) {
    carry_out(*pending, made->data());
    memory::statistics().settled.fetch_add(1, std::memory_order_relaxed);
  }
  return swap_in(storage, data_ptr_on(made, storage->device()));
}

void copy_bytes(void* dst, const void* src, size_t nbytes) {
  const auto count = static_cast<int64_t>(nbytes);
  const int team = parallel::team_size(count / static_cast<int64_t>(sizeof(float)), parallel::kElementGrain, parallel::max_threads());
  parallel::for_range(count, team, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(dst) + begin, static_cast<const std::byte*>(src) + begin, end - begin);
  });
}

// Gives the storage bytes of its own, under its lock. Returns the old DataPtr, for the caller to destroy after unlocking.
c10::DataPtr unshare(c10::StorageImpl* storage, bool discard) {
  const size_t nbytes = storage->nbytes();
  Buffer* own = allocate(nbytes);
  // CPU kernels of other threads may read these bytes at once: they are to find the old values or the new ones.
  if (own && (!discard || storage->device().is_cpu())) {
    copy_bytes(own->data(), storage->_mutable_data_ptr_no_checks().get(), nbytes);
    memory::statistics().unshares.fetch_add(1, std::memory_order_relaxed);
  }
  c10::DataPtr old = swap_in(storage, data_ptr_on(own, storage->device()));
  // CPU kernels read through raw const pointers, without a pin, and another thread's data_ptr() is no write to them: what they
  // read has to stay. The storage goes on owning the shared bytes behind its new ones, so that peers go on copying first.
  if (own && storage->device().is_cpu()) own->keep(static_cast<Buffer*>(old.release_context()));
  return old;
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
  // What is registered last is locked first: memory is allocated under a storage's lock, never the other way round.
  ForkHandlers() {
    memory::protect_block_cache_at_fork();
    protect_kernel_buffers_at_fork();
    pthread_atfork(&StorageLock::acquire_all, &StorageLock::release_all, &StorageLock::release_all);
  }
} const fork_handlers;

}  // namespace

void drop_owner(void* buffer) {
  if (buffer) static_cast<Buffer*>(buffer)->release();
}

void* escape(c10::StorageImpl* storage) {
  c10::DataPtr pending, old;
  StorageLock lock(storage);
  pending = settle(storage);
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (Buffer* buffer = buffer_under(data)) {
    if (!buffer->escape()) {
      old = unshare(storage, /*discard=*/false);
      buffer = buffer_under(data);
      TORCH_INTERNAL_ASSERT(!buffer || buffer->escape(), "new bytes have one owner");
    }
    if (buffer) buffer->bump_generation();
  }
  return data.get();
}

Access read(c10::StorageImpl* storage) {
  c10::DataPtr pending;
  StorageLock lock(storage);
  pending = settle(storage);
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  return {data.get(), Pin(buffer_under(data), Pin::Use::kRead)};
}

Access write(c10::StorageImpl* storage, bool discard) {
  c10::DataPtr pending, old;
  StorageLock lock(storage);
  pending = settle(storage, discard);
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  Buffer* buffer = buffer_under(data);
  if (buffer) {
    if (buffer->is_shared()) {
      old = unshare(storage, discard);
      buffer = buffer_under(data);
    }
    if (buffer) buffer->bump_generation();
  }
  return {data.get(), Pin(buffer, Pin::Use::kWrite)};
}

Pin buffer_of(c10::StorageImpl* storage) { return read(storage).pin; }

c10::DataPtr own(c10::DataPtr data, size_t nbytes, c10::Device device) {
  if (data.get_deleter() == &drop_owner) {
    data.unsafe_set_device(device);
    return data;
  }
  if (data.get() == nullptr || nbytes == 0) return data_ptr_on(nullptr, device);
  if (Buffer* buffer = take_kernel_buffer(data)) return data_ptr_on(buffer, device);
  void* bytes = data.get();
  auto holder = std::make_unique<c10::DataPtr>(std::move(data));
  Buffer* buffer = Buffer::adopt(bytes, nbytes, holder.get(), [](void* p) { delete static_cast<c10::DataPtr*>(p); });
  holder.release();
  return data_ptr_on(buffer, device);
}

c10::intrusive_ptr<c10::StorageImpl> storage_on(c10::DataPtr data, size_t nbytes) {
  c10::Allocator* const source = data.device().is_cpu() ? c10::GetCPUAllocator() : allocator();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(nbytes),
                                                       std::move(data), source, /*resizable=*/true);
  storage->set_materializer(&hook);
  return storage;
}

c10::DataPtr new_bytes(size_t nbytes, c10::Device device) { return data_ptr_on(allocate(nbytes), device); }

c10::intrusive_ptr<c10::StorageImpl> new_storage(size_t nbytes, c10::Device device) {
  return storage_on(new_bytes(nbytes, device), nbytes);
}

c10::intrusive_ptr<c10::StorageImpl> share(c10::StorageImpl* storage, size_t offset, size_t nbytes, c10::Device device) {
  c10::DataPtr pending, shared;
  {
    StorageLock lock(storage);
    pending = settle(storage);
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    if (offset + nbytes > storage->nbytes() || offset % memory::kAlignment != 0) return {};
    Buffer* buffer = buffer_under(data);
    if (buffer ? 2 * nbytes < buffer->size() || !buffer->share() : data.get() != nullptr) return {};
    shared = data_ptr_on(buffer, static_cast<std::byte*>(data.get()) + offset, device);
  }
  return storage_on(std::move(shared), nbytes);
}

c10::intrusive_ptr<c10::StorageImpl> share_by_adopting(c10::StorageImpl* storage) {
  const size_t nbytes = storage->nbytes();
  {
    StorageLock lock(storage);
    const c10::Device home = storage->device();
    swap_in(storage, own(swap_in(storage, {}), nbytes, home));
    arm(storage);
  }
  return share(storage, /*offset=*/0, nbytes, kFlex);
}

c10::intrusive_ptr<c10::StorageImpl> alias(c10::StorageImpl* storage, c10::Device device) {
  escape(storage);
  c10::DataPtr aliased, old;
  size_t nbytes;
  {
    StorageLock lock(storage);
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    nbytes = storage->nbytes();
    if (!buffer_under(data) && data.get() && nbytes != 0) {
      const bool moves = storage->resizable();
      const c10::Device home = data.device();
      c10::DataPtr foreign = moves ? swap_in(storage, {}) : data_ptr_keeping(storage, data.get());
      aliased = own(std::move(foreign), nbytes, device);
      TORCH_INTERNAL_ASSERT(buffer_under(aliased)->escape(), "new buffers have one owner");
      if (moves) {
        buffer_under(aliased)->alias();
        old = swap_in(storage, data_ptr_on(buffer_under(aliased), home));
        arm(storage);
      }
    } else {
      if (Buffer* buffer = buffer_under(data)) buffer->alias();
      aliased = data_ptr_on(buffer_under(data), data.get(), device);
    }
  }
  return storage_on(std::move(aliased), nbytes);
}

c10::intrusive_ptr<c10::StorageImpl> defer(c10::StorageImpl* storage, const Rearranged& copy) {
  const int64_t size = copy.element_size;
  int64_t nbytes = size;
  for (const int64_t extent : copy.sizes) nbytes *= extent;
  if (static_cast<size_t>(nbytes) > memory::machine_memory()) return {};
  std::vector<layout::Loop> loops;
  std::unique_ptr<Pending> pending(new Pending{nullptr, nullptr, {}, size});
  {
    StorageLock lock(storage);
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    if (const Pending* from = pending_under(data)) {
      int64_t offset;
      if (from->element_size != size ||
          !layout::compose(from->arrangement, copy.sizes, copy.view_strides, copy.view_offset, loops, offset))
        return {};
      pending->source = from->source;
      pending->origin = from->origin + offset * size;
    } else {
      pending->source = buffer_under(data);
      pending->origin = static_cast<std::byte*>(data.get()) + copy.view_offset * size;
      for (size_t d = 0; d < copy.sizes.size(); ++d)
        loops.push_back({static_cast<int>(d), copy.sizes[d], copy.view_strides[d]});
    }
    if (!pending->source || static_cast<size_t>(2 * nbytes) < pending->source->size() || !pending->source->share()) return {};
  }
  c10::DataPtr data(unreadable(), pending.get(), &drop_pending, kFlex);  // owns the source from here on
  Pending& now = *pending.release();

  for (layout::Loop& loop : loops) {
    if (!copy.flipped[loop.axis]) continue;
    now.origin += (loop.extent - 1) * loop.stride * size;
    loop.stride = -loop.stride;
  }
  std::vector<int64_t> strides(loops.size());
  for (size_t i = loops.size(); i-- > 0;) {
    const bool continues = i + 1 < loops.size() && loops[i + 1].axis == loops[i].axis;
    strides[i] = continues ? strides[i + 1] * loops[i + 1].extent : copy.strides[loops[i].axis];
  }
  if (!layout::arrange(loops, strides, now.arrangement)) return {};
  if (now.arrangement.is_trivial() && reinterpret_cast<uintptr_t>(now.origin) % memory::kAlignment == 0) {
    Buffer* const source = now.source;
    std::byte* const origin = now.origin;
    data.release_context();
    delete &now;
    return storage_on(data_ptr_on(source, origin, kFlex), static_cast<size_t>(nbytes));
  }
  memory::statistics().deferred.fetch_add(1, std::memory_order_relaxed);
  return storage_on(std::move(data), static_cast<size_t>(nbytes));
}

bool read_in_place(c10::StorageImpl* storage, layout::Extents sizes, layout::Strides strides, int64_t offset,
                   int64_t element_size, std::vector<layout::Loop>& loops, Access& access) {
  c10::DataPtr settled;
  StorageLock lock(storage);
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (Pending* pending = pending_under(data)) [[unlikely]] {
    int64_t source_offset;
    if (!pending->was_read && pending->element_size == element_size &&
        layout::compose(pending->arrangement, sizes, strides, offset, loops, source_offset)) {
      pending->was_read = true;
      access = {pending->origin + source_offset * element_size, Pin(pending->source, Pin::Use::kRead)};
      return true;
    }
    settled = settle(storage);
  }
  access = {data.get(), Pin(buffer_under(data), Pin::Use::kRead)};
  return false;
}

bool is_pending(c10::StorageImpl* storage) {
  StorageLock lock(storage);
  return pending_under(storage->_mutable_data_ptr_no_checks()) != nullptr;
}

bool replace_by_sharing(c10::StorageImpl* dst, c10::StorageImpl* src) {
  // A CPU storage's bytes stay where CPU kernels of other threads may read them.
  if (dst == src || dst->nbytes() != src->nbytes() || dst->device().is_cpu()) return false;
  c10::DataPtr pending, spare;  // the new owner: `dst`, or nobody
  {
    StorageLock lock(src);
    pending = settle(src);
    const c10::DataPtr& data = src->_mutable_data_ptr_no_checks();
    Buffer* shared = buffer_under(data);
    if (!shared || !shared->share()) return false;
    spare = data_ptr_on(shared, data.get(), dst->device());
  }
  StorageLock lock(dst);
  const c10::DataPtr& data = dst->_mutable_data_ptr_no_checks();
  Buffer* replaced = buffer_under(data);
  if (pending_under(data)) {
    spare = swap_in(dst, std::move(spare));
    return true;
  }
  if (!replaced || replaced->is_escaped() || replaced->is_pinned_down()) return false;
  spare = swap_in(dst, std::move(spare));
  return true;
}

void install(c10::StorageImpl* storage, c10::DataPtr data, size_t nbytes) {
  c10::DataPtr fresh = own(std::move(data), nbytes, storage->device());
  StorageLock lock(storage);
  fresh = swap_in(storage, std::move(fresh));
  storage->set_nbytes(nbytes);
  arm(storage);
}

void resize(c10::StorageImpl* storage, size_t nbytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  c10::DataPtr pending, fresh = data_ptr_on(allocate(nbytes), storage->device());
  StorageLock lock(storage);
  pending = settle(storage);
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (fresh.get() && data.get()) std::memcpy(fresh.get(), data.get(), std::min(nbytes, storage->nbytes()));
  fresh = swap_in(storage, std::move(fresh));
  storage->set_nbytes(nbytes);
  arm(storage);
}

}  // namespace flexcpu::device
