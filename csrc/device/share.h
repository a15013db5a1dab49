#pragma once
// Copies that become an increment.

#include <ATen/core/Tensor.h>

namespace flexcpu::device {

// A tensor on `device` (flex or CPU) with `tensor`'s sizes, strides and bytes; undefined when it may not share: escaped or
// foreign bytes, a conjugate or negative bit, overlapping or gappy layouts, or a tensor that covers less than half of its
// storage (a small clone must not keep a large storage alive).
at::Tensor share_tensor(const at::Tensor& tensor, c10::Device device);

// copy_() of a whole storage: makes `dst`'s storage share `src`'s bytes. False, and nothing done, when dtype or layout
// differ, either covers only a part of its storage, or the bytes may not be shared or swapped.
bool copy_by_sharing(const at::Tensor& dst, const at::Tensor& src);

// A CPU tensor over the bytes of a flex tensor, for good: both see each other's writes. The bytes escape.
at::Tensor alias_on_cpu(const at::Tensor& tensor);

// A flex tensor over the bytes of a CPU tensor: shared copy-on-write when the CPU tensor's bytes are a tracked buffer,
// else aliased for good (both see each other's writes).
at::Tensor adopt_from_cpu(const at::Tensor& tensor);

// Whether two tensors' storages are the same bytes right now.
bool shares_memory(const at::Tensor& a, const at::Tensor& b);

}  // namespace flexcpu::device
