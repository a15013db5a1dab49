#include "device/operand.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

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

void Operand::use(std::unique_ptr<Split> split) {
  split_ = std::move(split);
  sizes_ = {split_->sizes.data(), split_->sizes.size()};
  strides_ = {split_->strides.data(), split_->strides.size()};
}

void Operand::split(std::span<const Cut> cuts) {
  auto result = std::make_unique<Split>();
  const int rank = static_cast<int>(sizes_.size());
  for (int d = 0; d < rank; ++d) {
    const int from_right = (split_ ? split_->rank : rank) - 1 - axis(d);
    const auto is_here = [&](const Cut& cut) { return cut.from_right == from_right; };
    const auto cut = std::find_if(cuts.begin(), cuts.end(), is_here);
    const bool is_cut = split_ && std::any_of(split_->cuts.begin(), split_->cuts.end(), is_here);
    if (cut == cuts.end() || is_cut) {
      result->sizes.push_back(sizes_[d]);
      result->strides.push_back(strides_[d]);
      result->axes.push_back(axis(d));
      continue;
    }
    int64_t inner = sizes_[d];
    for (const int64_t extent : cut->extents) {
      const bool repeats = sizes_[d] == 1;
      if (!repeats) inner /= extent;
      result->sizes.push_back(repeats ? 1 : extent);
      result->strides.push_back(repeats ? 0 : strides_[d] * inner);
      result->axes.push_back(axis(d));
    }
  }
  result->rank = split_ ? split_->rank : rank;
  result->cuts = {cuts.begin(), cuts.end()};
  use(std::move(result));
}

void agree(std::span<Operand* const> others, std::span<Reader* const> readers) {
  c10::SmallVector<Operand::Cut, 2> cuts;
  for (Reader* reader : readers) {
    if (!reader->split_ || reader->split_->cuts.empty()) continue;
    bool agrees = true;
    for (const auto& cut : reader->split_->cuts)
      for (const auto& known : cuts) agrees = agrees && (known.from_right != cut.from_right || known.extents == cut.extents);
    if (!agrees) {
      reader->read_made();
      continue;
    }
    for (const auto& cut : reader->split_->cuts) {
      const auto is_same = [&](const auto& known) { return known.from_right == cut.from_right; };
      if (std::none_of(cuts.begin(), cuts.end(), is_same)) cuts.push_back(cut);
    }
  }
  if (cuts.empty()) [[likely]] return;
  size_t added = 0, rank = 0;
  for (const auto& cut : cuts) added += cut.extents.size() - 1;
  for (Operand* other : others) rank = std::max(rank, other->sizes().size());
  for (Reader* reader : readers) rank = std::max(rank, reader->sizes().size());
  if (rank + added > static_cast<size_t>(layout::kMaxRank)) {
    for (Reader* reader : readers) reader->read_made();
    return;
  }
  for (Operand* other : others) other->split(cuts);
  for (Reader* reader : readers) reader->split(cuts);
}

Reader::Reader(const at::Tensor& tensor, Layouts layouts) : Operand(tensor), tensor_(tensor) {
  if (layouts == Layouts::kMade || numel_ == 0) {
    read_made();
    return;
  }
  Access access;
  std::vector<layout::Loop> loops;
  const bool in_place = read_in_place(storage_of(tensor), sizes_, strides_, tensor.storage_offset(), element_size_, loops, access);
  data_ = in_place ? access.data : at_offset(access.data, tensor);
  pin_ = std::move(access.pin);
  if (in_place) [[unlikely]] walk(loops);
}

void Reader::read_made() {
  Access access = read(storage_of(tensor_));
  data_ = at_offset(access.data, tensor_);
  pin_ = std::move(access.pin);
  split_.reset();
  sizes_ = {tensor_.sizes().data(), tensor_.sizes().size()};
  strides_ = {tensor_.strides().data(), tensor_.strides().size()};
}

void Reader::walk(std::span<const layout::Loop> loops) {
  auto split = std::make_unique<Split>();
  split->rank = static_cast<int>(tensor_.dim());
  for (size_t i = 0; i < loops.size(); ++i) {
    split->sizes.push_back(loops[i].extent);
    split->strides.push_back(loops[i].stride);
    split->axes.push_back(loops[i].axis);
    if (i == 0 || loops[i].axis != loops[i - 1].axis) continue;
    const int from_right = split->rank - 1 - loops[i].axis;
    if (split->cuts.empty() || split->cuts.back().from_right != from_right)
      split->cuts.push_back({from_right, {loops[i - 1].extent}});
    split->cuts.back().extents.push_back(loops[i].extent);
  }
  use(std::move(split));
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
