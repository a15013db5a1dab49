// add, sub, mul and true div. What a native kernel does not take, or CPU refuses, goes to the fallback, which gives the
// CPU's result or the CPU's error.

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/sub_ops.h>
#include <torch/library.h>

#include <array>
#include <optional>

#include "aten/fallback.h"
#include "aten/scalar.h"
#include "device/allocate.h"
#include "device/autograd_thread.h"
#include "device/operand.h"
#include "kernels/elementwise/binary.h"
#include "layout/result_strides.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using c10::Scalar;
using c10::ScalarType;
using plan::BinaryOp;

layout::Extents span_of(IntArrayRef values) { return {values.data(), values.size()}; }

ScalarType common_dtype(BinaryOp op, const Tensor& a, const Tensor& b) {
  ScalarType common = a.scalar_type();
  if (common != b.scalar_type()) {
    const auto state = at::native::update_result_type_state(a, {});
    common = at::native::result_type(at::native::update_result_type_state(b, state));
  }
  if (op == BinaryOp::kDiv && c10::isIntegralType(common, /*includeBool=*/true))
    return c10::get_default_dtype_as_scalartype();
  return common;
}

// Whether adding `alpha` times something in `compute` is what CPU allows.
bool takes_alpha(const Scalar& alpha, DType compute) {
  if (alpha.isBoolean()) return false;  // legal with bools only, which are not scaled here
  if (alpha.isFloatingPoint()) return is_floating(compute) || is_complex(compute);
  return !alpha.isComplex() || is_complex(compute);
}

// The factor of a scaled addition, in the dtype of the lanes.
Value alpha_value(const Scalar& alpha, DType compute) {
  switch (compute) {
    case DType::kF16: return Value::of(static_cast<float>(alpha.to<c10::Half>()));
    case DType::kBF16: return Value::of(static_cast<float>(alpha.to<c10::BFloat16>()));
    case DType::kC32: return Value::of(c10::complex<float>(alpha.to<c10::complex<c10::Half>>()));
    default: return value_of(alpha, compute);
  }
}

// Whether writing `out` element by element while reading `input` is safe: apart, or the same elements.
bool may_overlap(const Tensor& out, const Tensor& input) {
  if (out.is_same(input) || !out.storage().is_alias_of(input.storage())) return false;
  const bool same_layout = out.storage_offset() == input.storage_offset() && out.sizes() == input.sizes() &&
                           out.strides() == input.strides() && out.dtype() == input.dtype();
  if (same_layout) return false;
  if (!out.is_non_overlapping_and_dense() || !input.is_non_overlapping_and_dense()) return true;
  const auto begin = [](const Tensor& t) { return t.storage_offset() * static_cast<int64_t>(t.itemsize()); };
  const auto end = [&](const Tensor& t) { return begin(t) + static_cast<int64_t>(t.nbytes()); };
  return begin(out) < end(input) && begin(input) < end(out);
}

bool can_write(const Tensor& out, ScalarType common, IntArrayRef sizes, const Tensor& a, const Tensor& b) {
  return is_plain(out, /*cpu_scalar=*/false) && out.sizes() == sizes && c10::canCast(common, out.scalar_type()) &&
         !repeats_elements(out) && !may_overlap(out, a) && !may_overlap(out, b);
}

Tensor new_result(IntArrayRef sizes, ScalarType dtype, const Tensor& a, const Tensor& b) {
  c10::DimVector strides(sizes.size());
  const layout::Shape shapes[] = {{span_of(a.sizes()), span_of(a.strides())}, {span_of(b.sizes()), span_of(b.strides())}};
  layout::result_strides(span_of(sizes), shapes, {strides.data(), strides.size()});
  return device::empty_strided(sizes, strides, dtype);
}

// An input of a kernel: a tensor, or one element converted beforehand.
class Input {
 public:
  Input(const Tensor& tensor, DType compute) : reader_(tensor, device::Layouts::kSigned), dtype_(reader_.dtype()) {
    if (reader_.numel() != 1 || dtype_ == compute) return;
    value_ = converted(reader_.data(), dtype_, compute);
    dtype_ = compute;
  }

  DType dtype() const { return dtype_; }
  device::Reader* reader() { return &reader_; }

  void bind(layout::LoopNest<3>& nest, int n) const {
    if (value_) {
      layout::set_operand(nest, n, value_->bytes.data(), {}, {}, size_of(dtype_));
    } else {
      layout::set_operand(nest, n, reader_.data(), reader_.sizes(), reader_.strides(), reader_.element_size());
    }
  }

 private:
  device::Reader reader_;
  DType dtype_;
  std::optional<Value> value_;
};

void run(plan::BinaryPlan& plan, const Tensor& out, const Tensor& a, const Tensor& b, bool is_new) {
  auto& elements = plan.elements;
  const bool reads_out = !is_new && (out.is_alias_of(a) || out.is_alias_of(b));
  device::Writer writer(out, is_new      ? device::Contents::kNew
                                   : reads_out ? device::Contents::kKeep
                                               : device::Contents::kDiscard);
  // As on the CPU, one element beside 16-bit floats scales and divides them unrounded.
  plan.wide_scalar = is_half(elements.compute) && (plan.op == BinaryOp::kMul || plan.op == BinaryOp::kDiv) &&
                     b.numel() == 1 && b.scalar_type() != a.scalar_type();
  Input x(a, elements.compute), y(b, plan.wide_scalar ? DType::kF32 : elements.compute);
  agree(std::array<device::Operand*, 1>{&writer}, std::array{x.reader(), y.reader()});

  layout::LoopNest<3>& nest = elements.nest;
  elements.dtypes = {writer.dtype(), x.dtype(), y.dtype()};
  nest.rank = static_cast<int>(writer.sizes().size());
  std::copy(writer.sizes().begin(), writer.sizes().end(), nest.extents.begin());
  layout::set_operand(nest, 0, writer.data(), writer.sizes(), writer.strides(), writer.element_size());
  x.bind(nest, 1);
  y.bind(nest, 2);
  plan_elementwise(elements, device::num_threads(), plan.wide_scalar ? 2 : -1);
  kernels::binary(plan);
}

