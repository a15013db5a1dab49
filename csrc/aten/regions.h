#pragma once
// Parts of tensors for kernels that rearrange: what views are to tensors, without the tensors.

#include <ATen/core/Tensor.h>

#include "aten/copy_strides.h"
#include "device/allocate.h"
#include "device/operand.h"
#include "kernels/copy/copy.h"
#include "layout/loop_nest.h"

namespace flexcpu::aten {

// The elements of a tensor or of a part of it, which layout::part_of() cuts out.
struct Region {
  layout::LoopNest<1> nest;
  DType dtype;
};

template <typename Operand>
Region region_of(const Operand& operand) {
  Region region;
  region.dtype = operand.dtype();
  region.nest.rank = static_cast<int>(operand.sizes().size());
  std::copy(operand.sizes().begin(), operand.sizes().end(), region.nest.extents.begin());
  layout::set_operand(region.nest, 0, operand.data(), operand.sizes(), operand.strides(), operand.element_size());
  return region;
}

inline Region part_of(const Region& region, int64_t d, int64_t begin, int64_t end) {
  return {layout::part_of(region.nest, static_cast<int>(d), begin, end), region.dtype};
}

// The same elements, dimension `d` from its end.
inline Region reversed(Region region, int64_t d) {
  auto& [nest, dtype] = region;
  nest.data[0] += (nest.extents[d] - 1) * nest.strides[0][d] * nest.element_size[0];
  nest.strides[0][d] = -nest.strides[0][d];
  return region;
}

// Dimension `d` as two, the inner one of `inner` steps.
inline Region split(Region region, int64_t d, int64_t inner) {
  auto& [nest, dtype] = region;
  for (int64_t e = nest.rank++; e > d; --e) {
    nest.extents[e] = nest.extents[e - 1];
    nest.strides[0][e] = nest.strides[0][e - 1];
  }
  nest.extents[d] /= inner;
  nest.strides[0][d] *= inner;
  nest.extents[d + 1] = inner;
  return region;
}

inline Region moved(Region region, int64_t from, int64_t to) {
  layout::move_dimension(region.nest, static_cast<int>(from), static_cast<int>(to));
  return region;
}

// A new tensor of the same sizes, its dimensions in the same order, as torch.empty_like.
inline at::Tensor new_like(const at::Tensor& tensor) {
  return device::empty_strided(tensor.sizes(), strides_of_copy(tensor, c10::MemoryFormat::Preserve), tensor.scalar_type());
}

// And one in a memory format.
inline at::Tensor new_in_format(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::MemoryFormat format) {
  at::Tensor tensor = device::empty(sizes, dtype);
  if (format != c10::MemoryFormat::Contiguous) tensor.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return tensor;
}

// Both walked together; of the same extents.
inline layout::LoopNest<2> nest_of(const Region& dst, const Region& src) {
  layout::LoopNest<2> nest;
  nest.rank = dst.nest.rank;
  nest.extents = dst.nest.extents;
  nest.strides = {dst.nest.strides[0], src.nest.strides[0]};
  nest.data = {dst.nest.data[0], src.nest.data[0]};
  nest.element_size = {dst.nest.element_size[0], src.nest.element_size[0]};
  return nest;
}

// dst = src, converted; of the same extents, apart or the same elements. Nothing where there are no elements.
inline void copy(const Region& dst, const Region& src) {
  const layout::LoopNest<2> nest = nest_of(dst, src);
  if (nest.numel() == 0) return;
  kernels::copy(plan::plan_copy(nest, dst.dtype, src.dtype, false, false, device::num_threads()));
}

}  // namespace flexcpu::aten
