// scaled_dot_product_attention chooses its kernel by device; flex takes what the CPU takes for the same tensors. The
// choice looks at shapes, strides and flags only, so it serves tensors without bytes of their own (vmap's, jagged) too.

#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <torch/library.h>

namespace flexcpu::aten {
namespace {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", &at::native::_fused_sdp_choice_cpp); }

}  // namespace
}  // namespace flexcpu::aten

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &_fused_sdp_choice_cpp)
}  // namespace at::native
