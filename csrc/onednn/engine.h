#pragma once
// oneDNN, as far as the device uses it: one CPU engine, in the version of the library that is loaded.

#include <string>
#include <string_view>

namespace flexcpu::onednn {

// "3.2.0"
std::string version();

// Caps oneDNN's instruction set along with our own kernels': "baseline" (SSE4.1), "avx2", "avx3". Effective before the
// first primitive only.
void cap_target(std::string_view target);

}  // namespace flexcpu::onednn
