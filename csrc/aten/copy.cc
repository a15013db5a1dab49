// copy_ between flex tensors, and between flex and the CPU. What is refused, or no strided tensor, goes to the
// fallback, which gives the CPU's result or the CPU's error.

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_ops.h>
#include <torch/library.h>

#include <array>

#include "aten/fallback.h"
#include "device/autograd_thread.h"
#include "device/operand.h"
#include "device/share.h"
#include "kernels/copy/copy.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;

// Whether the kernels can take a tensor; unlike other ops' inputs it may be on the CPU, and have a bit to apply.
bool is_copyable(const Tensor& tensor) {
  return tensor.defined() && (tensor.is_cpu() || tensor.is_privateuseone()) && tensor.layout() == c10::kStrided &&
         !tensor.is_quantized() && !tensor._is_zerotensor() && tensor.dim() <= layout::kMaxRank &&
         device::dtype_of(tensor.scalar_type()) != DType::kOther;
}

bool can_copy(const Tensor& dst, const Tensor& src) {
  if (!is_copyable(dst) || !is_copyable(src) || !at::is_expandable_to(src.sizes(), dst.sizes())) return false;
  if (at::has_internal_overlap(dst) == at::MemOverlap::Yes) return false;
  if (at::get_overlap_status(dst, src) == at::MemOverlapStatus::Partial) return false;
  // The CPU negates signed numbers only.
  const DType dtype = device::dtype_of(dst.scalar_type());
  const bool is_signed = dtype != DType::kBool && dtype != DType::kU16 && dtype != DType::kU32 && dtype != DType::kU64;
  return is_signed || dst.is_neg() == src.is_neg();
}

bool are_same_elements(const Tensor& a, const Tensor& b) {
  return a.is_same(b) ||
         (a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
          a.strides() == b.strides() && a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
          a.is_neg() == b.is_neg());
}

void copy_elements(const Tensor& dst, const Tensor& src) {
  const auto contents = dst.is_alias_of(src) ? device::Contents::kKeep : device::Contents::kDiscard;
  device::Writer writer(dst, contents);
  device::Reader reader(src, device::Layouts::kSigned);
  agree(std::array<device::Operand*, 1>{&writer}, std::array{&reader});
  layout::LoopNest<2> nest;
  nest.rank = static_cast<int>(writer.sizes().size());
  std::copy(writer.sizes().begin(), writer.sizes().end(), nest.extents.begin());
  layout::set_operand(nest, 0, writer.data(), writer.sizes(), writer.strides(), writer.element_size());
  layout::set_operand(nest, 1, reader.data(), reader.sizes(), reader.strides(), reader.element_size());
  kernels::copy(plan::plan_copy(nest, writer.dtype(), reader.dtype(), writer.is_conj() != reader.is_conj(),
                                writer.is_neg() != reader.is_neg(), device::num_threads()));
}

Tensor& copy_(Tensor& self, const Tensor& src, bool non_blocking) {
  if (!can_copy(self, src)) return call_fallback<at::_ops::copy_>::call(self, src, non_blocking);
  device::enter();
  if (self.numel() > 0 && !are_same_elements(self, src) && !device::copy_by_sharing(self, src)) {
    if (src.is_complex() && !self.is_complex() && self.scalar_type() != c10::kBool) {
      TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
    }
    copy_elements(self, src);
  }
  return self;
}

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  Tensor result = dst;
  return copy_(result, self, non_blocking);
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  Tensor result = dst;
  if (result.sizes() != self.sizes()) result.resize_(self.sizes());
  return copy_(result, self, /*non_blocking=*/false);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

}  // namespace
}  // namespace flexcpu::aten
