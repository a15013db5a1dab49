#pragma once
// Buffer: reference-counted bytes that storages share copy-on-write.
//
// A buffer has *owners* (the storages on it) and *pins* (ops that read or write it right now). Its bytes live until both are
// gone. Owners decide who may write: one owner writes in place, one of several copies first.
//
// A pin keeps the bytes alive when its storage moves to other ones under it (data_ptr() of a shared tensor, while another
// thread reads that tensor). Such a *stranded* reader still counts on the bytes, though its owner is gone: until the pins
// are gone the last owner copies too. A buffer that is being written has no such readers.
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

  // Adds an owner, unless the buffer is escaped, pinned down, keeps another one, or is being written right now: the owner would
  // see the rest of the write. (Nor beyond 67 million owners.)
  [[nodiscard]] bool share();
  // Adds an owner that sees the others' writes, to an escaped or pinned down buffer.
  void alias() { word_.fetch_add(kOneOwner, std::memory_order_acq_rel); }
  void release();

  // Marks the bytes escaped, unless they are shared: then the caller must copy first.
  [[nodiscard]] bool escape();
  void pin_down() { word_.fetch_or(kPinnedDown, std::memory_order_acq_rel); }

  enum class Use { kRead, kWrite };
  // Throws std::length_error beyond 2 million readers or 4 thousand writers at a time: half of what their bits can count.
  void pin(Use use) {
    const uint64_t word = word_.fetch_add(one(use), std::memory_order_relaxed);
    if (word & too_many(use)) [[unlikely]] refuse_pin(use);
  }
  void unpin(Use use);

  // Lets `other` live as long as this new buffer, which is not shared from then on: no chain grows. The caller's ownership
  // of `other` passes over.
  void keep(Buffer* other) { kept_.store(other, std::memory_order_release); }

  // Every writer bumps the generation: what was derived from the bytes (packed weights) is good for one generation.
  void bump_generation() { generation_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

  // Whether a writer must copy first: other owners count on these bytes.
  bool is_shared() const { return is_shared(word_.load(std::memory_order_acquire)); }
  uint32_t owners() const { return static_cast<uint32_t>(word_.load(std::memory_order_acquire) & kOwners); }
  bool is_escaped() const { return word_.load(std::memory_order_acquire) & kEscaped; }
  bool is_pinned_down() const { return word_.load(std::memory_order_acquire) & kPinnedDown; }

  // The context that adopt() was given, if `release` was given with it; else null.
  void* context_of(void (*release)(void*)) const { return release_ == release ? context_ : nullptr; }

 private:
  Buffer(void* data, size_t size, void* context, void (*release)(void*))
      : data_(data), size_(size), context_(context), release_(release) {}
  ~Buffer() = default;

  static constexpr uint64_t kOneOwner = 1, kOwners = (uint64_t{1} << 26) - 1;
  static constexpr uint64_t kOneReader = uint64_t{1} << 26, kReaders = ((uint64_t{1} << 22) - 1) << 26;
  static constexpr uint64_t kOneWriter = uint64_t{1} << 48, kWriters = ((uint64_t{1} << 13) - 1) << 48;
  static constexpr uint64_t kStranded = uint64_t{1} << 61;  // an owner left while there were pins
  static constexpr uint64_t kEscaped = uint64_t{1} << 62;
  static constexpr uint64_t kPinnedDown = uint64_t{1} << 63;

  static constexpr uint64_t one(Use use) { return use == Use::kRead ? kOneReader : kOneWriter; }
  static constexpr uint64_t too_many(Use use) { return use == Use::kRead ? kOneReader << 21 : kOneWriter << 12; }
  [[noreturn]] void refuse_pin(Use use);
  static bool is_shared(uint64_t word) {
    if (word & (kEscaped | kPinnedDown)) return false;
    return (word & kOwners) > 1 || ((word & kStranded) && !(word & kWriters));
  }
  void destroy();

  std::atomic<uint64_t> word_{1};
  std::atomic<uint64_t> generation_{0};
  void* data_;
  size_t size_;
  void* context_;           // what release_ takes, or the block's capacity
  void (*release_)(void*);  // null: the header stands in front of the bytes
  std::atomic<Buffer*> kept_{nullptr};
};

}  // namespace flexcpu::memory
