// scaled_dot_product_attention chooses its kernel by device; flex takes what the CPU takes for the same tensors.

#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <torch/library.h>

#include "device/alias.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;

int64_t fused_sdp_choice(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                         double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  device::AliasScope scope;
  const auto on_cpu = [&](const Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != device::kFlex.type()) return tensor;
    // The choice looks at what a kernel could take, gradients included.
    return scope.to_cpu(tensor, /*writes=*/false).set_requires_grad(tensor.requires_grad());
  };
  const auto mask_on_cpu = mask ? std::optional<Tensor>(on_cpu(*mask)) : std::nullopt;
  return at::native::_fused_sdp_choice_cpp(on_cpu(query), on_cpu(key), on_cpu(value), mask_on_cpu, dropout_p, is_causal,
                                           scale, enable_gqa);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", &fused_sdp_choice); }

}  // namespace
}  // namespace flexcpu::aten

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &flexcpu::aten::fused_sdp_choice)
}  // namespace at::native
