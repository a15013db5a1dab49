#pragma once

namespace flexcpu::aten {

// Sends every op that has a CPU kernel, but would not reach the boxed fallback by itself because torch has a default for it
// (a decomposition, or the functional and in-place wrappers of structured ops), to the fallback. Native registrations are
// left alone: call it after they are in.
void register_fallback_over_defaults();

}  // namespace flexcpu::aten
