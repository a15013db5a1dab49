// constant_pad_nd, reflection_pad1d to 3d, replication_pad1d to 3d. What is refused goes to the CPU's composite, or to
// the fallback, which gives the CPU's result or the CPU's error.

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/reflection_pad1d_ops.h>
#include <ATen/ops/reflection_pad2d_ops.h>
#include <ATen/ops/reflection_pad3d_ops.h>
#include <ATen/ops/replication_pad1d_ops.h>
#include <ATen/ops/replication_pad2d_ops.h>
#include <ATen/ops/replication_pad3d_ops.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/regions.h"
#include "aten/scalar.h"
#include "device/autograd_thread.h"
#include "kernels/pad/pad.h"

namespace flexcpu::aten {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using c10::MemoryFormat;
using c10::Scalar;

enum class Mode { kConstant, kReflect, kReplicate };

// Steps added before and after a dimension; negative ones are taken away.
struct Border {
  int64_t before = 0, after = 0;
};
using Borders = c10::SmallVector<Border, 5>;

// `pad` begins with the last dimension.
Borders borders_of(IntArrayRef pad, int64_t rank) {
  Borders borders(rank);
  for (size_t i = 0; 2 * i + 1 < pad.size(); ++i) borders[rank - 1 - i] = {pad[2 * i], pad[2 * i + 1]};
  return borders;
}

std::vector<int64_t> indices(Mode mode, Border border, int64_t size) {
  if (border.before == 0 && border.after == 0) return {};
  std::vector<int64_t> index(size + border.before + border.after);
  for (int64_t i = 0; i < std::ssize(index); ++i) {
    const int64_t at = i - border.before;
    const bool is_inside = at >= 0 && at < size;
    switch (mode) {
      case Mode::kConstant: index[i] = is_inside ? at : kernels::kFill; break;
      case Mode::kReflect: index[i] = is_inside ? at : at < 0 ? -at : 2 * (size - 1) - at; break;
      case Mode::kReplicate: index[i] = std::clamp<int64_t>(at, 0, size - 1); break;
    }
  }
  return index;
}

// Dimensions in the order in which they lie in memory.
c10::DimVector order_of(MemoryFormat format, int64_t rank) {
  c10::DimVector order(rank);
  for (int64_t d = 0; d < rank; ++d) order[d] = d;
  if (format != MemoryFormat::Contiguous) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

void run(Mode mode, const Tensor& result, device::Contents contents, const Tensor& self, const Borders& borders,
         MemoryFormat format, const Value& value) {
  const c10::DimVector order = order_of(format, self.dim());
  const bool has_runs = self.stride(order.back()) == 1;
  const Tensor input = has_runs ? self : self.contiguous(format);
  const device::Writer writer(result, contents);
  const device::Reader reader(input);

  // What lies inside the innermost padded dimension moves as one.
  kernels::Padding padding{.dst = static_cast<std::byte*>(writer.data()),
                           .src = static_cast<const std::byte*>(reader.data()), .dimensions = {},
                           .unit = reader.element_size(), .fill = nullptr};
  int64_t last = self.dim() - 1;
  for (; last > 0; --last) {
    const int64_t d = order[last];
    if (borders[d].before != 0 || borders[d].after != 0 || self.size(d) == 0) break;
    if (reader.strides()[order[last - 1]] * reader.element_size() != padding.unit * self.size(d)) break;
    padding.unit *= self.size(d);
  }
  std::vector<kernels::PaddedDimension> dimensions;
  for (int64_t i = 0; i <= last; ++i) {
    const int64_t d = order[i];
    dimensions.push_back({result.size(d), reader.strides()[d] * reader.element_size(),
                          indices(mode, borders[d], self.size(d))});
  }
  std::vector<std::byte> fill(padding.unit);
  for (int64_t i = 0; i < padding.unit; i += reader.element_size())
    std::memcpy(fill.data() + i, value.bytes.data(), reader.element_size());
  padding.dimensions = dimensions;
  padding.fill = fill.data();
  kernels::pad(padding, device::num_threads());
}

c10::DimVector padded_sizes(const Tensor& self, const Borders& borders) {
  c10::DimVector sizes(self.sizes());
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] += borders[d].before + borders[d].after;
  return sizes;
}

bool has_borders_and_elements(const Tensor& self, const Borders& borders) {
  bool grows = false;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const Border border = borders[d];
    // Far from what an int64 holds, too.
    constexpr int64_t kMost = int64_t{1} << 40;
    if (std::abs(border.before) > kMost || std::abs(border.after) > kMost) return false;
    if (self.size(d) + std::min<int64_t>(border.before, 0) + std::min<int64_t>(border.after, 0) <= 0) return false;
    grows = grows || border.before > 0 || border.after > 0;
  }
  return grows && self.numel() > 0;
}

