// clone, _lazy_clone and _to_copy: shared where bytes may be shared, put off where they are rearranged, else copied.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <ATen/ops/_to_copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/clone_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

#include "aten/copy_strides.h"
#include "aten/scalar.h"
#include "device/pending.h"
#include "device/share.h"
#include "device/storage.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using c10::Device;
using c10::Layout;
using c10::MemoryFormat;
using c10::ScalarType;
using std::optional;

// A copy in `format` that shares; undefined when the bytes may not be shared or lie in another order.
Tensor share(const Tensor& self, Device device, optional<MemoryFormat> format) {
  const bool preserves = !format || *format == MemoryFormat::Preserve;
  if (!preserves && !self.is_contiguous(*format)) return {};
  Tensor shared = device::share_tensor(self, device);
  // A fresh copy has strides of its own where the size is 1.
  if (!preserves && shared.defined()) shared.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return shared;
}

// A copy of a permuted or expanded tensor that is put off; undefined when it has to be made at once.
Tensor defer(const Tensor& self, optional<MemoryFormat> format) {
  const MemoryFormat target = format.value_or(MemoryFormat::Preserve);
  const int64_t rank = target == MemoryFormat::ChannelsLast ? 4 : target == MemoryFormat::ChannelsLast3d ? 5 : self.dim();
  if (self.dim() != rank || !(self.is_non_overlapping_and_dense() || repeats_elements(self))) return {};
  return device::defer_copy(self, strides_of_copy(self, target), /*flipped=*/{}, device::kLeastPendingClone);
}

Tensor clone(const Tensor& self, optional<MemoryFormat> format) {
  if (Tensor shared = share(self, device::kFlex, format); shared.defined()) return shared;
  if (Tensor pending = defer(self, format); pending.defined()) return pending;
  return at::compositeexplicitautograd::clone(self, format);
}

Tensor lazy_clone(const Tensor& self) { return aten::clone(self, MemoryFormat::Preserve); }

Tensor to_copy(const Tensor& self, optional<ScalarType> dtype, optional<Layout> layout, optional<Device> device,
               optional<bool> pin_memory, bool non_blocking, optional<MemoryFormat> format) {
  const Device target = device.value_or(self.device());
  const bool only_moves = dtype.value_or(self.scalar_type()) == self.scalar_type() &&
                          layout.value_or(self.layout()) == self.layout() && !pin_memory.value_or(false) &&
                          (target.is_cpu() || target.type() == device::kFlex.type()) && target.index() <= 0;
  if (only_moves) {
    if (Tensor shared = share(self, target.is_cpu() ? device::kCpu : device::kFlex, format); shared.defined()) return shared;
    if (!target.is_cpu())
      if (Tensor pending = defer(self, format); pending.defined()) return pending;
  }
  // The composite asks for a pinned destination when not blocking; a copy of host memory has no use for one.
  return at::compositeexplicitautograd::_to_copy(self, dtype, layout, device, pin_memory, /*non_blocking=*/false, format);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("clone", &clone);
  m.impl("_lazy_clone", &lazy_clone);
  m.impl("_to_copy", &to_copy);
}

}  // namespace
}  // namespace flexcpu::aten
