// clone, _lazy_clone and _to_copy: shared where bytes may be shared, else copied.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <ATen/ops/_to_copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/clone_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

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

// Whether a copy in `format` has the strides of `self` itself.
bool keeps_strides(const Tensor& self, optional<MemoryFormat> format) {
  return !format || *format == MemoryFormat::Preserve || self.is_contiguous(*format);
}

Tensor clone(const Tensor& self, optional<MemoryFormat> format) {
  if (keeps_strides(self, format))
    if (Tensor shared = device::share_tensor(self, device::kFlex); shared.defined()) return shared;
  return at::compositeexplicitautograd::clone(self, format);
}

Tensor lazy_clone(const Tensor& self) { return clone(self, MemoryFormat::Preserve); }

Tensor to_copy(const Tensor& self, optional<ScalarType> dtype, optional<Layout> layout, optional<Device> device,
               optional<bool> pin_memory, bool non_blocking, optional<MemoryFormat> format) {
  const Device target = device.value_or(self.device());
  const bool only_moves = dtype.value_or(self.scalar_type()) == self.scalar_type() &&
                          layout.value_or(self.layout()) == self.layout() && !pin_memory.value_or(false) &&
                          keeps_strides(self, format) && (target.is_cpu() || target.type() == device::kFlex.type());
  if (only_moves)
    if (Tensor shared = device::share_tensor(self, target.is_cpu() ? target : device::kFlex); shared.defined())
      return shared;
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
