// im2col, which is F.unfold. What is refused goes to the fallback, which gives the CPU's result or the CPU's error.

#include <ATen/core/Tensor.h>
#include <ATen/ops/im2col_ops.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/scalar.h"
#include "device/allocate.h"
#include "device/operand.h"
#include "kernels/im2col/im2col.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using c10::IntArrayRef;

// As the CPU: no integers.
bool takes(const Tensor& self) {
  if (!is_plain(self, /*cpu_scalar=*/false) || self.numel() == 0 || (self.dim() != 3 && self.dim() != 4)) return false;
  const DType dtype = device::dtype_of(self.scalar_type());
  return is_floating(dtype) || dtype == DType::kBool || dtype == DType::kC64 || dtype == DType::kC128;
}

bool are_pairs(IntArrayRef values, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 30;  // products of two are an int64
  return values.size() == 2 && std::min(values[0], values[1]) >= least && std::max(values[0], values[1]) <= kMost;
}

Tensor im2col(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  const auto refused = [&] { return call_fallback<at::_ops::im2col>::call(self, kernel, dilation, padding, stride); };
  if (!takes(self) || !are_pairs(kernel, 1) || !are_pairs(dilation, 1)) return refused();
  if (!are_pairs(padding, 0) || !are_pairs(stride, 1)) return refused();
  const bool is_batch = self.dim() == 4;
  kernels::Im2col columns;
  columns.images = is_batch ? self.size(0) : 1;
  columns.channels = self.size(-3);
  for (int i : {0, 1}) {
    columns.size[i] = self.size(i - 2);
    columns.kernel[i] = kernel[i];
    columns.dilation[i] = dilation[i];
    columns.padding[i] = padding[i];
    columns.stride[i] = stride[i];
    const int64_t room = columns.size[i] + 2 * padding[i] - (dilation[i] * (kernel[i] - 1) + 1);
    if (room < 0) return refused();
    columns.output[i] = room / stride[i] + 1;
  }
  c10::DimVector sizes{columns.channels * kernel[0] * kernel[1], columns.output[0] * columns.output[1]};
  if (is_batch) sizes.insert(sizes.begin(), columns.images);
  Tensor result = device::empty(sizes, self.scalar_type());
  const device::Writer dst(result, device::Contents::kNew);
  const device::Reader src(self);
  columns.dst = static_cast<std::byte*>(dst.data());
  columns.src = static_cast<const std::byte*>(src.data());
  columns.element_size = src.element_size();
  columns.src_strides[0] = 0;
  for (int i = 0; i < self.dim(); ++i)
    columns.src_strides[4 - self.dim() + i] = src.strides()[i] * src.element_size();
  kernels::im2col(columns, device::num_threads());
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("im2col", &im2col); }

}  // namespace
}  // namespace flexcpu::aten
