#include "device/operand.h"

#include <ATen/Parallel.h>

namespace flexcpu::device {
namespace {

std::byte* at_offset(void* base, const at::Tensor& tensor) {
  return static_cast<std::byte*>(base) + tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
}

// Bytes of a storage up to the end of a tensor's last element.
size_t end_of(const at::Tensor& tensor) {
  int64_t last = tensor.storage_offset();
  if (tensor.is_contiguous()) {
    last += tensor.numel() - 1;
  } else {
    for (int64_t axis = 0; axis < tensor.dim(); ++axis) last += (tensor.size(axis) - 1) * tensor.stride(axis);
  }
  return (static_cast<size_t>(last) + 1) * tensor.element_size();
}

// A flex-labelled tensor without bytes (fake, functional) must not reach a kernel.
c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.has_storage() && tensor.storage().device_type() != c10::DeviceType::Meta,
              "flexcpu: a kernel was given a tensor without data (a fake, meta or functional tensor)");
  check_in_storage(tensor);
  return tensor.storage().unsafeGetStorageImpl();
}

bool covers_storage(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel()) * tensor.element_size() == tensor.storage().nbytes() &&
         tensor.is_non_overlapping_and_dense();
}

}  // namespace

DType dtype_of(c10::ScalarType type) {
  using c10::ScalarType;
  switch (type) {
    case ScalarType::Bool: return DType::kBool;
    case ScalarType::Byte: return DType::kU8;
    case ScalarType::Char: return DType::kI8;
    case ScalarType::Short: return DType::kI16;
    case ScalarType::Int: return DType::kI32;
    case ScalarType::Long: return DType::kI64;
    case ScalarType::UInt16: return DType::kU16;
    case ScalarType::UInt32: return DType::kU32;
    case ScalarType::UInt64: return DType::kU64;
    case ScalarType::Half: return DType::kF16;
    case ScalarType::BFloat16: return DType::kBF16;
    case ScalarType::Float: return DType::kF32;
    case ScalarType::Double: return DType::kF64;
    case ScalarType::ComplexHalf: return DType::kC32;
    case ScalarType::ComplexFloat: return DType::kC64;
    case ScalarType::ComplexDouble: return DType::kC128;
    default: return DType::kOther;
  }
}

c10::ScalarType scalar_type_of(DType dtype) {
  using c10::ScalarType;
  switch (dtype) {
    case DType::kBool: return ScalarType::Bool;
    case DType::kU8: return ScalarType::Byte;
    case DType::kI8: return ScalarType::Char;
    case DType::kI16: return ScalarType::Short;
    case DType::kI32: return ScalarType::Int;
    case DType::kI64: return ScalarType::Long;
    case DType::kU16: return ScalarType::UInt16;
    case DType::kU32: return ScalarType::UInt32;
    case DType::kU64: return ScalarType::UInt64;
    case DType::kF16: return ScalarType::Half;
    case DType::kBF16: return ScalarType::BFloat16;
    case DType::kF32: return ScalarType::Float;
    case DType::kF64: return ScalarType::Double;
    case DType::kC32: return ScalarType::ComplexHalf;
    case DType::kC64: return ScalarType::ComplexFloat;
    case DType::kC128: return ScalarType::ComplexDouble;
    case DType::kOther: break;
  }
  return ScalarType::Undefined;
}

void check_in_storage(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || end_of(tensor) <= tensor.storage().nbytes()) [[likely]] return;
  TORCH_CHECK(false, "The tensor needs ", end_of(tensor), " bytes of its storage, which has ",
              tensor.storage().nbytes(), ": the storage was resized.");
}

Operand::Operand(const at::Tensor& tensor)
    : sizes_(tensor.sizes().data(), tensor.sizes().size()),
      strides_(tensor.strides().data(), tensor.strides().size()),
      numel_(tensor.numel()),
      element_size_(static_cast<int64_t>(tensor.element_size())),
      dtype_(dtype_of(tensor.scalar_type())),
      is_conj_(tensor.is_conj()),
      is_neg_(tensor.is_neg()) {}

Reader::Reader(const at::Tensor& tensor) : Operand(tensor) {
  Access access = read(storage_of(tensor));
  data_ = at_offset(access.data, tensor);
  pin_ = std::move(access.pin);
}

Writer::Writer(const at::Tensor& tensor, Contents contents) : Operand(tensor) {
  if (contents == Contents::kNew) {
    data_ = at_offset(storage_of(tensor)->_mutable_data_ptr_no_checks().get(), tensor);
    return;
  }
  Access access = write(storage_of(tensor), contents == Contents::kDiscard && covers_storage(tensor));
  data_ = at_offset(access.data, tensor);
  pin_ = std::move(access.pin);
}

int num_threads() { return at::get_num_threads(); }

}  // namespace flexcpu::device
