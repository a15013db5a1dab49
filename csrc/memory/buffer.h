#pragma once
// Buffer: reference-counted bytes that storages share copy-on-write.
//
// A buffer has *owners* (the storages on it) and *pins* (ops that read or write it right now). Its bytes live until both are
// gone. Owners decide who may write: one owner writes in place, one of several copies first. Pins only keep bytes alive.
//
// States, each for good:
//   tracked      no foreign code ever took a mutable pointer: owners may be added
//   escaped      foreign code holds a mutable pointer (numpy, DLPack, data_ptr()): never shared again, never swapped
//   pinned down  other processes see the bytes (shared memory): never shared, never swapped
//
// Owners, pins and both flags are one atomic word, so that sharing and escaping, which race, exclude each other: share()
// fails once escaped, escape() fails while there is a second owner.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace flexcpu::memory {

inline constexpr size_t kAlignment = 64;  // of every buffer's bytes: a cache line, an AVX-512 vector

class Buffer {
 public:
  // A buffer of `size` uninitialised bytes with one owner, the header in front of the bytes. Throws std::bad_alloc.
  static Buffer* allocate(size_t size);

  // A buffer with one owner on bytes that exist already; release(context) frees them. Throws std::bad_alloc, and the bytes
  // are then still the caller's.
  static Buffer* adopt(void* data, size_t size, void* context, void (*release)(void*));

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  size_t size() const { return size_; }

  // Adds an owner, unless the buffer is escaped or pinned down.
  [[nodiscard]] bool share();
  void release();

  // Marks the bytes escaped, unless there is a second owner: then the caller must copy first.
  [[nodiscard]] bool escape();
  void pin_down() { word_.fetch_or(kPinnedDown, std::memory_order_acq_rel); }

  void pin() { word_.fetch_add(kOnePin, std::memory_order_relaxed); }
  void unpin() { drop(kOnePin); }

  // Every writer bumps the generation: what was derived from the bytes (packed weights) is good for one generation.
  void bump_generation() { generation_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

  bool is_unique() const { return owners() == 1; }
  uint32_t owners() const { return static_cast<uint32_t>(word_.load(std::memory_order_acquire) & kOwners); }
  bool is_escaped() const { return word_.load(std::memory_order_acquire) & kEscaped; }
  bool is_pinned_down() const { return word_.load(std::memory_order_acquire) & kPinnedDown; }

  // The context that adopt() was given, if `release` was given with it; else null.
  void* context_of(void (*release)(void*)) const { return release_ == release ? context_ : nullptr; }

 private:
  Buffer(void* data, size_t size, void* context, void (*release)(void*))
      : data_(data), size_(size), context_(context), release_(release) {}
  ~Buffer() = default;

  void drop(uint64_t what);
  void destroy();

  static constexpr uint64_t kOwners = 0xffff'ffff;
  static constexpr uint64_t kOnePin = uint64_t{1} << 32;
  static constexpr uint64_t kEscaped = uint64_t{1} << 62;
  static constexpr uint64_t kPinnedDown = uint64_t{1} << 63;

  std::atomic<uint64_t> word_{1};
  std::atomic<uint64_t> generation_{0};
  void* data_;
  size_t size_;
  void* context_;
  void (*release_)(void*);  // null: the header stands in front of the bytes
};

static_assert(sizeof(Buffer) <= kAlignment, "the header fits in front of aligned bytes");

}  // namespace flexcpu::memory
