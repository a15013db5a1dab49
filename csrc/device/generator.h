#pragma once
// Random number generators of the device.

#include <ATen/core/Generator.h>

namespace flexcpu::device {

// The generator that ops use when given none; torch.manual_seed() reaches it.
const at::Generator& default_generator();
at::Generator new_generator(uint64_t seed);

// The generator that a CPU kernel draws from in the place of `generator` (the default one when undefined). Throws when
// `generator` is not of this device.
const at::Generator& cpu_generator_of(const at::Generator& generator);

}  // namespace flexcpu::device
