#include "plan/explain.h"

#include <utility>

namespace flexcpu::plan {
namespace {

thread_local std::vector<Explanation> kept;

}  // namespace

constinit thread_local int explaining = 0;

void explain(Explanation explanation) { kept.push_back(std::move(explanation)); }

size_t begin_explaining() {
  ++explaining;
  return kept.size();
}

std::vector<Explanation> explained_since(size_t mark) {
  std::vector<Explanation> since(kept.begin() + static_cast<std::ptrdiff_t>(mark), kept.end());
  if (--explaining == 0) kept.clear();
  return since;
}

}  // namespace flexcpu::plan
