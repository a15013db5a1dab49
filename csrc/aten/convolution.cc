// The convolution ops that torch gives to devices by name. Where a program calls them directly, they are the ordinary
// convolution, which is registered to the fallback (registration.cc).

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

namespace flexcpu::aten {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

Tensor convolution_overrideable(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                                SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation, bool transposed,
                                SymIntArrayRef output_padding, SymInt groups) {
  return at::convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward_overrideable(
    const Tensor& grad_output, const Tensor& input, const Tensor& weight, SymIntArrayRef stride, SymIntArrayRef padding,
    SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding, SymInt groups,
    std::array<bool, 3> output_mask) {
  const SymInt bias_size = transposed ? weight.sym_size(1) * groups : weight.sym_size(0);
  return at::convolution_backward_symint(grad_output, input, weight, SymIntArrayRef(&bias_size, 1), stride, padding,
                                         dilation, transposed, output_padding, groups, output_mask);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", &convolution_overrideable);
  m.impl("convolution_backward_overrideable", &convolution_backward_overrideable);
}

}  // namespace
}  // namespace flexcpu::aten
