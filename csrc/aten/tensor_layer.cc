// The tensor layer: allocation, views, storage changes, item(). Everything that torch has no default for and that must not
// be a call of CPU code over aliases.

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "device/alias.h"
#include "device/allocate.h"
#include "device/autograd_thread.h"

namespace flexcpu::aten {
namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::Device;
using c10::Layout;
using c10::MemoryFormat;
using c10::ScalarType;
using std::optional;

void check_factory(optional<Layout> layout, optional<Device> device, optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::kStrided, "flex makes strided tensors here, not ",
                              c10::layout_or_default(layout));
  TORCH_CHECK(!device || device->index() <= 0, "flex has one device, flex:0; got ", *device);
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

bool fills_uninitialized() {
  return at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory();
}

Tensor empty(IntArrayRef sizes, optional<ScalarType> dtype, optional<Layout> layout, optional<Device> device,
             optional<bool> pin_memory, optional<MemoryFormat> memory_format) {
  check_factory(layout, device, pin_memory);
  Tensor result = device::empty(sizes, c10::dtype_or_default(dtype));
  if (memory_format && *memory_format != MemoryFormat::Contiguous)
    result.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  if (fills_uninitialized()) [[unlikely]] at::native::fill_empty_deterministic_(result);
  return result;
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, optional<ScalarType> dtype, optional<Layout> layout,
                     optional<Device> device, optional<bool> pin_memory) {
  check_factory(layout, device, pin_memory);
  Tensor result = device::empty_strided(sizes, strides, c10::dtype_or_default(dtype));
  if (fills_uninitialized()) [[unlikely]] at::native::fill_empty_deterministic_(result);
  return result;
}

// All zeros, in a storage that has the size but no bytes: forward AD's zero tangents.
Tensor efficient_zero_tensor(IntArrayRef sizes, optional<ScalarType> dtype, optional<Layout>, optional<Device>,
                             optional<bool>) {
  device::enter();
  static auto* allocator = new at::native::ZeroTensorAllocator(device::kFlex);  // storages may outlive static destructors
  const auto keys =
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(sizes, allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

// ---- Resizing ----

void grow_storage(const Tensor& self) {
  if (self.numel() == 0) return;
  const size_t needed = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.element_size(),
                                                         self.storage_offset());
  c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) device::resize(storage, needed);
}

// Sets sizes and strides and grows the storage to them. What cannot be had leaves the tensor as it was.
void set_sizes_and_grow(const Tensor& self, IntArrayRef sizes, at::OptionalIntArrayRef strides,
                        optional<MemoryFormat> memory_format, int64_t offset) {
  auto* impl = self.unsafeGetTensorImpl();
  const auto old_sizes = self.sizes().vec(), old_strides = self.strides().vec();
  const int64_t old_offset = self.storage_offset();
  try {
    impl->set_storage_offset(offset);
    at::native::resize_impl_cpu_(impl, sizes, strides, /*resize_storage=*/false);
    if (memory_format) impl->empty_tensor_restride(*memory_format);
    grow_storage(self);
  } catch (...) {
    impl->set_sizes_and_strides(old_sizes, old_strides, old_offset);
    throw;
  }
}

const Tensor& resize_(const Tensor& self, IntArrayRef sizes, optional<MemoryFormat> memory_format) {
  TORCH_CHECK(memory_format != MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
  const auto old_nbytes = static_cast<int64_t>(self.storage().nbytes());
  set_sizes_and_grow(self, sizes, /*strides=*/std::nullopt, memory_format, self.storage_offset());
  if (fills_uninitialized()) [[unlikely]] at::native::fill_resize_deterministic_(self, old_nbytes);
  return self;
}

// ---- Storages ----

Tensor& set_storage(Tensor& self, at::Storage source, int64_t offset, IntArrayRef sizes, IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  const auto given = strides.data() != nullptr ? at::OptionalIntArrayRef(strides) : std::nullopt;
  set_sizes_and_grow(self, sizes, given, /*memory_format=*/std::nullopt, offset);
  return self;
}

Tensor& set_empty(Tensor& self) {
  c10::Storage storage(device::new_storage(0));
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_sizes_contiguous({0});
  self.unsafeGetTensorImpl()->set_storage_offset(0);
  return self;
}

at::Scalar local_scalar_dense(const Tensor& self) {
  device::AliasScope scope;
  return at::native::_local_scalar_dense_cpu(scope.to_cpu(self, /*writes=*/false));
}

// The device has one stream, and every op is done when it returns.
void record_stream(Tensor&, at::Stream) {}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_efficientzerotensor", &efficient_zero_tensor);

  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);

  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(&at::native::set_));
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_", &set_empty);
  m.impl("is_set_to", &at::native::is_set_to);

  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("record_stream", &record_stream);
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) { m.impl("set_.source_Storage_storage_offset", &set_storage); }

}  // namespace
}  // namespace flexcpu::aten
