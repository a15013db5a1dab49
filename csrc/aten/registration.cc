#include "aten/registration.h"

#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <string_view>

#include "aten/fallback.h"

namespace flexcpu::aten {
namespace {

using c10::DispatchKey;

void refuse_nested(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.operator_name(), ": flex has no strided nested tensors; use layout=torch.jagged, "
                              "or move them to the CPU first with .cpu().");
}

// Composites that ask for the device by name, and so refuse flex or take another way than on the CPU.
constexpr std::string_view kByDeviceName[] = {"aten::mode.values", "aten::convolution", "aten::_convolution",
                                              "aten::convolution_backward"};

bool prefers_fallback(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) return false;
  const std::string name = toString(op.operator_name());
  for (std::string_view listed : kByDeviceName)
    if (name == listed) return true;
  if (!op.hasKernelForDispatchKey(DispatchKey::CPU)) return false;
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional))
    return true;
  // A composite that also is the op's derivative may be hidden only where autograd has a formula of its own.
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         op.hasKernelForDispatchKey(DispatchKey::Autograd);
}

}  // namespace

void register_fallback_over_defaults() {
  static torch::Library library(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    const auto op = dispatcher.findOp(name);
    if (op && prefers_fallback(*op))
      library.impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>());
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_nested>());
}
// Ops without a derivative: what the CPU's own key does.
TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m) { m.fallback(torch::autograd::basicAutogradNotImplementedFallback()); }
// Until there are cast lists, autocast on the device changes nothing.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace flexcpu::aten
