#pragma once
// New tensors on the device.

#include <ATen/core/Tensor.h>

namespace flexcpu::device {

// An uninitialised strided flex tensor. Strides default to contiguous.
at::Tensor empty(c10::IntArrayRef sizes, c10::ScalarType dtype);
at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype);

// A tensor on `storage` with `like`'s dtype, sizes, strides, offset and conjugate and negative bits, on `device` (flex or CPU).
at::Tensor tensor_on(c10::intrusive_ptr<c10::StorageImpl> storage, c10::Device device, const at::Tensor& like);

// torch's warning, once, of a new complex32 tensor.
void warn_of_complex_half(c10::ScalarType dtype);

}  // namespace flexcpu::device
