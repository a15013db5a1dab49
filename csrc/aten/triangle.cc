// tril and triu. What is refused goes to the fallback, which gives the CPU's result or the CPU's error.

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_ops.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/regions.h"
#include "aten/scalar.h"
#include "device/autograd_thread.h"
#include "kernels/triangle/triangle.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using kernels::Triangle;

bool takes(const Tensor& self) {
  if (!is_plain(self, /*cpu_scalar=*/false) || self.dim() < 2) return false;
  const DType dtype = device::dtype_of(self.scalar_type());
  return dtype != DType::kU16 && dtype != DType::kU32 && dtype != DType::kU64;
}

bool can_write(const Tensor& out, const Tensor& self) {
  // The CPU makes a new tensor on the way, and warns of its dtype.
  if (out.is_same(self) && out.scalar_type() == c10::ScalarType::ComplexHalf && !out.is_contiguous()) return false;
  if (!is_plain(out, /*cpu_scalar=*/false) || out.scalar_type() != self.scalar_type() || out.sizes() != self.sizes())
    return false;
  return at::has_internal_overlap(out) != at::MemOverlap::Yes && (out.is_same(self) || !out.is_alias_of(self));
}

void run(const Region& dst, const Region& src, Triangle which, int64_t diagonal) {
  kernels::triangle(nest_of(dst, src), which, diagonal, device::num_threads());
}

// self's triangle, into a new row-major tensor if `result` is undefined. False, and nothing done, if the CPU is to answer.
bool compute(Triangle which, const Tensor& self, int64_t diagonal, Tensor& result) {
  if (!takes(self) || (result.defined() && !can_write(result, self))) return false;
  const bool is_new = !result.defined();
  if (is_new) {
    result = device::empty(self.sizes(), self.scalar_type());
  } else {
    device::enter();
  }
  if (result.numel() == 0) return true;
  const bool in_place = result.is_same(self);
  const device::Writer writer(result, is_new     ? device::Contents::kNew
                                      : in_place ? device::Contents::kKeep
                                                 : device::Contents::kDiscard);
  const Region dst = region_of(writer);
  if (in_place) {
    run(dst, dst, which, diagonal);
    return true;
  }
  const device::Reader reader(self);
  const Region src = region_of(reader);
  if (self.stride(-1) == 1 && result.stride(-1) == 1) {
    run(dst, src, which, diagonal);
  } else {
    copy(dst, src);
    run(dst, dst, which, diagonal);
  }
  return true;
}

Tensor tril(const Tensor& self, int64_t diagonal) {
  Tensor result;
  if (compute(Triangle::kLower, self, diagonal, result)) return result;
  return call_fallback<at::_ops::tril>::call(self, diagonal);
}

Tensor& tril_(Tensor& self, int64_t diagonal) {
  if (compute(Triangle::kLower, self, diagonal, self)) return self;
  return call_fallback<at::_ops::tril_>::call(self, diagonal);
}

Tensor& tril_out(const Tensor& self, int64_t diagonal, Tensor& out) {
  if (compute(Triangle::kLower, self, diagonal, out)) return out;
  return call_fallback<at::_ops::tril_out>::call(self, diagonal, out);
}

Tensor triu(const Tensor& self, int64_t diagonal) {
  Tensor result;
  if (compute(Triangle::kUpper, self, diagonal, result)) return result;
  return call_fallback<at::_ops::triu>::call(self, diagonal);
}

Tensor& triu_(Tensor& self, int64_t diagonal) {
  if (compute(Triangle::kUpper, self, diagonal, self)) return self;
  return call_fallback<at::_ops::triu_>::call(self, diagonal);
}

Tensor& triu_out(const Tensor& self, int64_t diagonal, Tensor& out) {
  if (compute(Triangle::kUpper, self, diagonal, out)) return out;
  return call_fallback<at::_ops::triu_out>::call(self, diagonal, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("tril", &tril);
  m.impl("tril_", &tril_);
  m.impl("tril.out", &tril_out);
  m.impl("triu", &triu);
  m.impl("triu_", &triu_);
  m.impl("triu.out", &triu_out);
}

}  // namespace
}  // namespace flexcpu::aten
