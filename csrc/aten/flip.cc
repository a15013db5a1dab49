// flip, and with it fliplr, flipud and rot90: put off (device/pending.h), or copied.

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/flip_ops.h>
#include <torch/library.h>

#include "aten/copy_strides.h"
#include "aten/fallback.h"
#include "aten/regions.h"
#include "aten/scalar.h"
#include "device/pending.h"
#include "device/share.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;

// The CPU flips the others along some dimensions only.
bool takes(const Tensor& self) {
  if (!is_plain(self, /*cpu_scalar=*/false)) return false;
  switch (device::dtype_of(self.scalar_type())) {
    case DType::kU16: case DType::kU32: case DType::kU64: case DType::kC32: return false;
    default: return true;
  }
}

Tensor flip(const Tensor& self, c10::IntArrayRef dims) {
  if (!takes(self)) return call_fallback<at::_ops::flip>::call(self, dims);
  const auto flipped = at::dim_list_to_bitset(dims, self.dim());  // throws the CPU's errors
  const c10::DimVector strides = strides_of_copy(self, c10::MemoryFormat::Preserve);
  if (Tensor pending = device::defer_copy(self, strides, flipped.to_ullong(), device::kLeastPendingFlip); pending.defined())
    return pending;
  Tensor result = new_like(self);
  if (result.numel() == 0) return result;
  const device::Writer dst(result, device::Contents::kNew);
  const device::Reader reader(self);
  Region src = region_of(reader);
  for (int64_t d = 0; d < self.dim(); ++d)
    if (flipped[d]) src = reversed(src, d);
  copy(region_of(dst), src);
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("flip", &flip); }

}  // namespace
}  // namespace flexcpu::aten