// result = op(a, b), into a new tensor if `result` is undefined. False, and nothing done, if a native kernel does not take
// it, or if it is an error.
bool compute(BinaryOp op, const Tensor& a, const Tensor& b, const Scalar* alpha, Tensor& result) {
  if (!is_plain(a, /*cpu_scalar=*/true) || !is_plain(b, /*cpu_scalar=*/true) || (a.is_cpu() && b.is_cpu())) return false;
  if (op == BinaryOp::kSub && (a.scalar_type() == ScalarType::Bool || b.scalar_type() == ScalarType::Bool)) return false;

  if (result.defined() && repeats_elements(result)) return false;  // the CPU's first complaint
  const bool same_sizes = a.sizes() == b.sizes();
  const c10::DimVector broadcast = same_sizes ? c10::DimVector() : at::infer_size_dimvector(a.sizes(), b.sizes());
  const IntArrayRef sizes = same_sizes ? a.sizes() : IntArrayRef(broadcast);
  const ScalarType common = common_dtype(op, a, b);

  plan::BinaryPlan plan;
  plan.op = op;
  plan.elements.compute = device::dtype_of(common);
  if (alpha) {
    if (!takes_alpha(*alpha, plan.elements.compute)) return false;
    if (!alpha->equal(1) || is_complex(plan.elements.compute)) plan.op = BinaryOp::kAddScaled;
  }
  if (plan::refuse_binary(plan.op, plan.elements.compute)) return false;
  if (result.defined() && !can_write(result, common, sizes, a, b)) return false;

  if (plan.op == BinaryOp::kAddScaled)
    plan.alpha = alpha_value(op == BinaryOp::kSub ? -*alpha : *alpha, plan.elements.compute);
  const bool is_new = !result.defined();
  if (is_new) {
    const bool row_major = same_sizes && a.is_contiguous() && b.is_contiguous();
    result = row_major ? device::empty(sizes, common) : new_result(sizes, common, a, b);
  } else {
    device::enter();
  }
  if (result.numel() > 0) run(plan, result, a, b, is_new);
  return true;
}

Tensor add(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  Tensor result;
  if (compute(BinaryOp::kAdd, self, other, &alpha, result)) return result;
  return call_fallback<at::_ops::add_Tensor>::call(self, other, alpha);
}

Tensor& add_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (compute(BinaryOp::kAdd, self, other, &alpha, self)) return self;
  return call_fallback<at::_ops::add__Tensor>::call(self, other, alpha);
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  if (compute(BinaryOp::kAdd, self, other, &alpha, out)) return out;
  return call_fallback<at::_ops::add_out>::call(self, other, alpha, out);
}

Tensor sub(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  Tensor result;
  if (compute(BinaryOp::kSub, self, other, &alpha, result)) return result;
  return call_fallback<at::_ops::sub_Tensor>::call(self, other, alpha);
}

Tensor& sub_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (compute(BinaryOp::kSub, self, other, &alpha, self)) return self;
  return call_fallback<at::_ops::sub__Tensor>::call(self, other, alpha);
}

Tensor& sub_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  if (compute(BinaryOp::kSub, self, other, &alpha, out)) return out;
  return call_fallback<at::_ops::sub_out>::call(self, other, alpha, out);
}

Tensor mul(const Tensor& self, const Tensor& other) {
  Tensor result;
  if (compute(BinaryOp::kMul, self, other, nullptr, result)) return result;
  return call_fallback<at::_ops::mul_Tensor>::call(self, other);
}

Tensor& mul_(Tensor& self, const Tensor& other) {
  if (compute(BinaryOp::kMul, self, other, nullptr, self)) return self;
  return call_fallback<at::_ops::mul__Tensor>::call(self, other);
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  if (compute(BinaryOp::kMul, self, other, nullptr, out)) return out;
  return call_fallback<at::_ops::mul_out>::call(self, other, out);
}

Tensor div(const Tensor& self, const Tensor& other) {
  Tensor result;
  if (compute(BinaryOp::kDiv, self, other, nullptr, result)) return result;
  return call_fallback<at::_ops::div_Tensor>::call(self, other);
}

Tensor& div_(Tensor& self, const Tensor& other) {
  if (compute(BinaryOp::kDiv, self, other, nullptr, self)) return self;
  return call_fallback<at::_ops::div__Tensor>::call(self, other);
}

Tensor& div_out(const Tensor& self, const Tensor& other, Tensor& out) {
  if (compute(BinaryOp::kDiv, self, other, nullptr, out)) return out;
  return call_fallback<at::_ops::div_out>::call(self, other, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("add.Tensor", &add);
  m.impl("add_.Tensor", &add_);
  m.impl("add.out", &add_out);
  m.impl("sub.Tensor", &sub);
  m.impl("sub_.Tensor", &sub_);
  m.impl("sub.out", &sub_out);
  m.impl("mul.Tensor", &mul);
  m.impl("mul_.Tensor", &mul_);
  m.impl("mul.out", &mul_out);
  m.impl("div.Tensor", &div);
  m.impl("div_.Tensor", &div_);
  m.impl("div.out", &div_out);
}

}  // namespace
}  // namespace flexcpu::aten
