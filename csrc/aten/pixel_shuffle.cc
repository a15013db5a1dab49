// pixel_shuffle, pixel_unshuffle and channel_shuffle: copies between tensors whose dimensions are split and permuted.

#include <ATen/core/Tensor.h>
#include <ATen/ops/channel_shuffle_ops.h>
#include <ATen/ops/pixel_shuffle_ops.h>
#include <ATen/ops/pixel_unshuffle_ops.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/regions.h"
#include "aten/scalar.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;

// Whether CPU shuffles tensors like it, and there is room for the dimensions that are split.
bool takes(const Tensor& self, int64_t factor) {
  constexpr int64_t kLargest = int64_t{1} << 30;  // whose square is an int64
  if (!is_plain(self, /*cpu_scalar=*/false) || self.numel() == 0 || self.dim() < 3) return false;
  if (factor <= 0 || factor > kLargest) return false;
  switch (device::dtype_of(self.scalar_type())) {
    case DType::kU16: case DType::kU32: case DType::kU64: case DType::kC32: return false;
    default: return self.dim() + 2 <= layout::kMaxRank;
  }
}

// (..., C r r, H, W) as (..., C, H, r, W, r).
Region by_channels(const Region& region, int64_t r) {
  const int64_t channels = region.nest.rank - 3;
  const Region factors = split(split(region, channels, r * r), channels + 1, r);
  return moved(moved(factors, channels + 3, channels + 1), channels + 4, channels + 3);
}

// (..., C, H r, W r) as (..., C, H, r, W, r).
Region by_pixels(const Region& region, int64_t r) {
  const int64_t height = region.nest.rank - 2;
  return split(split(region, height, r), height + 2, r);
}

Tensor pixel_shuffle(const Tensor& self, int64_t factor) {
  if (!takes(self, factor) || self.size(-3) % (factor * factor) != 0)
    return call_fallback<at::_ops::pixel_shuffle>::call(self, factor);
  c10::DimVector sizes(self.sizes());
  const size_t rank = sizes.size();
  sizes[rank - 3] /= factor * factor;
  sizes[rank - 2] *= factor;
  sizes[rank - 1] *= factor;
  Tensor result = new_in_format(sizes, self.scalar_type(), self.suggest_memory_format());
  const device::Writer dst(result, device::Contents::kNew);
  copy(by_pixels(region_of(dst), factor), by_channels(region_of(device::Reader(self)), factor));
  return result;
}

Tensor pixel_unshuffle(const Tensor& self, int64_t factor) {
  if (!takes(self, factor) || self.size(-2) % factor != 0 || self.size(-1) % factor != 0)
    return call_fallback<at::_ops::pixel_unshuffle>::call(self, factor);
  c10::DimVector sizes(self.sizes());
  const size_t rank = sizes.size();
  sizes[rank - 3] *= factor * factor;
  sizes[rank - 2] /= factor;
  sizes[rank - 1] /= factor;
  Tensor result = new_in_format(sizes, self.scalar_type(), self.suggest_memory_format());
  const device::Writer dst(result, device::Contents::kNew);
  copy(by_channels(region_of(dst), factor), by_pixels(region_of(device::Reader(self)), factor));
  return result;
}

// Channels (g, C / g) become (C / g, g).
Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  if (!takes(self, groups) || self.size(1) % groups != 0)
    return call_fallback<at::_ops::channel_shuffle>::call(self, groups);
  Tensor result = new_in_format(self.sizes(), self.scalar_type(), self.suggest_memory_format());
  const device::Writer dst(result, device::Contents::kNew);
  copy(split(region_of(dst), 1, groups),
       moved(split(region_of(device::Reader(self)), 1, self.size(1) / groups), 1, 2));
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("pixel_shuffle", &pixel_shuffle);
  m.impl("pixel_unshuffle", &pixel_unshuffle);
  m.impl("channel_shuffle", &channel_shuffle);
}

}  // namespace
}  // namespace flexcpu::aten
