#include "memory/block_cache.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>
#include <utility>

#include "memory/statistics.h"

namespace flexcpu::memory {
namespace {

constexpr size_t kKiB = 1024, kMiB = kKiB * kKiB;
constexpr size_t kSmall = kSmallBlock;
constexpr size_t kHugePage = 2 * kMiB;  // x86-64
constexpr size_t kPage = 4 * kKiB;

// ---- Size classes ----

constexpr size_t kFine = kKiB;                           // multiples of 64 bytes up to here
constexpr int kFineClasses = kFine / 64, kSteps = 8;     // then kSteps classes to a doubling
constexpr int kClasses = kFineClasses + (48 - 10) * kSteps;
constexpr size_t kLargest = size_t{1} << 47;             // beyond any address space

constexpr int class_of(size_t size) {
  if (size <= kFine) return static_cast<int>((size - 1) / 64);
  const int exponent = std::bit_width(size - 1) - 1;
  const int step = static_cast<int>((size - 1) >> (exponent - 3)) & (kSteps - 1);
  return kFineClasses + (exponent - 10) * kSteps + step;
}

constexpr size_t capacity_of(int size_class) {
  if (size_class < kFineClasses) return static_cast<size_t>(size_class + 1) * 64;
  const int exponent = 10 + (size_class - kFineClasses) / kSteps, step = (size_class - kFineClasses) % kSteps;
  return static_cast<size_t>(kSteps + step + 1) << (exponent - 3);
}

constexpr int kSmallClasses = class_of(kSmall) + 1;
static_assert(capacity_of(class_of(kFine)) == kFine && capacity_of(class_of(kFine + 1)) == kFine + 128);
static_assert(capacity_of(kSmallClasses - 1) == kSmall);

// ---- The system's memory ----

// Large blocks have a page in front: their entry in the list of segments, and at its end the user's header.
struct SegmentLinks {
  SegmentLinks *previous, *next;
  size_t capacity, size;
};

SegmentLinks* segment_of(std::byte* data) { return reinterpret_cast<SegmentLinks*>(data - kPage); }

std::byte* map_huge(size_t capacity) {
  const size_t span = kPage + capacity;
  void* mapping = mmap(nullptr, span + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapping);
  const auto first = (reinterpret_cast<uintptr_t>(begin) + kPage + kHugePage - 1) & ~(kHugePage - 1);
  auto* const data = reinterpret_cast<std::byte*>(first);
  if (data - kPage > begin) munmap(begin, data - kPage - begin);
  munmap(data + capacity, begin + span + kHugePage - (data + capacity));
  madvise(data, capacity, MADV_HUGEPAGE);  // a hint; without huge pages all goes on
  return data;
}

std::byte* from_system(size_t capacity) noexcept {
  std::byte* data;
  if (capacity >= kHugePage) {
    data = map_huge(capacity);
  } else {
    void* block = nullptr;
    data = posix_memalign(&block, kAlignment, kHeader + capacity) == 0 ? static_cast<std::byte*>(block) + kHeader : nullptr;
  }
  if (data) count_reserved(capacity);
  return data;
}

void to_system(Block block) noexcept {
  count_returned(block.capacity);
  if (block.capacity >= kHugePage) {
    munmap(block.data - kPage, kPage + block.capacity);
  } else {
    std::free(block.data - kHeader);
  }
}

// ---- Medium and large blocks: one shelf for all threads ----

// A kept block, in its own header.
struct Kept {
  Kept *newer, *older;              // freed after and before this one
  Kept *newer_alike, *older_alike;  // of the same class
  size_t capacity;
  int64_t freed_at;  // seconds

  std::byte* data() { return reinterpret_cast<std::byte*>(this) + kHeader; }
  static Kept* of(std::byte* data) { return reinterpret_cast<Kept*>(data - kHeader); }
};
static_assert(sizeof(Kept) <= kHeader);

int64_t seconds_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec;
}

class Shelf {
 public:
  Block take(size_t size) {
    const int size_class = class_of(size);
    const size_t capacity = capacity_of(size_class);
    {
      std::lock_guard<std::mutex> guard(mutex_);
      if (capacity > memory_limit_ || in_use_ > memory_limit_ - capacity) throw std::bad_alloc();
      for (const int candidate : {size_class, size_class + 1})
        if (Kept* kept = newest_[candidate]) return reuse(kept, size);
      make_room(capacity);
      use(capacity);
    }
    std::byte* data = from_system(capacity);
    if (!data) {
      statistics().retries.fetch_add(1, std::memory_order_relaxed);
      empty_block_cache();
      data = from_system(capacity);
    }
    std::lock_guard<std::mutex> guard(mutex_);
    if (!data) {
      in_use_ -= capacity;
      throw std::bad_alloc();
    }
    if (capacity >= kHugePage) list(segment_of(data), capacity, size);
    return {data, capacity};
  }

