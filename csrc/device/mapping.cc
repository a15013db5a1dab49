#include "device/mapping.h"

#include <ATen/MapAllocator.h>

#include "device/storage.h"

namespace flexcpu::device {
namespace {

void release_mapping(void* storage) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(storage)); }

}  // namespace

void put_on_mapping(c10::StorageImpl* flex, c10::StorageImpl* mapping) {
  TORCH_CHECK(mapping->nbytes() >= flex->nbytes(), "the mapping is smaller than the storage");
  c10::raw::intrusive_ptr::incref(mapping);
  auto* buffer = memory::Buffer::adopt(const_cast<void*>(mapping->data()), mapping->nbytes(), mapping, &release_mapping);
  buffer->pin_down();
  install(flex, c10::DataPtr(buffer->data(), buffer, &drop_owner, kFlex), flex->nbytes());
  flex->set_resizable(false);
}

c10::intrusive_ptr<c10::StorageImpl> mapping_of(c10::StorageImpl* flex) {
  const Pin pin = buffer_of(flex);
  if (!pin.buffer()) return {};
  auto* mapping = static_cast<c10::StorageImpl*>(pin.buffer()->context_of(&release_mapping));
  return mapping ? c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(mapping) : nullptr;
}

bool is_mapped_by_descriptor(const c10::StorageImpl* mapping) {
  return at::MapAllocator::fromDataPtr(mapping->data_ptr()) != nullptr;
}

}  // namespace flexcpu::device
