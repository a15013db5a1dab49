#include "aten/registration.h"

#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "aten/fallback.h"

namespace flexcpu::aten {
namespace {

using c10::DispatchKey;

// Composites that ask for the device by name or call a CPU kernel past the dispatcher, and so refuse flex or take another way
// than on the CPU.
constexpr std::string_view kByDeviceName[] = {"aten::mode.values", "aten::convolution", "aten::_convolution",
                                              "aten::convolution_backward", "aten::copy_",
                                              "aten::conj_physical_", "aten::addr_"};

// The CPU's key for a layout, and the device's.
constexpr std::pair<DispatchKey, DispatchKey> kKeys[] = {
    {DispatchKey::CPU, DispatchKey::PrivateUse1},
    {DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1},
    {DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrPrivateUse1},
    {DispatchKey::QuantizedCPU, DispatchKey::QuantizedPrivateUse1},
    {DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorPrivateUse1},
};

bool prefers_fallback(const c10::OperatorHandle& op, DispatchKey cpu_key) {
  if (!op.hasKernelForDispatchKey(cpu_key)) return false;
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional))
    return true;
  // A composite that also is the op's derivative may be hidden only where autograd has a formula of its own.
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         op.hasKernelForDispatchKey(DispatchKey::Autograd);
}

bool is_listed(const std::string& name) {
  return std::find(std::begin(kByDeviceName), std::end(kByDeviceName), name) != std::end(kByDeviceName);
}

}  // namespace

void register_fallback_over_defaults() {
  static std::vector<torch::Library> libraries;  // a registration lives as long as its library
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto names = dispatcher.getAllOpNames();
  for (const auto& [cpu_key, flex_key] : kKeys) {
    auto& library = libraries.emplace_back(torch::Library::IMPL, "aten", flex_key, __FILE__, __LINE__);
    for (const c10::OperatorName& name : names) {
      if (name.getNamespace() != "aten") continue;
      const auto op = dispatcher.findOp(name);
      if (!op || op->hasKernelForDispatchKey(flex_key)) continue;
      const std::string qualified = toString(name);
      if (prefers_fallback(*op, cpu_key) || is_listed(qualified))
        library.impl(qualified.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>());
    }
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_keys>()); }
// Ops without a derivative: what the CPU's own key does.
TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m) { m.fallback(torch::autograd::basicAutogradNotImplementedFallback()); }
// Until there are cast lists, autocast on the device changes nothing.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace flexcpu::aten
