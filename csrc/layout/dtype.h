#pragma once
// Element types of the device, named once for every layer below torch.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace flexcpu {

enum class DType : uint8_t {
  kBool, kU8, kI8, kI16, kI32, kI64, kU16, kU32, kU64,
  kF16, kBF16, kF32, kF64,
  kC32, kC64, kC128,
  kOther,  // float8, quantized and what later versions add: no native kernel takes it
};

// Bytes of one element; 0 for kOther.
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kBool: case DType::kU8: case DType::kI8: return 1;
    case DType::kI16: case DType::kU16: case DType::kF16: case DType::kBF16: return 2;
    case DType::kI32: case DType::kU32: case DType::kF32: case DType::kC32: return 4;
    case DType::kI64: case DType::kU64: case DType::kF64: case DType::kC64: return 8;
    case DType::kC128: return 16;
    case DType::kOther: return 0;
  }
  return 0;
}

constexpr bool is_complex(DType dtype) {
  return dtype == DType::kC32 || dtype == DType::kC64 || dtype == DType::kC128;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

constexpr bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

constexpr const char* name_of(DType dtype) {
  constexpr const char* names[] = {"bool", "u8", "i8", "i16", "i32", "i64", "u16", "u32", "u64",
                                   "f16", "bf16", "f32", "f64", "c32", "c64", "c128", "other"};
  return names[static_cast<int>(dtype)];
}

// One value of any dtype, as it lies in memory. The bytes beyond it are 0.
struct Value {
  alignas(16) std::array<std::byte, 16> bytes{};

  template <typename T>
  static Value of(const T& x) {
    static_assert(sizeof(T) <= 16);
    Value value;
    std::memcpy(value.bytes.data(), &x, sizeof(T));
    return value;
  }
};

}  // namespace flexcpu
