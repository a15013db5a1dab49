#pragma once
// The strides of a copy.

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>

namespace flexcpu::aten {

// The strides that a copy of a tensor has in a memory format, as torch.empty_like gives them. The channels-last formats are of
// tensors of 4 and 5 dimensions.
inline c10::DimVector strides_of_copy(const at::Tensor& tensor, c10::MemoryFormat format) {
  const c10::IntArrayRef sizes = tensor.sizes();
  switch (format) {
    case c10::MemoryFormat::Preserve:
      return tensor.is_non_overlapping_and_dense() ? c10::DimVector(tensor.strides())
                                                   : c10::DimVector(at::infer_dense_strides(sizes, tensor.strides()));
    case c10::MemoryFormat::ChannelsLast: return c10::DimVector(c10::get_channels_last_strides_2d(sizes));
    case c10::MemoryFormat::ChannelsLast3d: return c10::DimVector(c10::get_channels_last_strides_3d(sizes));
    default: {
      c10::DimVector strides(sizes.size(), 1);
      for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
      return strides;
    }
  }
}

}  // namespace flexcpu::aten
