#include "memory/statistics.h"

#include "memory/block_cache.h"

namespace flexcpu::memory {

Statistics& statistics() {
  static Statistics instance;
  return instance;
}

Pool pool_of(size_t bytes) { return is_small_block(bytes) ? Pool::kSmall : Pool::kLarge; }

void count_reserved(size_t capacity) {
  statistics().segments.increase(pool_of(capacity), 1);
  statistics().reserved_bytes.increase(pool_of(capacity), static_cast<int64_t>(capacity));
}

void count_returned(size_t capacity) {
  statistics().segments.decrease(pool_of(capacity), 1);
  statistics().reserved_bytes.decrease(pool_of(capacity), static_cast<int64_t>(capacity));
}

}  // namespace flexcpu::memory
