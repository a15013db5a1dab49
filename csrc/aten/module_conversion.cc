// What lets `parameter.data = tensor_of_another_device` be: Module.to() then keeps its Parameters the objects they were, so
// that tied weights stay tied and an optimizer built before goes on working.

#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace flexcpu::aten {
namespace {

// Dense tensors of these are all plain TensorImpls. (Sparse ones may not change their device: their class checks by itself.)
constexpr c10::DispatchKeySet kBackends{c10::BackendComponent::PrivateUse1Bit, c10::BackendComponent::CPUBit,
                                        c10::BackendComponent::CUDABit, c10::BackendComponent::XPUBit};

bool is_dense(c10::DispatchKeySet keys) {
  return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) && keys.has_any(kBackends);
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return self.key_set() == from.key_set() || (is_dense(self.key_set()) && is_dense(from.key_set()));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

}  // namespace
}  // namespace flexcpu::aten
