#include "onednn/engine.h"

#include <oneapi/dnnl/dnnl.hpp>

namespace flexcpu::onednn {

std::string version() {
  const dnnl_version_t* loaded = dnnl_version();
  return std::to_string(loaded->major) + "." + std::to_string(loaded->minor) + "." + std::to_string(loaded->patch);
}

void cap_target(std::string_view target) {
  if (target == "baseline") dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
  if (target == "avx2") dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
}

}  // namespace flexcpu::onednn
