// What c10 asks of a device: one device, one stream, everything done when the call returns.

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

#include "device/autograd_thread.h"
#include "device/storage.h"

namespace flexcpu::device {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

struct Event {
  std::chrono::steady_clock::time_point recorded;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  Guard() = default;
  explicit Guard(c10::DeviceType) {}

  c10::DeviceType type() const override { return kFlex.type(); }
  Device getDevice() const override { return kFlex; }
  Device exchangeDevice(Device device) const override {
    setDevice(device);
    return kFlex;
  }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.type() == kFlex.type() && device.index() <= 0, "flex has one device, flex:0; got ", device);
  }
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return device_count(); }
  c10::DeviceCapability getDeviceCapability(Device) const override { return {}; }

  Stream getStream(Device) const override { return stream(); }
  Stream getDefaultStream(Device) const override { return stream(); }
  Stream getStreamFromGlobalPool(Device, bool) const override { return stream(); }
  Stream getNewStream(Device, int) const override { return stream(); }
  Stream exchangeStream(Stream) const override { return stream(); }
  void* getStreamNativeHandle(const Stream) const override { return nullptr; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}

  void record(void** event, const Stream&, const DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->recorded = std::chrono::steady_clock::now();
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {
    TORCH_CHECK(from && to, "Both events must be recorded before calculating elapsed time.");
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(to)->recorded -
                                                     static_cast<Event*>(from)->recorded).count();
  }

 private:
  static Stream stream() { return Stream(Stream::DEFAULT, kFlex); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace flexcpu::device
