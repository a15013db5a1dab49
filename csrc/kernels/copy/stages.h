#pragma once
// The passes that a Cast is made of. Each reads and writes contiguous values; dst may be src where their sizes agree.

#include "kernels/copy/cast.h"

namespace flexcpu::kernels {

// Between real dtypes that differ; f16 to and from f32 only.
Cast::Stage conversion(DType dst, DType src);

// Complex numbers as pairs of parts of `part_size` bytes (2, 4, 8). Counts are those of pairs.
Cast::Stage first_of_pair(int64_t part_size);
Cast::Stage pair_with_zero(int64_t part_size);
void either_of_pair(void* dst, const void* src, int64_t count);  // of two bools

// Changes the signs of the values at even and at odd places. `part` is a real dtype, but not bool.
Cast::Stage sign_changer(DType part, bool even, bool odd);

}  // namespace flexcpu::kernels
