// fill_ and zero_. As on the CPU, scalars may fill a tensor that repeats elements.

#include <ATen/core/Tensor.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/zero_ops.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/scalar.h"
#include "device/autograd_thread.h"
#include "device/operand.h"
#include "kernels/fill/fill.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using c10::Scalar;

void fill_with(const Tensor& self, const Value& value) {
  device::enter();
  if (self.numel() == 0) return;
  const device::Writer dst(self, device::Contents::kDiscard);
  layout::LoopNest<1> nest;
  nest.rank = static_cast<int>(dst.sizes().size());
  std::copy(dst.sizes().begin(), dst.sizes().end(), nest.extents.begin());
  layout::set_operand(nest, 0, dst.data(), dst.sizes(), dst.strides(), dst.element_size());
  kernels::fill(nest, value, device::num_threads());
}

Tensor& fill_scalar_(Tensor& self, const Scalar& value) {
  if (!is_plain(self, /*cpu_scalar=*/false)) return call_fallback<at::_ops::fill__Scalar>::call(self, value);
  fill_with(self, value_of(value, device::dtype_of(self.scalar_type())));
  return self;
}

// A copy of `value` to every element: unlike filling with a scalar, no element may be repeated, and torch warns when the
// imaginary part of a complex number is lost.
Tensor& fill_tensor_(Tensor& self, const Tensor& value) {
  const bool takes = is_plain(self, /*cpu_scalar=*/false) && is_plain(value, /*cpu_scalar=*/true) && value.dim() == 0 &&
                     !repeats_elements(self) && (self.is_complex() || !value.is_complex());
  if (!takes) return call_fallback<at::_ops::fill__Tensor>::call(self, value);
  const auto read = [&] {
    const device::Reader src(value);
    return converted(src.data(), src.dtype(), device::dtype_of(self.scalar_type()));
  };
  fill_with(self, read());
  return self;
}

Tensor& zero_(Tensor& self) {
  if (!is_plain(self, /*cpu_scalar=*/false)) return call_fallback<at::_ops::zero_>::call(self);
  fill_with(self, Value());
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("fill_.Scalar", &fill_scalar_);
  m.impl("fill_.Tensor", &fill_tensor_);
  m.impl("zero_", &zero_);
}

}  // namespace
}  // namespace flexcpu::aten
