// cat, and with it stack, hstack, vstack, ... What is refused goes to the fallback, which gives the CPU's result or the
// CPU's error.

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/cat_ops.h>
#include <torch/library.h>

#include <deque>

#include "aten/fallback.h"
#include "aten/regions.h"
#include "aten/scalar.h"
#include "device/autograd_thread.h"
#include "kernels/cat/cat.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using c10::MemoryFormat;
using c10::ScalarType;
using Tensors = at::MaterializedITensorListRef;

// As on the CPU, an empty tensor of one dimension joins anything.
bool is_skipped(const Tensor& tensor) { return tensor.dim() == 1 && tensor.size(0) == 0; }

struct Join {
  int64_t dim;
  ScalarType dtype;
  MemoryFormat format;
  c10::DimVector sizes;
};

// False where the tensors do not fit each other, or are none that kernels take.
bool examine(const Tensors& tensors, int64_t dim, Join& join) {
  if (tensors.empty()) return false;
  const Tensor* first = nullptr;
  bool same_dtype = true;
  std::optional<MemoryFormat> format;
  const ScalarType dtype = tensors[0].get().scalar_type();
  for (const Tensor& tensor : tensors) {
    if (!is_plain(tensor, /*cpu_scalar=*/false) || tensor.dim() == 0) return false;
    same_dtype = same_dtype && tensor.scalar_type() == dtype;
    const MemoryFormat suggested = tensor.suggest_memory_format();
    format = !format || *format == suggested ? suggested : MemoryFormat::Contiguous;
    if (!first && !is_skipped(tensor)) first = &tensor;
  }
  if (!first) return false;
  const int64_t rank = first->dim();
  if (dim < -rank || dim >= rank) return false;
  join = {c10::maybe_wrap_dim(dim, rank), dtype, *format, c10::DimVector(first->sizes())};
  if (!same_dtype) {
    at::native::ResultTypeState state = {};
    for (const Tensor& tensor : tensors) state = at::native::update_result_type_state(tensor, state);
    join.dtype = at::native::result_type(state);
  }
  join.sizes[join.dim] = 0;
  for (const Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    if (tensor.dim() != rank) return false;
    for (int64_t d = 0; d < rank; ++d)
      if (d != join.dim && tensor.size(d) != first->size(d)) return false;
    join.sizes[join.dim] += tensor.size(join.dim);
  }
  return true;
}

bool can_write(const Tensor& out, const Tensors& tensors, const Join& join) {
  if (!is_plain(out, /*cpu_scalar=*/false) || out.sizes() != join.sizes) return false;
  if (!c10::canCast(join.dtype, out.scalar_type()) || at::has_internal_overlap(out) == at::MemOverlap::Yes) return false;
  return std::none_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) { return out.is_alias_of(tensor); });
}

// Rows and columns of contiguous tensors of one dtype.
void join_contiguous(const device::Writer& dst, const Tensors& tensors, int64_t dim) {
  plan::CatPlan plan;
  plan.dst = static_cast<std::byte*>(dst.data());
  plan.element_size = dst.element_size();
  plan.rows = 1;
  for (int64_t d = 0; d < dim; ++d) plan.rows *= dst.sizes()[d];
  std::deque<device::Reader> readers;
  for (const Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const auto& reader = readers.emplace_back(tensor);
    plan.inputs.push_back({static_cast<const std::byte*>(reader.data()), reader.numel() / plan.rows});
  }
  plan_cat(plan, device::num_threads());
  kernels::cat(plan);
}

void join_strided(const device::Writer& writer, const Tensors& tensors, int64_t dim) {
  const Region dst = region_of(writer);
  int64_t at = 0;
  for (const Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    const int64_t end = at + tensor.size(dim);
    if (tensor.numel() > 0) copy(part_of(dst, dim, at, end), region_of(device::Reader(tensor)));
    at = end;
  }
}

// The tensors joined, into a new one if `result` is undefined. False, and nothing done, if the CPU is to answer.
bool compute(const Tensors& tensors, int64_t dim, Tensor& result) {
  Join join;
  if (!examine(tensors, dim, join)) return false;
  const bool is_new = !result.defined();
  if (is_new) {
    result = new_in_format(join.sizes, join.dtype, join.format);
  } else {
    if (!can_write(result, tensors, join)) return false;
    device::enter();
  }
  if (result.numel() == 0) return true;
  const device::Writer dst(result, is_new ? device::Contents::kNew : device::Contents::kDiscard);
  const bool is_plain_join =
      result.is_contiguous() && std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
        return tensor.numel() == 0 || (tensor.is_contiguous() && tensor.scalar_type() == result.scalar_type());
      });
  is_plain_join ? join_contiguous(dst, tensors, join.dim) : join_strided(dst, tensors, join.dim);
  return true;
}

Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  Tensor result;
  if (compute(tensors.materialize(), dim, result)) return result;
  return call_fallback<at::_ops::cat>::call(tensors, dim);
}

Tensor& cat_out(const at::ITensorListRef& tensors, int64_t dim, Tensor& out) {
  if (compute(tensors.materialize(), dim, out)) return out;
  return call_fallback<at::_ops::cat_out>::call(tensors, dim, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cat", &cat);
  m.impl("cat.out", &cat_out);
}

}  // namespace
}  // namespace flexcpu::aten
