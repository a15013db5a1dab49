#pragma once
// Blocks of memory, kept when freed and handed out again: a fresh page costs more than most kernels spend on it.
//
// Three tiers by capacity:
//   small   up to 32 KiB; each thread keeps what it frees in bins of its own, without a lock, whoever allocated it
//   medium  below 2 MiB; in one list per size class for all threads, under a lock
//   large   from 2 MiB on, the same, but mapped by themselves, aligned for and advised as huge pages
//
// Size classes: multiples of 64 bytes up to 1 KiB, then eight to a doubling. A block may also serve the class below its own, so
// its capacity is at most 1.25 times what was asked for beyond 1 KiB; of a fresh block only what is written to becomes resident.
//
// How much is kept (medium and large; a thread's bins hold at most 128 KiB a class):
//   - at most block_cache_limit() bytes, the least recently freed going first;
//   - before more is asked of the system, kept blocks that are not of use go back to it, so that all together stays
//     within 9/8 of the most that was in use at once since empty_block_cache(), and 16 MiB;
//   - what was not asked for in ten seconds goes back when the next block is freed;
//   - all, when the system has no more.
//
// Functions may be called from any thread, and in a forked child. Every block has kHeader bytes of its user's in front.

#include <cstddef>
#include <cstdint>
#include <functional>

namespace flexcpu::memory {

inline constexpr size_t kAlignment = 64;  // of every block: a cache line, an AVX-512 vector
inline constexpr size_t kHeader = 64;

struct Block {
  std::byte* data;  // kHeader bytes in front belong to the block's user, too
  size_t capacity;
};

// A block of at least `size` uninitialised bytes, size > 0. Throws std::bad_alloc.
Block take_block(size_t size);
void give_block(Block block) noexcept;

// Whether it counts to the small pool in statistics.
inline constexpr size_t kSmallBlock = size_t{32} << 10;
inline bool is_small_block(size_t size) { return size <= kSmallBlock; }

// Gives every kept block back to the system, but for those in other threads' bins.
void empty_block_cache() noexcept;

// Bytes kept at most. A quarter of the machine's memory until set; 0 keeps none.
size_t block_cache_limit();
void set_block_cache_limit(size_t bytes);

// Bytes that may be in use at once, medium and large blocks together; beyond, take_block() throws. The default is no limit.
void set_memory_limit(size_t bytes);
size_t memory_limit();

// Once, before any lock under which blocks are taken or given is protected at fork().
void protect_block_cache_at_fork();

// The memory of the machine, or of the control group that the process is limited to.
size_t machine_memory();

// What the cache holds of the system's memory.
struct Segment {
  const void* address;
  size_t capacity;
  size_t size;  // what was asked for; 0: kept, not in use
};
// Every large block.
void for_each_segment(const std::function<void(const Segment&)>& visit);

}  // namespace flexcpu::memory
