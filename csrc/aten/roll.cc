// roll: every dimension that is rolled falls into two pieces that change places.

#include <ATen/core/Tensor.h>
#include <ATen/ops/roll_ops.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/regions.h"
#include "aten/scalar.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using c10::IntArrayRef;

// By how many steps each dimension is rolled towards its end; false for what is an error.
bool steps_of(IntArrayRef shifts, IntArrayRef dims, IntArrayRef sizes, c10::DimVector& steps) {
  const auto rank = static_cast<int64_t>(sizes.size());
  if (shifts.empty() || shifts.size() != dims.size()) return false;
  steps.assign(rank, 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -rank || dims[i] >= rank) return false;
    const int64_t d = dims[i] < 0 ? dims[i] + rank : dims[i];
    steps[d] = (steps[d] + shifts[i] % sizes[d] + sizes[d]) % sizes[d];
  }
  return true;
}

// Dimensions from `d` on; those before it are done.
void copy_pieces(const Region& dst, const Region& src, IntArrayRef steps, int64_t d) {
  const auto rank = static_cast<int64_t>(steps.size());
  while (d < rank && steps[d] == 0) ++d;
  if (d == rank) return copy(dst, src);
  const int64_t size = dst.nest.extents[d], step = steps[d];
  copy_pieces(part_of(dst, d, 0, step), part_of(src, d, size - step, size), steps, d + 1);
  copy_pieces(part_of(dst, d, step, size), part_of(src, d, 0, size - step), steps, d + 1);
}

Tensor roll(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  // Without dimensions it is the flat tensor that is rolled, of which kernels need an order.
  const bool is_flat = dims.empty() && shifts.size() == 1;
  const bool takes = is_plain(self, /*cpu_scalar=*/false) && self.numel() > 0 &&
                     (is_flat ? self.is_contiguous() : self.suggest_memory_format() == c10::MemoryFormat::Contiguous);
  const int64_t flat_size[] = {self.numel()}, flat_dim[] = {0};
  c10::DimVector steps;
  const IntArrayRef rolled = is_flat ? flat_dim : dims, sizes = is_flat ? flat_size : self.sizes();
  if (!takes || !steps_of(shifts, rolled, sizes, steps))
    return call_fallback<at::_ops::roll>::call(self, shifts, dims);

  Tensor result = device::empty(self.sizes(), self.scalar_type());
  const device::Writer writer(result, device::Contents::kNew);
  const device::Reader reader(self);
  Region dst = region_of(writer), src = region_of(reader);
  if (is_flat) {
    for (Region* region : {&dst, &src}) {
      region->nest.rank = 1;
      region->nest.extents[0] = self.numel();
      region->nest.strides[0][0] = 1;
    }
  }
  copy_pieces(dst, src, steps, 0);
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("roll", &roll); }

}  // namespace
}  // namespace flexcpu::aten
