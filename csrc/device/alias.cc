#include "device/alias.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "device/autograd_thread.h"

namespace flexcpu::device {
namespace {

// An alias's DataPtr refers to the flex storage but does not own it: the scope does.
void drop_alias(void*) {}

bool is_alias(const c10::DataPtr& data) { return data.get_deleter() == &drop_alias; }

c10::DataPtr alias_data(void* bytes, c10::StorageImpl* flex) {
  return {bytes, flex, &drop_alias, c10::Device(c10::DeviceType::CPU)};
}

// CPU code wants to write to an argument whose schema says that it only reads.
void unshare_behind(c10::StorageImpl* alias) {
  const c10::DataPtr& data = alias->_mutable_data_ptr_no_checks();
  if (!is_alias(data)) return;
  auto* flex = static_cast<c10::StorageImpl*>(data.get_context());
  alias->set_data_ptr_noswap(alias_data(write(flex, /*discard=*/false).data, flex));
}

at::Tensor tensor_on(c10::intrusive_ptr<c10::StorageImpl> storage, c10::DispatchKey key, const at::Tensor& like) {
  c10::DispatchKeySet keys(key);
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

}  // namespace

AliasScope::Entry& AliasScope::alias_of(c10::StorageImpl* flex, bool writes) {
  for (Entry& entry : aliases_)
    if (entry.flex.get() == flex) return entry;
  Access access = writes ? write(flex, /*discard=*/false) : read(flex);
  auto cpu = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(flex->nbytes()), alias_data(access.data, flex),
      c10::GetCPUAllocator(), flex->resizable());
  if (!writes) cpu->set_materializer(&unshare_behind);
  aliases_.push_back({c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(flex), std::move(cpu), std::move(access.pin)});
  return aliases_.back();
}

at::Tensor AliasScope::to_cpu(const at::Tensor& flex, bool writes) {
  TORCH_CHECK(flex.has_storage() && flex.storage().device_type() == kFlex.type(),
              "flexcpu: a CPU kernel was to run on a tensor without data (a fake, meta or functional tensor)");
  return tensor_on(alias_of(flex.storage().unsafeGetStorageImpl(), writes).cpu, c10::DispatchKey::CPU, flex);
}

void AliasScope::write_back_storages() {
  for (Entry& entry : aliases_) {
    c10::DataPtr& data = entry.cpu->_mutable_data_ptr_no_checks();
    const size_t nbytes = entry.cpu->nbytes();
    if (is_alias(data)) {
      if (nbytes != entry.flex->nbytes()) entry.flex->set_nbytes(nbytes);
      continue;
    }
    // Resized: the kernel put bytes of the CPU allocator in. They move over, and the alias goes on over them.
    void* bytes = data.get();
    install(entry.flex.get(), std::move(data), nbytes);
    entry.pin = buffer_of(entry.flex.get());
    data = alias_data(bytes, entry.flex.get());
  }
}

void AliasScope::write_back_metadata(const at::Tensor& flex, const at::Tensor& cpu) {
  auto* impl = flex.unsafeGetTensorImpl();
  auto storage = flex_storage_of(cpu);
  if (storage.get() != flex.storage().unsafeGetStorageImpl())
    impl->set_storage_keep_dtype(c10::Storage(std::move(storage)));
  if (flex.sizes() != cpu.sizes() || flex.strides() != cpu.strides() || flex.storage_offset() != cpu.storage_offset())
    impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  if (flex.is_conj() != cpu.is_conj()) impl->_set_conj(cpu.is_conj());
  if (flex.is_neg() != cpu.is_neg()) impl->_set_neg(cpu.is_neg());
}

c10::intrusive_ptr<c10::StorageImpl> AliasScope::flex_storage_of(const at::Tensor& cpu) {
  c10::StorageImpl* storage = cpu.storage().unsafeGetStorageImpl();
  for (Entry& entry : aliases_)
    if (entry.cpu.get() == storage) return entry.flex;
  for (auto& [from, to] : adopted_)
    if (from.get() == storage) return to;

  auto held = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
  // Ours already (the kernel returned or cached one of our CPU tensors): share it, with all its safety.
  auto flex = share(storage, /*offset=*/0, storage->nbytes(), kFlex);
  if (!flex) {
    const size_t nbytes = storage->nbytes();
    const bool is_fresh = storage->allocator() != nullptr && storage->resizable() && !storage->has_materializer();
    if (is_fresh) {
      flex = storage_on(own(std::move(storage->_mutable_data_ptr_no_checks()), nbytes), nbytes);
      storage->_mutable_data_ptr_no_checks() = alias_data(read(flex.get()).data, flex.get());
    } else {
      flex = new_storage(nbytes);
      if (nbytes != 0) std::memcpy(write(flex.get(), /*discard=*/true).data, storage->data(), nbytes);
    }
  }
  adopted_.emplace_back(std::move(held), flex);
  return flex;
}

at::Tensor AliasScope::to_flex(const at::Tensor& cpu) {
  enter();
  return tensor_on(flex_storage_of(cpu), c10::DispatchKey::PrivateUse1, cpu);
}

void AliasScope::outlive(c10::StorageImpl* cpu, c10::StorageImpl* flex) {
  cpu->clear_materializer();
  auto lasting = alias(flex, c10::Device(c10::DeviceType::CPU));
  cpu->set_data_ptr_noswap(std::move(lasting->_mutable_data_ptr_no_checks()));
}

AliasScope::~AliasScope() {
  for (Entry& entry : aliases_)
    if (entry.cpu.use_count() > 1) outlive(entry.cpu.get(), entry.flex.get());
  for (auto& [cpu, flex] : adopted_)
    if (cpu.use_count() > 1 && is_alias(cpu->_mutable_data_ptr_no_checks())) outlive(cpu.get(), flex.get());
}

}  // namespace flexcpu::device
