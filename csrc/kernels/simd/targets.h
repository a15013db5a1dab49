#pragma once
// Which of the compiled instruction sets runs. Names, best first: "avx3" (AVX-512), "avx2" (with FMA, F16C), "baseline"
// (SSE4.2).

#include <string_view>

namespace flexcpu::simd {

// The instruction set that kernels use now.
const char* active_target();

// Lets kernels use no more than `name`; empty leaves the choice to the processor. A cap above what the processor has
// changes nothing. To be called before any other thread runs a kernel. Throws std::invalid_argument on another name.
void cap_target(std::string_view name);

// Whether this processor can run the kernels at all.
bool cpu_has_baseline();

}  // namespace flexcpu::simd
