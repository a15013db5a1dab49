// Storages under threads: shares, reads, writes, escapes, resizes and frees of the same tensors, on std::thread.
//
//   storage_stress [ROUNDS=1000000] [THREADS=4] [through-c10]
//
// Threads work on common slots at once with what a program may do to one tensor at once: share it, read it, ask it for its
// raw pointer. What needs a tensor of one's own (writing, resizing) they do to shares, and then check that every peer still
// holds its pattern. Built with -fsanitize=thread or address,undefined; linked with libc10 and the storage layer alone: no
// OpenMP, no Python, no suppressions. Exits with 1 when a peer was corrupted.
//
// Raw pointers of a common tensor come from escape(), which is all that the hook does. With `through-c10` they come from
// StorageImpl::mutable_data(), as in a program. c10 disarms its hook without a lock there: two threads that ask at once
// race on its own flag (with one and the same value), which ThreadSanitizer reports, so that mode is for the others.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "device/storage.h"

namespace {

using flexcpu::device::kFlex;
using Storage = c10::intrusive_ptr<c10::StorageImpl>;

constexpr size_t kBytes = 256;
constexpr int kSlots = 8;

// A slot's storage is filled with one byte value before it is published and never written through the slot.
struct Slot {
  std::mutex mutex;
  Storage storage;
  unsigned char pattern = 0;
};

Slot slots[kSlots];
bool through_c10 = false;
std::atomic<long> corrupted{0}, shares{0}, deferred{0}, refusals{0}, escapes{0}, writes{0}, resizes{0}, replaced{0};

void expect_pattern(const void* data, size_t count, unsigned char pattern) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < count; ++i)
    if (bytes[i] != pattern) {
      corrupted.fetch_add(1);
      return;
    }
}

void check(const Storage& storage, unsigned char pattern) {
  const auto access = flexcpu::device::read(storage.get());
  expect_pattern(access.data, kBytes, pattern);
}

void fill(const Storage& storage, unsigned char pattern, bool discard) {
  const auto access = flexcpu::device::write(storage.get(), discard);
  std::fill_n(static_cast<unsigned char*>(access.data), kBytes, pattern);
}

Storage share_whole(const Storage& storage, c10::Device device = kFlex) {
  return flexcpu::device::share(storage.get(), /*offset=*/0, storage->nbytes(), device);
}

// A flip that is put off; every order of the pattern is the same.
Storage flipped(const Storage& storage) {
  const int64_t sizes[] = {kBytes}, strides[] = {1};
  return flexcpu::device::defer(storage.get(), {.sizes = sizes, .view_strides = strides, .view_offset = 0, .flipped = 1,
                                                .strides = strides, .element_size = 1});
}

void read_flipped(const Storage& storage, unsigned char pattern) {
  const int64_t sizes[] = {kBytes}, strides[] = {1};
  std::vector<flexcpu::layout::Loop> loops;
  flexcpu::device::Access access;
  if (flexcpu::device::read_in_place(storage.get(), sizes, strides, /*offset=*/0, /*element_size=*/1, loops, access))
    expect_pattern(static_cast<const std::byte*>(access.data) - (kBytes - 1), kBytes, pattern);
  else
    expect_pattern(access.data, kBytes, pattern);
}

void publish(Slot& slot, unsigned char pattern) {
  Storage fresh = flexcpu::device::new_storage(kBytes);
  fill(fresh, pattern, /*discard=*/true);
  if (pattern % 2) fresh = flipped(fresh);
  std::lock_guard<std::mutex> guard(slot.mutex);
  slot.storage = std::move(fresh);
  slot.pattern = pattern;
}

