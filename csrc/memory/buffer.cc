#include "memory/buffer.h"

#include <cstdlib>
#include <new>
#include <stdexcept>

#include "memory/statistics.h"

namespace flexcpu::memory {

Statistics& statistics() {
  static Statistics instance;
  return instance;
}

namespace {

void count_new(size_t size) {
  statistics().allocations.increase(1);
  statistics().allocated_bytes.increase(static_cast<int64_t>(size));
}

}  // namespace

Buffer* Buffer::allocate(size_t size) {
  // malloc serves small blocks from the thread's own cache, which posix_memalign passes by: aligning one ourselves is cheaper.
  constexpr size_t kSmall = 768;
  void* block = nullptr;
  std::byte* header = nullptr;
  if (size <= kSmall) {
    block = std::malloc(2 * kAlignment + size);
    header = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(block) + kAlignment - 1) & ~(kAlignment - 1));
  } else if (size <= SIZE_MAX - kAlignment && posix_memalign(&block, kAlignment, kAlignment + size) == 0) {
    header = static_cast<std::byte*>(block);
  }
  if (block == nullptr) {
    statistics().out_of_memory.fetch_add(1, std::memory_order_relaxed);
    throw std::bad_alloc();
  }
  count_new(size);
  return new (header) Buffer(header + kAlignment, size, block, nullptr);
}

Buffer* Buffer::adopt(void* data, size_t size, void* context, void (*release)(void*)) {
  Buffer* buffer = new Buffer(data, size, context, release);
  count_new(size);
  return buffer;
}

bool Buffer::share() {
  uint64_t word = word_.load(std::memory_order_relaxed);
  do {
    if (word & (kEscaped | kPinnedDown) || (word & kOwners) == kOwners) return false;
  } while (!word_.compare_exchange_weak(word, word + kOneOwner, std::memory_order_acq_rel, std::memory_order_relaxed));
  statistics().shares.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool Buffer::escape() {
  uint64_t word = word_.load(std::memory_order_relaxed);
  do {
    if (is_shared(word)) return false;
  } while (!word_.compare_exchange_weak(word, word | kEscaped, std::memory_order_acq_rel, std::memory_order_relaxed));
  return true;
}

void Buffer::release() {
  uint64_t word = word_.load(std::memory_order_relaxed), left;
  do {
    left = word - kOneOwner;
    if (left & (kReaders | kWriters)) left |= kStranded;
  } while (!word_.compare_exchange_weak(word, left, std::memory_order_acq_rel, std::memory_order_relaxed));
  if (!(left & (kOwners | kReaders | kWriters))) destroy();
}

void Buffer::unpin(Use use) {
  uint64_t word = word_.load(std::memory_order_relaxed), left;
  do {
    left = word - one(use);
    if (!(left & (kReaders | kWriters))) left &= ~kStranded;
  } while (!word_.compare_exchange_weak(word, left, std::memory_order_acq_rel, std::memory_order_relaxed));
  if (!(left & (kOwners | kReaders | kWriters))) destroy();
}

void Buffer::refuse_pin(Use use) {
  word_.fetch_sub(one(use), std::memory_order_relaxed);
  throw std::length_error("flexcpu: too many uses of one buffer at a time");
}

void Buffer::keep(Buffer* other) {
  if (Buffer* before = other->kept_.exchange(nullptr, std::memory_order_acq_rel)) before->release();
  if (Buffer* before = kept_.exchange(other, std::memory_order_acq_rel)) before->release();
}

void Buffer::destroy() {
  if (Buffer* kept = kept_.load(std::memory_order_acquire)) kept->release();
  statistics().allocations.decrease(1);
  statistics().allocated_bytes.decrease(static_cast<int64_t>(size_));
  if (release_ == nullptr) {
    void* block = context_;
    this->~Buffer();
    std::free(block);
  } else {
    release_(context_);
    delete this;
  }
}

}  // namespace flexcpu::memory
