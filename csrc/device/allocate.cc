#include "device/allocate.h"

#include <ATen/EmptyTensor.h>

#include "device/autograd_thread.h"
#include "device/storage.h"

namespace flexcpu::device {
namespace {

at::Tensor tensor_of(size_t nbytes, caffe2::TypeMeta dtype) {
  enter();
  warn_of_complex_half(dtype.toScalarType());
  return at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(new_storage(nbytes)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
}

}  // namespace

void warn_of_complex_half(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::ComplexHalf) [[unlikely]] {
    TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
  }
}

at::Tensor empty(c10::IntArrayRef sizes, c10::ScalarType dtype) {
  const auto meta = c10::scalarTypeToTypeMeta(dtype);
  at::detail::check_size_nonnegative(sizes);
  at::Tensor tensor = tensor_of(at::detail::computeStorageNbytesContiguous(sizes, meta.itemsize()), meta);
  // A new tensor has sizes (0,).
  if (sizes.size() != 1 || sizes[0] != 0) tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype) {
  const auto meta = c10::scalarTypeToTypeMeta(dtype);
  at::detail::check_size_nonnegative(sizes);
  at::Tensor tensor = tensor_of(at::detail::computeStorageNbytes(sizes, strides, meta.itemsize()), meta);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor tensor_on(c10::intrusive_ptr<c10::StorageImpl> storage, c10::Device device, const at::Tensor& like) {
  c10::DispatchKeySet keys(device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1);
  if (like._is_zerotensor()) keys = keys.add(c10::DispatchKey::ZeroTensor);
  at::Tensor tensor =
      at::detail::make_tensor_base<c10::TensorImpl>(c10::Storage(std::move(storage)), keys, like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

}  // namespace flexcpu::device
