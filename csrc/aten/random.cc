// Random ops whose CPU kernel takes no generator, and so would draw from the CPU's instead of the device's.

#include <ATen/ops/bernoulli.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

namespace flexcpu::aten {
namespace {

using at::Tensor;

// The result and the mask of what was kept, as native_dropout_cpu gives them.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0) return {input, at::empty_like(input, input.options())};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(c10::kBool))};
  const double keep = 1 - p;
  const auto dtype = input.scalar_type();
  if (dtype != c10::kFloat && dtype != c10::kDouble && dtype != c10::kHalf && dtype != c10::kBFloat16) {
    // The unfused way, for its errors.
    const Tensor noise = at::empty_like(input).bernoulli_(keep).div_(keep);
    return {input.mul(noise), noise};
  }
  Tensor mask = at::empty_like(input, input.options().dtype(c10::kBool), LEGACY_CONTIGUOUS_MEMORY_FORMAT);
  mask.bernoulli_(keep);
  Tensor output = input.mul(mask).mul_(keep == 0 ? 0.0 : 1.0 / keep);
  return {output, mask};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("native_dropout", &native_dropout); }

}  // namespace
}  // namespace flexcpu::aten
