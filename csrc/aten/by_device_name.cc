// Composites of torch that ask whether a tensor is on the device named cpu, and refuse others or go another way. They stay
// composites here, made of differentiable ops, and so are registered for autograd as well as below it.

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/max_pool1d_native.h>
#include <ATen/ops/max_pool1d_ops.h>
#include <ATen/ops/tensor_split_native.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <vector>

#include "aten/fallback.h"
#include "device/storage.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using c10::IntArrayRef;

// torch reads the indices of where to split, and so wants them on the CPU.
std::vector<Tensor> tensor_split(const Tensor& self, const Tensor& indices, int64_t dim) {
  return at::native::tensor_split(self, indices.is_privateuseone() ? indices.to(device::kCpu) : indices, dim);
}

// The CPU has a kernel that needs no indices for a backward; torch pools in two dimensions elsewhere.
Tensor max_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  const bool needs_indices = (self.requires_grad() && c10::GradMode::is_enabled()) || self._fw_grad(/*level=*/0).defined();
  if (needs_indices || at::isTensorSubclassLike(self))
    return at::native::max_pool1d(self, kernel_size, stride, padding, dilation, ceil_mode);
  return call_fallback<at::_ops::max_pool1d>::call(self, kernel_size, stride, padding, dilation, ceil_mode);
}

void implement(torch::Library& m) {
  m.impl("tensor_split.tensor_indices_or_sections", &tensor_split);
  m.impl("max_pool1d", &max_pool1d);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { implement(m); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }

}  // namespace
}  // namespace flexcpu::aten
