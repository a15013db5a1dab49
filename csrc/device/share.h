#pragma once
// Copies that become an increment.

#include <ATen/core/Tensor.h>

#include <bitset>

#include "layout/loop_nest.h"

namespace flexcpu::device {

// A tensor on `device` (flex or CPU) with `tensor`'s sizes, strides and bytes, from the beginning of a storage of its own, as
// a copy; undefined when it may not share (storage.h), has a conjugate or negative bit, or an overlapping or gappy layout.
at::Tensor share_tensor(const at::Tensor& tensor, c10::Device device);

// A rearranged copy of a flex tensor that is put off (pending.h): of its sizes, with `strides`, dense in any order, and the
// dimensions in `flipped` backwards. Undefined when it has to be made at once, as below `least` bytes.
at::Tensor defer_copy(const at::Tensor& tensor, c10::IntArrayRef strides, std::bitset<layout::kMaxRank> flipped, int64_t least);

// copy_() of a whole storage: makes `dst`'s storage share `src`'s bytes. False, and nothing done, when dtype or layout
// differ, either covers only a part of its storage, or the bytes may not be shared or swapped.
bool copy_by_sharing(const at::Tensor& dst, const at::Tensor& src);

// A CPU tensor over the bytes of a flex tensor, for good: both see each other's writes. The bytes escape.
at::Tensor alias_on_cpu(const at::Tensor& tensor);

// A flex tensor over the bytes of a plain strided CPU tensor: shared copy-on-write when they are a tracked buffer, else
// aliased for good (both see each other's writes).
at::Tensor adopt_from_cpu(const at::Tensor& tensor);

// Whether two tensors' storages are on the same buffer right now.
bool shares_memory(const at::Tensor& a, const at::Tensor& b);

}  // namespace flexcpu::device
