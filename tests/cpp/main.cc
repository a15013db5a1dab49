// Runs every test under the instruction set that FLEXCPU_SIMD names.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/simd/targets.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* name = std::getenv("FLEXCPU_SIMD")) flexcpu::simd::cap_target(name);
  std::printf("instruction set: %s\n", flexcpu::simd::active_target());
  return RUN_ALL_TESTS();
}
