#include "kernels/copy/cast.h"

#include <algorithm>
#include <cstring>

#include "kernels/copy/stages.h"

namespace flexcpu::kernels {
namespace {

// Elements of a piece: two tiles of the widest dtype fill half of a 32 KiB L1.
constexpr int64_t kPiece = 512;
constexpr int64_t kWidest = 16;

DType part_of(DType dtype) {
  switch (dtype) {
    case DType::kC32: return DType::kF16;
    case DType::kC64: return DType::kF32;
    case DType::kC128: return DType::kF64;
    default: return dtype;
  }
}

bool is_integer(DType dtype) { return !is_floating(dtype) && !is_complex(dtype) && dtype != DType::kBool; }

bool have_the_same_bits(DType dst, DType src) {
  return dst == src || (size_of(dst) == size_of(src) && is_integer(dst) && is_integer(src));
}

}  // namespace

Cast::Cast(DType dst, DType src, bool conjugate, bool negate)
    : dst_size_(size_of(dst)), src_size_(size_of(src)), parts_(is_complex(dst) ? 2 : 1) {
  if (is_complex(src) && is_complex(dst)) {
    add_conversion(part_of(dst), part_of(src), 2);
  } else if (is_complex(src) && dst == DType::kBool) {
    add_conversion(DType::kBool, part_of(src), 2);
    add(either_of_pair);
  } else if (is_complex(src)) {
    add(first_of_pair(size_of(part_of(src))));
    add_conversion(dst, part_of(src), 1);
  } else {
    add_conversion(part_of(dst), src, 1);
    if (is_complex(dst)) add(pair_with_zero(size_of(part_of(dst))));
  }
  conjugate = conjugate && is_complex(dst);
  if (negate || conjugate) change_sign_ = sign_changer(part_of(dst), /*even=*/negate, /*odd=*/negate != conjugate);
}

// Conversions between real dtypes; those of f16 pass through f32.
void Cast::add_conversion(DType dst, DType src, int64_t values_per_element) {
  if (have_the_same_bits(dst, src)) return;
  if (src == DType::kF16) {
    add(conversion(DType::kF32, src), values_per_element);
    src = DType::kF32;
  }
  if (dst == src) return;
  if (dst == DType::kF16 && src != DType::kF32) {
    add(conversion(DType::kF32, src), values_per_element);
    src = DType::kF32;
  }
  add(conversion(dst, src), values_per_element);
}

void Cast::convert_piece(std::byte* dst, const std::byte* src, int64_t count) const {
  alignas(64) std::byte tiles[2][kPiece * kWidest];
  const std::byte* from = src;
  for (int s = 0; s < stages_; ++s) {
    std::byte* to = s + 1 == stages_ ? dst : tiles[s % 2];
    steps_[s].run(to, from, count * steps_[s].values_per_element);
    from = to;
  }
  if (stages_ == 0 && dst != src) std::memcpy(dst, src, count * dst_size_);
  if (change_sign_) change_sign_(dst, dst, count * parts_);
}

void Cast::operator()(void* dst, const void* src, int64_t count) const {
  auto* to = static_cast<std::byte*>(dst);
  auto* from = static_cast<const std::byte*>(src);
  if (stages_ == 1 && !change_sign_) return steps_[0].run(dst, src, count * steps_[0].values_per_element);
  for (int64_t done = 0; done < count; done += kPiece)
    convert_piece(to + done * dst_size_, from + done * src_size_, std::min(kPiece, count - done));
}

}  // namespace flexcpu::kernels
