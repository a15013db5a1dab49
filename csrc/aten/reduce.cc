// sum and mean. What a native kernel does not take, or CPU refuses, goes to the fallback, which gives the CPU's result
// or the CPU's error.

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/sum_ops.h>
#include <torch/library.h>

#include <array>
#include <optional>

#include "aten/fallback.h"
#include "aten/scalar.h"
#include "device/allocate.h"
#include "device/autograd_thread.h"
#include "device/operand.h"
#include "kernels/reduce/reduce.h"

namespace flexcpu::aten {
namespace {

using at::OptionalIntArrayRef;
using at::Tensor;
using c10::ScalarType;

enum class Op { kSum, kMean };

using DimensionSet = std::bitset<at::dim_bitset_size>;

// No dimensions, or none named, are all of them. Throws the CPU's errors.
DimensionSet reduced_dimensions(OptionalIntArrayRef dims, int64_t rank) {
  return dims && !dims->empty() ? at::dim_list_to_bitset(*dims, rank) : DimensionSet().set();
}

bool is_half_type(ScalarType type) { return type == ScalarType::Half || type == ScalarType::BFloat16; }

// The dtype of the result.
ScalarType result_dtype(Op op, const Tensor& self, std::optional<ScalarType> dtype, const Tensor& out) {
  if (dtype) return *dtype;
  if (out.defined()) return out.scalar_type();
  const bool widens = op == Op::kSum && c10::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  return widens ? ScalarType::Long : self.scalar_type();
}

// Whether CPU adds values of this dtype, and the kernels do.
bool can_add(Op op, const Tensor& self, ScalarType result) {
  if (c10::isComplexType(self.scalar_type()) && !c10::isComplexType(result)) return false;  // a warning comes with it
  switch (device::dtype_of(result)) {
    case DType::kF16: case DType::kBF16: case DType::kF32: case DType::kF64: case DType::kC64: case DType::kC128:
      return true;
    case DType::kU8: case DType::kI8: case DType::kI16: case DType::kI32: case DType::kI64: return op == Op::kSum;
    default: return false;
  }
}

c10::DimVector shape_of(const Tensor& self, DimensionSet reduced, bool keepdim) {
  c10::DimVector shape;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!reduced[d]) {
      shape.push_back(self.size(d));
    } else if (keepdim) {
      shape.push_back(1);
    }
  }
  return shape;
}

bool can_write(const Tensor& out, ScalarType dtype, c10::IntArrayRef shape, const Tensor& self) {
  return is_plain(out, /*cpu_scalar=*/false) && out.scalar_type() == dtype && out.sizes() == shape &&
         !out.is_alias_of(self) && at::has_internal_overlap(out) != at::MemOverlap::Yes;
}

void run(Op op, const Tensor& result, const Tensor& self, DimensionSet reduced, bool keepdim) {
  const device::Writer dst(result, device::Contents::kDiscard);
  device::Reader src(self, device::Layouts::kSigned);
  agree({}, std::array{&src});
  layout::LoopNest<2> nest;
  nest.rank = static_cast<int>(src.sizes().size());
  std::copy(src.sizes().begin(), src.sizes().end(), nest.extents.begin());
  layout::set_operand(nest, 1, src.data(), src.sizes(), src.strides(), src.element_size());
  nest.data[0] = static_cast<std::byte*>(dst.data());
  nest.element_size[0] = dst.element_size();
  c10::DimVector strides(self.dim());
  for (int64_t axis = 0, at = 0; axis < self.dim(); ++axis) {
    strides[axis] = reduced[axis] ? 0 : dst.strides()[at];
    if (keepdim || !reduced[axis]) ++at;
  }
  // A dimension of self may be several of src's, the last of which has the stride.
  for (int d = nest.rank - 1; d >= 0; --d) {
    nest.strides[0][d] = strides[src.axis(d)];
    strides[src.axis(d)] *= nest.extents[d];
  }
  // As on the CPU, a mean in 16 bits adds in f32 what it is given; a sum converts to 16 bits first.
  const bool adds_wide = op == Op::kMean && is_half_type(result.scalar_type());
  kernels::reduce(plan::plan_sum(nest, dst.dtype(), src.dtype(), adds_wide ? DType::kF32 : dst.dtype(),
                                 op == Op::kMean, device::num_threads()));
}

// The sum or mean of self, into a new row-major tensor if `result` is undefined. False, and nothing done, if a native
// kernel does not take it, or if it is an error.
bool compute(Op op, const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype,
             Tensor& result) {
  if (!is_plain(self, /*cpu_scalar=*/false)) return false;
  const ScalarType type = result_dtype(op, self, dtype, result);
  if (!can_add(op, self, type)) return false;
  const DimensionSet reduced = reduced_dimensions(dims, self.dim());
  const c10::DimVector shape = shape_of(self, reduced, keepdim);
  if (result.defined()) {
    if (!can_write(result, type, shape, self)) return false;
    device::enter();
  } else {
    result = device::empty(shape, type);
  }
  if (result.numel() > 0) run(op, result, self, reduced, keepdim);
  return true;
}

Tensor sum(const Tensor& self, std::optional<ScalarType> dtype) {
  Tensor result;
  if (compute(Op::kSum, self, std::nullopt, /*keepdim=*/false, dtype, result)) return result;
  return call_fallback<at::_ops::sum>::call(self, dtype);
}

Tensor sum_dim(const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype) {
  Tensor result;
  if (compute(Op::kSum, self, dims, keepdim, dtype, result)) return result;
  return call_fallback<at::_ops::sum_dim_IntList>::call(self, dims, keepdim, dtype);
}

Tensor& sum_out(const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype,
                Tensor& out) {
  if (compute(Op::kSum, self, dims, keepdim, dtype, out)) return out;
  return call_fallback<at::_ops::sum_IntList_out>::call(self, dims, keepdim, dtype, out);
}

Tensor mean(const Tensor& self, std::optional<ScalarType> dtype) {
  Tensor result;
  if (compute(Op::kMean, self, std::nullopt, /*keepdim=*/false, dtype, result)) return result;
  return call_fallback<at::_ops::mean>::call(self, dtype);
}

Tensor mean_dim(const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype) {
  Tensor result;
  if (compute(Op::kMean, self, dims, keepdim, dtype, result)) return result;
  return call_fallback<at::_ops::mean_dim>::call(self, dims, keepdim, dtype);
}

Tensor& mean_out(const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype,
                 Tensor& out) {
  if (compute(Op::kMean, self, dims, keepdim, dtype, out)) return out;
  return call_fallback<at::_ops::mean_out>::call(self, dims, keepdim, dtype, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("sum", &sum);
  m.impl("sum.dim_IntList", &sum_dim);
  m.impl("sum.IntList_out", &sum_out);
  m.impl("mean", &mean);
  m.impl("mean.dim", &mean_dim);
  m.impl("mean.out", &mean_out);
}

}  // namespace
}  // namespace flexcpu::aten
