#pragma once
// The only way from a tensor to its bytes.
//
// A Reader or a Writer pins the buffer of a tensor for the length of one op, so nothing that another thread unshares is
// freed under it. A Writer gives the tensor bytes of its own first: peers that shared them keep the old ones.
//
// Order within an op: writers before readers (an in-place op may move the bytes that its inputs see), and both before any
// parallel region.

#include <ATen/core/Tensor.h>

#include <span>

#include "device/storage.h"
#include "layout/dtype.h"

namespace flexcpu::device {

DType dtype_of(c10::ScalarType type);
c10::ScalarType scalar_type_of(DType dtype);

// What a kernel is told of a strided tensor, on flex or on the CPU. Sizes and strides (signed, in elements) stay valid as
// long as the operand and the tensor's metadata do. `data` points at element (0, ..., 0).
class Operand {
 public:
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  DType dtype() const { return dtype_; }
  std::span<const int64_t> sizes() const { return sizes_; }
  std::span<const int64_t> strides() const { return strides_; }
  int64_t numel() const { return numel_; }
  int64_t element_size() const { return element_size_; }
  // The conjugate and negative bits: the kernel applies them, or the op goes to the fallback.
  bool is_conj() const { return is_conj_; }
  bool is_neg() const { return is_neg_; }

 protected:
  explicit Operand(const at::Tensor& tensor);

  std::span<const int64_t> sizes_, strides_;
  int64_t numel_, element_size_;
  DType dtype_;
  bool is_conj_, is_neg_;
  Pin pin_;
};

class Reader : public Operand {
 public:
  explicit Reader(const at::Tensor& tensor);
  const void* data() const { return data_; }

 private:
  const void* data_;
};

enum class Contents {
  kKeep,     // some elements stay: a shared buffer is copied
  kDiscard,  // every element of the tensor is written: a shared buffer that the tensor covers is replaced by a fresh one
  kNew,      // the op made the tensor, and nobody else has seen it yet: no lock, no pin
};

class Writer : public Operand {
 public:
  explicit Writer(const at::Tensor& tensor, Contents contents = Contents::kKeep);
  void* data() const { return data_; }

 private:
  void* data_;
};

// Throws when a tensor reaches beyond its storage, which storage.resize_() can have shrunk under it.
void check_in_storage(const at::Tensor& tensor);

// torch.get_num_threads(), for the kernels' `threads` arguments.
int num_threads();

}  // namespace flexcpu::device
