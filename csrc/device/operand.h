#pragma once
// The only way from a tensor to its bytes.
//
// A Reader or a Writer pins the buffer of a tensor for the length of one op, so nothing that another thread unshares is
// freed under it. A Writer gives the tensor bytes of its own first: peers that shared them keep the old ones.
//
// Order within an op: writers before readers (an in-place op may move the bytes that its inputs see), and both before any
// parallel region.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <span>

#include "device/storage.h"
#include "layout/dtype.h"

namespace flexcpu::device {

DType dtype_of(c10::ScalarType type);
c10::ScalarType scalar_type_of(DType dtype);

class Reader;

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
  // The tensor's dimension that dimension `d` is, or is a part of.
  int axis(int d) const { return split_ ? split_->axes[d] : d; }
  // The conjugate and negative bits: the kernel applies them, or the op goes to the fallback.
  bool is_conj() const { return is_conj_; }
  bool is_neg() const { return is_neg_; }

 protected:
  explicit Operand(const at::Tensor& tensor);

  // A dimension as several, the outer ones first; `from_right` counts from the last one, as broadcasting does.
  struct Cut {
    int from_right;
    c10::SmallVector<int64_t, 4> extents;
  };
  struct Split {
    c10::SmallVector<int64_t, 8> sizes, strides;
    c10::SmallVector<int, 8> axes;
    c10::SmallVector<Cut, 2> cuts;
    int rank;  // of the tensor
  };
  friend void agree(std::span<Operand* const>, std::span<Reader* const>);
  void split(std::span<const Cut> cuts);
  void use(std::unique_ptr<Split> split);

  std::unique_ptr<Split> split_;  // empty where the dimensions are the tensor's
  std::span<const int64_t> sizes_, strides_;
  int64_t numel_, element_size_;
  DType dtype_;
  bool is_conj_, is_neg_;
  Pin pin_;
};

// How a kernel takes bytes that are pending (pending.h).
enum class Layouts {
  kMade,    // as the tensor's own strides say: they are made first
  kSigned,  // any strides: they are read where they are, once. strides() may then be negative, and a dimension of the tensor
            // may be several here; agree() makes the other operands fit
};

class Reader : public Operand {
 public:
  explicit Reader(const at::Tensor& tensor, Layouts layouts = Layouts::kMade);
  const void* data() const { return data_; }

 private:
  friend void agree(std::span<Operand* const>, std::span<Reader* const>);
  void read_made();
  void walk(std::span<const layout::Loop> loops);

  const at::Tensor& tensor_;
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

// After the operands of a kernel that walks them together are taken, readers with Layouts::kSigned: gives all the same
// dimensions, split where a pending one's are. Readers that cannot agree have their bytes made. `others` broadcast alike.
void agree(std::span<Operand* const> others, std::span<Reader* const> readers);

// Throws when a tensor reaches beyond its storage, which storage.resize_() can have shrunk under it.
void check_in_storage(const at::Tensor& tensor);

// torch.get_num_threads(), for the kernels' `threads` arguments.
int num_threads();

}  // namespace flexcpu::device
