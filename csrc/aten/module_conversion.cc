// What lets `parameter.data = tensor_of_another_device` be: Module.to() then keeps its Parameters the objects they were, so
// that tied weights stay tied and an optimizer built before goes on working.

#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace flexcpu::aten {
namespace {

// Between flex and the devices that torch itself lets share a class of tensor. All of these use one class of tensor for one
// functionality (dense, sparse, compressed sparse).
constexpr c10::DispatchKeySet kBackends{c10::BackendComponent::PrivateUse1Bit, c10::BackendComponent::CPUBit,
                                        c10::BackendComponent::CUDABit, c10::BackendComponent::XPUBit};

bool both_have(c10::DispatchKeySet a, c10::DispatchKeySet b, c10::DispatchKey functionality) {
  const c10::DispatchKeySet wanted(functionality);
  return a.has_any(wanted) && b.has_any(wanted) && a.has_any(kBackends) && b.has_any(kBackends);
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const c10::DispatchKeySet a = self.key_set(), b = from.key_set();
  return a == b || both_have(a, b, c10::DispatchKey::Dense) || both_have(a, b, c10::DispatchKey::Sparse) ||
         both_have(a, b, c10::DispatchKey::SparseCsr);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

}  // namespace
}  // namespace flexcpu::aten
