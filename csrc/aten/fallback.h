#pragma once
// Tier 0: any op on the CPU kernel over the same bytes.

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUFallback.h>

namespace flexcpu::aten {

// The boxed fallback: aliases every flex argument to the CPU, runs the CPU kernel, adopts its results. Counted per op.
void fallback_of_keys(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The same for a kernel that declines its arguments: `return call_fallback<at::_ops::add_Tensor>::call(self, other, alpha);`
// with the header ATen/ops/add_ops.h.
template <typename Op>
using call_fallback = at::native::call_fallback_fn<&fallback, Op>;

}  // namespace flexcpu::aten
