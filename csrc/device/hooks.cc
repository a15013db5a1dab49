#include "device/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "device/allocator.h"
#include "device/autograd_thread.h"
#include "device/generator.h"
#include "device/pinned.h"
#include "device/storage.h"

namespace flexcpu::device {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}

  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex index) const override { check(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    check(index);
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    if (index != -1) check(index);
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    if (index != -1) check(index);
    return new_generator(c10::default_rng_seed_val);
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  at::Device getDeviceFromPtr(void*) const override { return kFlex; }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize(storage.unsafeGetStorageImpl(), nbytes);
  }

 private:
  static void check(c10::DeviceIndex index) {
    TORCH_CHECK(index == 0, "flex has one device, flex:0; got index ", static_cast<int>(index));
  }
};

// torch.UntypedStorage(n, device="flex"), deepcopy and load make their storages here.
c10::intrusive_ptr<c10::StorageImpl> make_storage(c10::StorageImpl::use_byte_size_t, c10::SymInt nbytes,
                                                  c10::DataPtr data, c10::Allocator*, bool resizable) {
  const auto size = static_cast<size_t>(nbytes.guard_int(__FILE__, __LINE__));
  auto storage = data.get() ? storage_on(own(std::move(data), size), size) : new_storage(size);
  storage->set_resizable(resizable);
  return storage;
}

}  // namespace

void register_device() {
  keep_backward_on_caller();
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // torch keeps it until the process ends
  c10::SetStorageImplCreate(kFlex.type(), &make_storage);
}

}  // namespace flexcpu::device