  void give(Block block) noexcept {
    std::lock_guard<std::mutex> guard(mutex_);
    in_use_ -= block.capacity;
    if (block.capacity >= kHugePage) segment_of(block.data)->size = 0;
    put(block);
    const int64_t expired = seconds_now() - kSecondsKept;
    while (oldest_ && (kept_ > limit_ || oldest_->freed_at < expired)) release(oldest_);
  }

  void empty() noexcept {
    std::lock_guard<std::mutex> guard(mutex_);
    while (oldest_) release(oldest_);
    most_in_use_ = in_use_;
  }

  size_t limit() {
    std::lock_guard<std::mutex> guard(mutex_);
    return limit_;
  }
  void set_limit(size_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    limit_ = bytes;
    while (oldest_ && kept_ > limit_) release(oldest_);
  }
  size_t memory_limit() {
    std::lock_guard<std::mutex> guard(mutex_);
    return memory_limit_;
  }
  void set_memory_limit(size_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    memory_limit_ = bytes;
  }

  void for_each_segment(const std::function<void(const Segment&)>& visit) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (SegmentLinks* s = segments_; s; s = s->next)
      visit({reinterpret_cast<std::byte*>(s) + kPage, s->capacity, s->size});
  }

  std::mutex& mutex() { return mutex_; }

 private:
  static constexpr int64_t kSecondsKept = 10;

  void use(size_t capacity) {
    in_use_ += capacity;
    most_in_use_ = std::max(most_in_use_, in_use_);
  }

  Block reuse(Kept* kept, size_t size) {
    const Block block = remove(kept);
    use(block.capacity);
    if (block.capacity >= kHugePage) segment_of(block.data)->size = size;
    return block;
  }

  void make_room(size_t capacity) noexcept {
    const size_t most = std::max(most_in_use_, in_use_ + capacity);
    const size_t allowance = most + most / 8 + 16 * kMiB;
    while (oldest_ && in_use_ + kept_ + capacity > allowance) release(oldest_);
  }

  void put(Block block) {
    const int size_class = class_of(block.capacity);
    Kept* kept = new (Kept::of(block.data)) Kept{nullptr, newest_of_all_, nullptr, newest_[size_class], block.capacity, seconds_now()};
    (kept->older ? kept->older->newer : oldest_) = kept;
    if (kept->older_alike) kept->older_alike->newer_alike = kept;
    newest_of_all_ = newest_[size_class] = kept;
    kept_ += block.capacity;
  }

  Block remove(Kept* kept) {
    (kept->newer ? kept->newer->older : newest_of_all_) = kept->older;
    (kept->older ? kept->older->newer : oldest_) = kept->newer;
    (kept->newer_alike ? kept->newer_alike->older_alike : newest_[class_of(kept->capacity)]) = kept->older_alike;
    if (kept->older_alike) kept->older_alike->newer_alike = kept->newer_alike;
    kept_ -= kept->capacity;
    return {kept->data(), kept->capacity};
  }

  void release(Kept* kept) noexcept {
    const Block block = remove(kept);
    if (block.capacity >= kHugePage) unlist(segment_of(block.data));
    to_system(block);
  }

  void list(SegmentLinks* segment, size_t capacity, size_t size) {
    *segment = {nullptr, segments_, capacity, size};
    if (segments_) segments_->previous = segment;
    segments_ = segment;
  }
  void unlist(SegmentLinks* segment) {
    (segment->previous ? segment->previous->next : segments_) = segment->next;
    if (segment->next) segment->next->previous = segment->previous;
  }

  std::mutex mutex_;
  std::array<Kept*, kClasses + 1> newest_{};  // by class
  Kept *newest_of_all_ = nullptr, *oldest_ = nullptr;
  SegmentLinks* segments_ = nullptr;
  size_t kept_ = 0, in_use_ = 0, most_in_use_ = 0;  // bytes
  size_t limit_ = machine_memory() / 4, memory_limit_ = SIZE_MAX;
};

