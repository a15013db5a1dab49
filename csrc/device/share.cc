#include "device/share.h"

#include "device/allocate.h"
#include "device/autograd_thread.h"
#include "device/operand.h"
#include "device/pending.h"
#include "device/storage.h"

namespace flexcpu::device {
namespace {

c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

size_t nbytes_of(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()) * tensor.element_size(); }

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor.is_quantized() && !tensor._is_zerotensor();
}

}  // namespace

at::Tensor share_tensor(const at::Tensor& tensor, c10::Device device) {
  if (!is_plain(tensor) || !tensor.is_non_overlapping_and_dense()) return {};
  enter();
  const size_t offset = static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
  auto storage = share(storage_of(tensor), offset, nbytes_of(tensor), device);
  if (!storage) return {};
  warn_of_complex_half(tensor.scalar_type());
  at::Tensor shared = tensor_on(std::move(storage), device, tensor);
  shared.unsafeGetTensorImpl()->set_storage_offset(0);
  return shared;
}

at::Tensor defer_copy(const at::Tensor& tensor, c10::IntArrayRef strides, std::bitset<layout::kMaxRank> flipped, int64_t least) {
  if (!may_be_pending.load(std::memory_order_relaxed) || tensor.numel() == 0) return {};
  if (static_cast<int64_t>(nbytes_of(tensor)) < least && !are_small_pending.load(std::memory_order_relaxed)) return {};
  if (!tensor.is_privateuseone() || !is_plain(tensor) || tensor.dim() > layout::kMaxRank) return {};
  enter();
  check_in_storage(tensor);
  auto storage = defer(storage_of(tensor), {.sizes = {tensor.sizes().data(), tensor.sizes().size()},
                                            .view_strides = {tensor.strides().data(), tensor.strides().size()},
                                            .view_offset = tensor.storage_offset(),
                                            .flipped = flipped,
                                            .strides = {strides.data(), strides.size()},
                                            .element_size = static_cast<int64_t>(tensor.element_size())});
  if (!storage) return {};
  at::Tensor copy = tensor_on(std::move(storage), kFlex, tensor);
  copy.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), strides, /*storage_offset=*/0);
  return copy;
}

bool copy_by_sharing(const at::Tensor& dst, const at::Tensor& src) {
  if (!is_plain(dst) || !is_plain(src) || dst.dtype() != src.dtype()) return false;
  if (nbytes_of(dst) != dst.storage().nbytes() || nbytes_of(src) != src.storage().nbytes()) return false;
  if (dst.sizes() != src.sizes() || dst.strides() != src.strides() || !dst.is_non_overlapping_and_dense()) return false;
  return replace_by_sharing(storage_of(dst), storage_of(src));
}

at::Tensor alias_on_cpu(const at::Tensor& tensor) { return tensor_on(alias(storage_of(tensor), kCpu), kCpu, tensor); }

at::Tensor adopt_from_cpu(const at::Tensor& tensor) {
  enter();
  auto storage = share(storage_of(tensor), /*offset=*/0, tensor.storage().nbytes(), kFlex);
  if (!storage) storage = alias(storage_of(tensor), kFlex);
  return tensor_on(std::move(storage), kFlex, tensor);
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.has_storage() || !b.has_storage() || a.storage().nbytes() == 0 || b.storage().nbytes() == 0) return false;
  const Access x = read(storage_of(a)), y = read(storage_of(b));
  return x.pin.buffer() && y.pin.buffer() ? x.pin.buffer() == y.pin.buffer() : x.data && x.data == y.data;
}

}  // namespace flexcpu::device
