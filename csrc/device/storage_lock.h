#pragma once
// One lock per storage, out of a fixed table: a StorageImpl has no room for one.

#include <array>
#include <atomic>
#include <cstdint>

namespace flexcpu::device {

class StorageLock {
 public:
  explicit StorageLock(const void* storage) : flag_(flag_of(storage)) { acquire(flag_); }
  ~StorageLock() { release(flag_); }
  StorageLock(const StorageLock&) = delete;
  StorageLock& operator=(const StorageLock&) = delete;

  // Around fork(): a child must not inherit a lock whose holder does not exist there.
  static void acquire_all() {
    for (auto& flag : flags_) acquire(flag);
  }
  static void release_all() {
    for (auto& flag : flags_) release(flag);
  }

 private:
  static std::atomic_flag& flag_of(const void* storage) {
    // StorageImpls are some hundred bytes apart: the low bits say nothing. Fibonacci hashing spreads the rest.
    return flags_[(reinterpret_cast<uintptr_t>(storage) * 0x9e37'79b9'7f4a'7c15u) >> (64 - kLogSlots)];
  }
  // A holder may be copying gigabytes: wait() sleeps after a short spin.
  static void acquire(std::atomic_flag& flag) {
    while (flag.test_and_set(std::memory_order_acquire)) flag.wait(true, std::memory_order_relaxed);
  }
  static void release(std::atomic_flag& flag) {
    flag.clear(std::memory_order_release);
    flag.notify_one();
  }

  static constexpr int kLogSlots = 8;
  inline static std::array<std::atomic_flag, 1 << kLogSlots> flags_{};
  std::atomic_flag& flag_;
};

}  // namespace flexcpu::device
