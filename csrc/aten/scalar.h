#pragma once
// Values for kernels: from torch's scalars and from one-element tensors.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include "device/operand.h"
#include "kernels/copy/cast.h"
#include "layout/loop_nest.h"

namespace flexcpu::aten {

// `scalar` as one element of `dtype`, which is not kOther. Throws torch's error where it does not fit.
inline Value value_of(const c10::Scalar& scalar, DType dtype) {
  switch (dtype) {
    case DType::kBool: return Value::of(scalar.to<bool>());
    case DType::kU8: return Value::of(scalar.to<uint8_t>());
    case DType::kI8: return Value::of(scalar.to<int8_t>());
    case DType::kI16: return Value::of(scalar.to<int16_t>());
    case DType::kI32: return Value::of(scalar.to<int32_t>());
    case DType::kI64: return Value::of(scalar.to<int64_t>());
    case DType::kU16: return Value::of(scalar.to<uint16_t>());
    case DType::kU32: return Value::of(scalar.to<uint32_t>());
    case DType::kU64: return Value::of(scalar.to<uint64_t>());
    case DType::kF16: return Value::of(scalar.to<c10::Half>());
    case DType::kBF16: return Value::of(scalar.to<c10::BFloat16>());
    case DType::kF32: return Value::of(scalar.to<float>());
    case DType::kF64: return Value::of(scalar.to<double>());
    case DType::kC32: return Value::of(c10::complex<c10::Half>(scalar.to<c10::complex<float>>()));
    case DType::kC64: return Value::of(scalar.to<c10::complex<float>>());
    case DType::kC128: return Value::of(scalar.to<c10::complex<double>>());
    case DType::kOther: break;
  }
  return Value();
}

// `value`, one of `from`, converted to `to` as a copy would.
inline Value converted(const void* value, DType from, DType to) {
  Value result;
  const kernels::Cast cast(to, from, /*conjugate=*/false, /*negate=*/false);
  if (cast.is_identity()) {
    std::memcpy(result.bytes.data(), value, size_of(to));
  } else {
    cast(result.bytes.data(), value, 1);
  }
  return result;
}

// Whether kernels can take a tensor as it is: strided, without bits that a kernel would have to apply, of a dtype and a
// rank that they know. A CPU tensor is taken if it is a scalar and `cpu_scalar` allows it.
inline bool is_plain(const at::Tensor& tensor, bool cpu_scalar) {
  using c10::DispatchKey;
  if (!tensor.defined()) return false;
  const c10::DispatchKeySet keys = tensor.key_set();
  const bool is_flex = keys.has(DispatchKey::PrivateUse1);
  if (!is_flex && !(cpu_scalar && tensor.dim() == 0 && keys.has(DispatchKey::CPU))) return false;
  constexpr c10::DispatchKeySet kBits({DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor});
  return !keys.has_any(kBits) && tensor.dim() <= layout::kMaxRank &&
         device::dtype_of(tensor.scalar_type()) != DType::kOther;
}

// Whether elements of an expanded tensor are one.
inline bool repeats_elements(const at::Tensor& tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) return true;
  return false;
}

}  // namespace flexcpu::aten
