#include "memory/buffer.h"

#include <new>
#include <stdexcept>

#include "memory/block_cache.h"
#include "memory/statistics.h"

namespace flexcpu::memory {

namespace {

void count_new(const void* data, size_t size) {
  const Pool pool = pool_of(size);
  statistics().allocations.increase(pool, 1);
  statistics().allocated_bytes.increase(pool, static_cast<int64_t>(size));
  if (Observer tell = observer.load(std::memory_order_relaxed)) tell(data, static_cast<int64_t>(size));
}

void count_gone(const void* data, size_t size) {
  const Pool pool = pool_of(size);
  statistics().allocations.decrease(pool, 1);
  statistics().allocated_bytes.decrease(pool, static_cast<int64_t>(size));
  if (Observer tell = observer.load(std::memory_order_relaxed)) tell(data, -static_cast<int64_t>(size));
}

}  // namespace

Buffer* Buffer::allocate(size_t size) {
  Block block;
  try {
    block = take_block(size);
  } catch (const std::bad_alloc&) {
    statistics().out_of_memory.fetch_add(1, std::memory_order_relaxed);
    throw;
  }
  static_assert(sizeof(Buffer) <= kHeader);
  auto* buffer = new (block.data - kHeader) Buffer(block.data, size, reinterpret_cast<void*>(block.capacity), nullptr);
  count_new(block.data, size);
  return buffer;
}

Buffer* Buffer::adopt(void* data, size_t size, void* context, void (*release)(void*)) {
  Buffer* buffer = new Buffer(data, size, context, release);
  count_reserved(size);
  count_new(data, size);
  return buffer;
}

bool Buffer::share() {
  if (kept_.load(std::memory_order_acquire)) return false;
  uint64_t word = word_.load(std::memory_order_relaxed);
  do {
    if (word & (kEscaped | kPinnedDown | kWriters) || (word & kOwners) == kOwners) return false;
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

void Buffer::destroy() {
  if (Buffer* kept = kept_.load(std::memory_order_acquire)) kept->release();
  count_gone(data_, size_);
  if (release_ == nullptr) {
    const Block block{static_cast<std::byte*>(data_), reinterpret_cast<size_t>(context_)};
    this->~Buffer();
    give_block(block);
  } else {
    count_returned(size_);
    release_(context_);
    delete this;
  }
}

}  // namespace flexcpu::memory
