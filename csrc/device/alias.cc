#include "device/alias.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "device/allocate.h"
#include "device/autograd_thread.h"
#include "device/operand.h"

namespace flexcpu::device {
namespace {

// An alias's DataPtr refers to the flex storage but does not own it: the scope does.
void drop_alias(void*) {}

// The context of an alias whose kernel wrote to what it was to read.
struct Unshared {
  c10::StorageImpl* flex;
  Pin pin;
};
void drop_unshared(void* context) { delete static_cast<Unshared*>(context); }

// The flex storage that a CPU storage's bytes are; null for bytes of its own.
c10::StorageImpl* flex_behind(c10::StorageImpl* cpu) {
  const c10::DataPtr& data = cpu->_mutable_data_ptr_no_checks();
  if (data.get_deleter() == &drop_alias) return static_cast<c10::StorageImpl*>(data.get_context());
  if (data.get_deleter() == &drop_unshared) return static_cast<Unshared*>(data.get_context())->flex;
  return nullptr;
}

c10::DataPtr alias_data(void* bytes, c10::StorageImpl* flex) { return {bytes, flex, &drop_alias, kCpu}; }

// CPU code wants to write to an argument whose schema says that it only reads.
void unshare_behind(c10::StorageImpl* alias) {
  c10::StorageImpl* flex = flex_behind(alias);
  if (!flex) return;
  Access access = write(flex, /*discard=*/false);
  alias->set_data_ptr_noswap({access.data, new Unshared{flex, std::move(access.pin)}, &drop_unshared, kCpu});
}

}  // namespace

AliasScope::Entry& AliasScope::alias_of(c10::StorageImpl* flex, bool writes) {
  if (Entry* known = aliases_.find(flex)) return *known;
  Access access = writes ? write(flex, /*discard=*/false) : read(flex);
  auto cpu = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                   static_cast<int64_t>(flex->nbytes()), alias_data(access.data, flex),
                                                   c10::GetCPUAllocator(), flex->resizable());
  if (!writes) cpu->set_materializer(&unshare_behind);
  return aliases_.add(
      flex, {c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(flex), std::move(cpu), std::move(access.pin)});
}

at::Tensor AliasScope::to_cpu(const at::Tensor& flex, bool writes) {
  TORCH_CHECK(flex.has_storage() && flex.storage().device_type() == kFlex.type(),
              "flexcpu: a CPU kernel was to run on a tensor without data (a fake, meta or functional tensor)");
  check_in_storage(flex);
  return tensor_on(alias_of(flex.storage().unsafeGetStorageImpl(), writes).cpu, kCpu, flex);
}

void AliasScope::write_back_storages() {
  for (auto& [_, entry] : aliases_) {
    const size_t nbytes = entry.cpu->nbytes();
    if (flex_behind(entry.cpu.get())) {
      if (nbytes != entry.flex->nbytes()) entry.flex->set_nbytes(nbytes);
      continue;
    }
    // Resized: the kernel put bytes of the CPU allocator in. They move over, and the alias goes on over them.
    c10::DataPtr& data = entry.cpu->_mutable_data_ptr_no_checks();
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
  if (c10::StorageImpl* flex = flex_behind(storage)) return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(flex);
  if (Adopted* known = adopted_.find(storage)) return known->flex;

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
  adopted_.add(storage, {c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage), flex});
  return flex;
}

at::Tensor AliasScope::to_flex(const at::Tensor& cpu) {
  enter();
  return tensor_on(flex_storage_of(cpu), kFlex, cpu);
}

void AliasScope::outlive(c10::StorageImpl* cpu, c10::StorageImpl* flex) {
  c10::intrusive_ptr<c10::StorageImpl> lasting;
  try {
    lasting = alias(flex, kCpu);
    cpu->clear_materializer();
  } catch (const c10::Error&) {
    // No memory for bytes that are not shared. This runs in a destructor: rather a share, which sees no later writes.
    lasting = share(flex, /*offset=*/0, flex->nbytes(), kCpu);
  }
  if (lasting) cpu->set_data_ptr_noswap(std::move(lasting->_mutable_data_ptr_no_checks()));
}

AliasScope::~AliasScope() {
  for (auto& [_, alias] : aliases_)
    if (alias.cpu.use_count() > 1) outlive(alias.cpu.get(), alias.flex.get());
  for (auto& [_, result] : adopted_)
    if (result.cpu.use_count() > 1 && flex_behind(result.cpu.get())) outlive(result.cpu.get(), result.flex.get());
}

}  // namespace flexcpu::device