Tensor constant_pad_nd(const Tensor& self, IntArrayRef pad, const Scalar& value) {
  const auto rank = static_cast<size_t>(self.dim());
  if (is_plain(self, /*cpu_scalar=*/false) && pad.size() % 2 == 0 && pad.size() <= 2 * rank) {
    const Borders borders = borders_of(pad, self.dim());
    if (has_borders_and_elements(self, borders)) {
      const Value fill = value_of(value, device::dtype_of(self.scalar_type()));
      const MemoryFormat format = self.suggest_memory_format();
      Tensor result = new_in_format(padded_sizes(self, borders), self.scalar_type(), format);
      run(Mode::kConstant, result, device::Contents::kNew, self, borders, format, fill);
      return result;
    }
  }
  return at::compositeexplicitautograd::constant_pad_nd(self, pad, value);
}

// Reflection and replication, along the last `dimensions` dimensions.
bool takes(Mode mode, const Tensor& self, IntArrayRef pad, int64_t dimensions) {
  if (!is_plain(self, /*cpu_scalar=*/false) || self.numel() == 0) return false;
  if (self.dim() != dimensions + 1 && self.dim() != dimensions + 2) return false;
  if (static_cast<int64_t>(pad.size()) != 2 * dimensions) return false;
  for (int64_t i = 0; i < std::ssize(pad); ++i) {
    const int64_t size = self.size(self.dim() - 1 - i / 2);
    if (pad[i] < 0 || pad[i] > (int64_t{1} << 40) || (mode == Mode::kReflect && pad[i] >= size)) return false;
  }
  switch (device::dtype_of(self.scalar_type())) {  // as the CPU
    case DType::kBool: case DType::kU16: case DType::kU32: case DType::kU64: case DType::kC32: return false;
    default: return true;
  }
}

bool can_write(const Tensor& out, const Tensor& self, IntArrayRef sizes, MemoryFormat format) {
  return is_plain(out, /*cpu_scalar=*/false) && out.scalar_type() == self.scalar_type() && out.sizes() == sizes &&
         out.is_contiguous(format) && !out.is_alias_of(self);
}

bool compute(Mode mode, const Tensor& self, IntArrayRef pad, int64_t dimensions, Tensor& result) {
  if (!takes(mode, self, pad, dimensions)) return false;
  const Borders borders = borders_of(pad, self.dim());
  const c10::DimVector sizes = padded_sizes(self, borders);
  const MemoryFormat format = self.suggest_memory_format();
  const bool is_new = !result.defined();
  if (is_new) {
    result = new_in_format(sizes, self.scalar_type(), format);
  } else {
    if (!can_write(result, self, sizes, format)) return false;
    device::enter();
  }
  run(mode, result, is_new ? device::Contents::kNew : device::Contents::kDiscard, self, borders, format, Value());
  return true;
}

template <Mode mode, int64_t dimensions, typename Op>
Tensor pad(const Tensor& self, IntArrayRef padding) {
  Tensor result;
  if (compute(mode, self, padding, dimensions, result)) return result;
  return call_fallback<Op>::call(self, padding);
}

template <Mode mode, int64_t dimensions, typename Op>
Tensor& pad_out(const Tensor& self, IntArrayRef padding, Tensor& out) {
  if (compute(mode, self, padding, dimensions, out)) return out;
  return call_fallback<Op>::call(self, padding, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("constant_pad_nd", &constant_pad_nd);
  m.impl("reflection_pad1d", &pad<Mode::kReflect, 1, at::_ops::reflection_pad1d>);
  m.impl("reflection_pad2d", &pad<Mode::kReflect, 2, at::_ops::reflection_pad2d>);
  m.impl("reflection_pad3d", &pad<Mode::kReflect, 3, at::_ops::reflection_pad3d>);
  m.impl("replication_pad1d", &pad<Mode::kReplicate, 1, at::_ops::replication_pad1d>);
  m.impl("replication_pad2d", &pad<Mode::kReplicate, 2, at::_ops::replication_pad2d>);
  m.impl("replication_pad3d", &pad<Mode::kReplicate, 3, at::_ops::replication_pad3d>);
  m.impl("reflection_pad1d.out", &pad_out<Mode::kReflect, 1, at::_ops::reflection_pad1d_out>);
  m.impl("reflection_pad2d.out", &pad_out<Mode::kReflect, 2, at::_ops::reflection_pad2d_out>);
  m.impl("reflection_pad3d.out", &pad_out<Mode::kReflect, 3, at::_ops::reflection_pad3d_out>);
  m.impl("replication_pad1d.out", &pad_out<Mode::kReplicate, 1, at::_ops::replication_pad1d_out>);
  m.impl("replication_pad2d.out", &pad_out<Mode::kReplicate, 2, at::_ops::replication_pad2d_out>);
  m.impl("replication_pad3d.out", &pad_out<Mode::kReplicate, 3, at::_ops::replication_pad3d_out>);
}

}  // namespace
}  // namespace flexcpu::aten
