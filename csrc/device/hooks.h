#pragma once

namespace flexcpu::device {

// Tells torch of the device: hooks, storage factory, engine threads. Once per process, before the first flex tensor.
void register_device();

}  // namespace flexcpu::device