// What one thread does to a share, which is its own.
void use_share(const Storage& share, unsigned char pattern, std::mt19937& random) {
  check(share, pattern);
  const auto other = static_cast<unsigned char>(pattern + 1);
  switch (random() % 8) {
    case 6:  // pending bytes, read where they are, then written
      if (Storage pending = flipped(share)) {
        deferred.fetch_add(1);
        read_flipped(pending, pattern);
        if (random() % 2) fill(share, other, /*discard=*/random() % 2 == 0);
        if (random() % 2) check(pending, pattern);
        if (random() % 2) fill(pending, other, /*discard=*/random() % 2 == 0);
      }
      break;
    case 0:
      fill(share, other, /*discard=*/random() % 2 == 0);
      check(share, other);
      writes.fetch_add(1);
      break;
    case 1:  // partial write: the rest comes from the shared bytes
      static_cast<unsigned char*>(flexcpu::device::write(share.get(), /*discard=*/false).data)[0] = other;
      expect_pattern(static_cast<const unsigned char*>(flexcpu::device::read(share.get()).data) + 1, kBytes - 1, pattern);
      writes.fetch_add(1);
      break;
    case 2:
      flexcpu::device::resize(share.get(), 2 * kBytes);
      check(share, pattern);
      flexcpu::device::resize(share.get(), 0);
      flexcpu::device::resize(share.get(), kBytes);
      fill(share, other, /*discard=*/false);
      resizes.fetch_add(1);
      break;
    case 3:  // foreign code writes through a raw pointer, then the share is shared no more
      static_cast<unsigned char*>(share->mutable_data())[kBytes - 1] = other;
      if (share_whole(share)) corrupted.fetch_add(1);
      escapes.fetch_add(1);
      break;
    case 4:  // a share of the share, on the CPU, written by foreign code
      if (Storage second = share_whole(share, c10::Device(c10::DeviceType::CPU))) {
        std::fill_n(static_cast<unsigned char*>(second->mutable_data()), kBytes, other);
        check(share, pattern);
      }
      break;
    default:
      break;  // only read, then freed
  }
}

void work(long rounds, unsigned seed) {
  std::mt19937 random(seed);
  for (long round = 0; round < rounds; ++round) {
    Slot& slot = slots[random() % kSlots];
    Storage storage;
    unsigned char pattern;
    {
      std::lock_guard<std::mutex> guard(slot.mutex);
      storage = slot.storage;
      pattern = slot.pattern;
    }
    switch (random() % 16) {
      case 0:
        publish(slot, static_cast<unsigned char>(random()));
        replaced.fetch_add(1);
        break;
      case 1:  // data_ptr() of a tensor that others share and read now
        expect_pattern(through_c10 ? storage->mutable_data() : flexcpu::device::escape(storage.get()), kBytes, pattern);
        escapes.fetch_add(1);
        break;
      case 2:  // load_state_dict() of whole tensors: share instead of copying
      {
        Storage target = flexcpu::device::new_storage(kBytes);
        if (flexcpu::device::replace_by_sharing(target.get(), storage.get())) check(target, pattern);
        break;
      }
      case 3:  // two threads may read one pending storage, or flip it back
        read_flipped(storage, pattern);
        if (Storage back = flipped(storage)) check(back, pattern);
        break;
      default:
        if (Storage share = share_whole(storage)) {
          shares.fetch_add(1);
          use_share(share, pattern, random);
        } else {
          refusals.fetch_add(1);  // escaped: a clone would copy
        }
        break;
    }
    check(storage, pattern);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const long rounds = argc > 1 ? std::atol(argv[1]) : 1'000'000;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 4;
  through_c10 = argc > 3 && std::string_view(argv[3]) == "through-c10";
  for (int i = 0; i < kSlots; ++i) publish(slots[i], static_cast<unsigned char>(17 * i));

  std::vector<std::thread> team;
  for (int i = 0; i < threads; ++i) team.emplace_back(work, rounds / threads, 1u + static_cast<unsigned>(i));
  for (auto& thread : team) thread.join();
  for (auto& slot : slots) slot.storage.reset();

  std::printf("%ld rounds on %d threads: %ld shares, %ld refused, %ld deferred, %ld writes, %ld escapes, %ld resizes, %ld replaced; "
              "%ld peers corrupted\n",
              rounds, threads, shares.load(), refusals.load(), deferred.load(), writes.load(), escapes.load(), resizes.load(),
              replaced.load(), corrupted.load());
  return corrupted.load() == 0 ? 0 : 1;
}