Shelf& shelf() {
  static auto* instance = new Shelf;  // buffers may outlive static destructors
  return *instance;
}

// ---- Small blocks: bins of each thread ----

class Bins {
 public:
  ~Bins() { empty(); }

  std::byte* take(int size_class) {
    Bin& bin = bins_[size_class];
    if (!bin.first) return nullptr;
    std::byte* data = bin.first;
    bin.first = next_of(data);
    --bin.count;
    return data;
  }

  void give(std::byte* data, int size_class) noexcept {
    Bin& bin = bins_[size_class];
    const size_t capacity = capacity_of(size_class);
    if (bin.count >= std::clamp<size_t>(kBytes / capacity, 4, kBlocks)) [[unlikely]] drop(bin, capacity, bin.count / 2);
    next_of(data) = bin.first;
    bin.first = data;
    ++bin.count;
  }

  void empty() noexcept {
    for (int size_class = 0; size_class < kSmallClasses; ++size_class) drop(bins_[size_class], capacity_of(size_class), 0);
  }

 private:
  static constexpr size_t kBytes = 128 * kKiB, kBlocks = 64;  // of one class
  struct Bin {
    std::byte* first = nullptr;
    size_t count = 0;
  };

  static std::byte*& next_of(std::byte* data) { return *reinterpret_cast<std::byte**>(data - kHeader); }

  static void drop(Bin& bin, size_t capacity, size_t left) noexcept {
    for (; bin.count > left; --bin.count) {
      std::byte* data = bin.first;
      bin.first = next_of(data);
      to_system({data, capacity});
    }
  }

  std::array<Bin, kSmallClasses> bins_{};
};

// A thread's bins: none before its first block, and none again when its destructors run.
struct ThreadBins {
  Bins* bins;
  bool is_over;
};
thread_local ThreadBins mine{nullptr, false};

Bins* make_my_bins() {
  if (mine.is_over) return nullptr;
  struct Owner {
    Owner() { mine.bins = new (std::nothrow) Bins; }
    ~Owner() {
      delete std::exchange(mine.bins, nullptr);
      mine.is_over = true;
    }
  };
  thread_local Owner owner;
  return mine.bins;
}

Bins* my_bins() { return mine.bins ? mine.bins : make_my_bins(); }

std::byte* take_small(int size_class) {
  Bins* bins = my_bins();
  if (bins)
    if (std::byte* data = bins->take(size_class)) return data;
  const size_t capacity = capacity_of(size_class);
  std::byte* data = from_system(capacity);
  if (data) return data;
  statistics().retries.fetch_add(1, std::memory_order_relaxed);
  empty_block_cache();
  data = from_system(capacity);
  if (!data) throw std::bad_alloc();
  return data;
}

}  // namespace

Block take_block(size_t size) {
  if (is_small_block(size)) {
    const int size_class = class_of(size);
    return {take_small(size_class), capacity_of(size_class)};
  }
  if (size > kLargest) throw std::bad_alloc();
  return shelf().take(size);
}

void give_block(Block block) noexcept {
  if (!is_small_block(block.capacity)) return shelf().give(block);
  if (Bins* bins = my_bins()) return bins->give(block.data, class_of(block.capacity));
  to_system(block);
}

void empty_block_cache() noexcept {
  shelf().empty();
  if (mine.bins) mine.bins->empty();
}

void protect_block_cache_at_fork() {
  pthread_atfork([] { shelf().mutex().lock(); }, [] { shelf().mutex().unlock(); }, [] { shelf().mutex().unlock(); });
}

size_t machine_memory() {
  static const size_t bytes = [] {
    size_t limit = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
      size_t group;
      if (std::ifstream(path) >> group) limit = std::min(limit, group);  // "max" is no number
    }
    return limit;
  }();
  return bytes;
}

size_t block_cache_limit() { return shelf().limit(); }
void set_block_cache_limit(size_t bytes) { shelf().set_limit(bytes); }
size_t memory_limit() { return shelf().memory_limit(); }
void set_memory_limit(size_t bytes) { shelf().set_memory_limit(bytes); }
void for_each_segment(const std::function<void(const Segment&)>& visit) { shelf().for_each_segment(visit); }

}  // namespace flexcpu::memory
