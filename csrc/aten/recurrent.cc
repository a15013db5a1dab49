// LSTM and GRU cells: torch calls these fused forms on every device that is not the CPU, and the CPU has no kernel for
// them. Gates are (N, 4H) and (N, 3H), states (N, H), biases (4H) and (3H).
//
// The workspaces are what the backward formulas need: (N, 4H) activated gates, and (N, 5H) for GRU.
//
// torch has a derivative of the fused forms, and of that derivative, but no forward derivative and no vmap rule: there the
// cell is the ordinary ops that it is made of, as on the CPU.

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "device/alias.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using std::optional;

// CPU tensors over the arguments for the length of the call.
class OnCpu {
 public:
  Tensor operator()(const Tensor& flex) { return flex.defined() ? scope_.to_cpu(flex, /*writes=*/false) : flex; }
  Tensor operator()(const optional<Tensor>& flex) { return flex ? (*this)(*flex) : Tensor(); }
  Tensor back(const Tensor& cpu) { return cpu.defined() ? scope_.to_flex(cpu) : cpu; }

 private:
  device::AliasScope scope_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

Tensor plus(const Tensor& gates, const Tensor& bias) { return bias.defined() ? gates + bias : gates; }

std::tuple<Tensor, Tensor, Tensor> lstm_formula(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                                const Tensor& input_bias, const Tensor& hidden_bias) {
  const Tensor gates = plus(input_gates, input_bias) + plus(hidden_gates, hidden_bias);
  const auto parts = gates.unsafe_chunk(4, 1);
  const Tensor in = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh(), out = parts[3].sigmoid();
  const Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const optional<Tensor>& input_bias, const optional<Tensor>& hidden_bias) {
  OnCpu cpu;
  const auto [hy, cy, workspace] =
      lstm_formula(cpu(input_gates), cpu(hidden_gates), cpu(cx), cpu(input_bias), cpu(hidden_bias));
  return {cpu.back(hy), cpu.back(cy), cpu.back(workspace)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const optional<Tensor>& grad_hy, const optional<Tensor>& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  OnCpu cpu;
  const auto gates = cpu(workspace).unsafe_chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor tanh_cy = cpu(cy).tanh();
  const Tensor from_hy = cpu(grad_hy), from_cy = cpu(grad_cy);

  Tensor grad_cell_state, grad_out;
  if (from_hy.defined()) {
    grad_cell_state = from_hy * out * (1 - tanh_cy * tanh_cy);
    grad_out = from_hy * tanh_cy * out * (1 - out);
  } else {
    grad_out = at::zeros_like(out);
  }
  if (from_cy.defined()) grad_cell_state = grad_cell_state.defined() ? grad_cell_state + from_cy : from_cy;
  if (!grad_cell_state.defined()) return {};

  const Tensor grad_gates = at::cat({grad_cell_state * cell * in * (1 - in),
                                     grad_cell_state * cpu(cx) * forget * (1 - forget),
                                     grad_cell_state * in * (1 - cell * cell), grad_out}, 1);
  const Tensor grad_bias = has_bias ? grad_gates.sum(0, /*keepdim=*/false) : Tensor();
  return {cpu.back(grad_gates), cpu.back(grad_cell_state * forget), cpu.back(grad_bias)};
}

std::tuple<Tensor, Tensor> gru_formula(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                       const Tensor& input_bias, const Tensor& hidden_bias) {
  const auto from_input = plus(input_gates, input_bias).unsafe_chunk(3, 1);
  const auto from_hidden = plus(hidden_gates, hidden_bias).unsafe_chunk(3, 1);
  const Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const Tensor candidate = (from_input[2] + reset * from_hidden[2]).tanh();
  return {candidate + update * (hx - candidate), at::cat({reset, update, candidate, hx, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const optional<Tensor>& input_bias, const optional<Tensor>& hidden_bias) {
  OnCpu cpu;
  const auto [hy, workspace] =
      gru_formula(cpu(input_gates), cpu(hidden_gates), cpu(hx), cpu(input_bias), cpu(hidden_bias));
  return {cpu.back(hy), cpu.back(workspace)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  OnCpu cpu;
  const auto saved = cpu(workspace).unsafe_chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &candidate = saved[2], &state = saved[3], &hidden = saved[4];
  const Tensor grad = cpu(grad_hy);
  const Tensor grad_update = grad * (state - candidate) * update * (1 - update);
  const Tensor grad_candidate = grad * (1 - update) * (1 - candidate * candidate);
  const Tensor grad_reset = grad_candidate * hidden * reset * (1 - reset);
  const Tensor grad_input = at::cat({grad_reset, grad_update, grad_candidate}, 1);
  const Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_candidate * reset}, 1);
  const auto bias_of = [&](const Tensor& gates) { return has_bias ? gates.sum(0, /*keepdim=*/false) : Tensor(); };
  return {cpu.back(grad_input), cpu.back(grad_hidden), cpu.back(grad * update), cpu.back(bias_of(grad_input)),
          cpu.back(bias_of(grad_hidden))};
}

// ---- Forward derivatives and vmap ----

Tensor value_of(const optional<Tensor>& tensor) { return tensor.value_or(Tensor()); }

bool has_tangent(const Tensor& tensor) { return tensor.defined() && tensor._fw_grad(/*level=*/0).defined(); }

// The fused op under torch's own derivative, which is registered for every device.
c10::DispatchKeySet below_own_autograd(c10::DispatchKeySet keys) {
  return (keys - c10::DispatchKeySet(c10::DispatchKey::AutogradPrivateUse1)) |
         c10::DispatchKeySet(c10::DispatchKey::AutogradOther);
}

template <typename Op, auto formula>
auto differentiable(c10::DispatchKeySet keys, const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& state,
                    const optional<Tensor>& input_bias, const optional<Tensor>& hidden_bias) {
  const Tensor biases[] = {value_of(input_bias), value_of(hidden_bias)};
  if (has_tangent(input_gates) || has_tangent(hidden_gates) || has_tangent(state) || has_tangent(biases[0]) ||
      has_tangent(biases[1]))
    return formula(input_gates, hidden_gates, state, biases[0], biases[1]);
  return Op::redispatch(below_own_autograd(keys), input_gates, hidden_gates, state, input_bias, hidden_bias);
}

template <auto formula>
auto decomposed(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& state,
                const optional<Tensor>& input_bias, const optional<Tensor>& hidden_bias) {
  return formula(input_gates, hidden_gates, state, value_of(input_bias), value_of(hidden_bias));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &differentiable<at::_ops::_thnn_fused_lstm_cell, &lstm_formula>);
  m.impl("_thnn_fused_gru_cell", &differentiable<at::_ops::_thnn_fused_gru_cell, &gru_formula>);
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatchedDecomposition, m) {
  m.impl("_thnn_fused_lstm_cell", &decomposed<&lstm_formula>);
  m.impl("_thnn_fused_gru_cell", &decomposed<&gru_formula>);
}

}  // namespace
}  // namespace flexcpu::aten
