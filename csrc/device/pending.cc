#include "device/pending.h"

#include <sys/mman.h>

#include "kernels/copy/copy.h"
#include "parallel/parallel.h"

namespace flexcpu::device {
namespace {

// Bytes move as they are, whatever they mean.
DType bits_of(int64_t element_size) {
  switch (element_size) {
    case 1: return DType::kU8;
    case 2: return DType::kU16;
    case 4: return DType::kU32;
    case 8: return DType::kU64;
    default: return DType::kC128;
  }
}

}  // namespace

void drop_pending(void* context) {
  auto* pending = static_cast<Pending*>(context);
  pending->source->release();
  delete pending;
}

void* unreadable() {
  static void* const page = mmap(nullptr, 64 << 10, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page;  // MAP_FAILED, the last address, can be read as little
}

void carry_out(const Pending& pending, void* bytes) {
  const layout::Arrangement& from = pending.arrangement;
  layout::LoopNest<2> nest;
  nest.rank = from.rank;
  nest.extents = from.extents;
  nest.strides = {from.strides, from.source_strides};
  nest.data = {static_cast<std::byte*>(bytes), pending.origin};
  nest.element_size = {pending.element_size, pending.element_size};
  const DType bits = bits_of(pending.element_size);
  kernels::copy(plan::plan_copy(nest, bits, bits, /*conjugate=*/false, /*negate=*/false, parallel::max_threads()));
}

}  // namespace flexcpu::device
