#pragma once
// Aliases of every layout that tensors come in: strided, sparse, compressed sparse, quantized, nested.
//
// A sparse, quantized or nested flex tensor is the CPU's class of tensor over flex members. Its alias is the same class
// over the members' aliases, and after the call the members travel back.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "device/alias.h"

namespace flexcpu::aten {

class Layouts {
 public:
  // `keys` are those that the op was called with: factories of sparse tensors have no sparse argument.
  explicit Layouts(c10::DispatchKeySet keys);

  at::Tensor to_cpu(const at::Tensor& flex, bool writes);
  // An argument that is on the CPU already: returned, it stays what it is.
  void keep(const at::Tensor& cpu) {
    if (!same_.find(cpu.unsafeGetTensorImpl())) same_.add(cpu.unsafeGetTensorImpl(), cpu);
  }

  // The keys under which the CPU kernel for these arguments is registered.
  c10::DispatchKeySet cpu_keys() const { return cpu_keys_; }

  // After the call: carries what it did to the written arguments over.
  void write_back();
  // A result: the written argument it is, the CPU argument it is, or a flex tensor over its bytes.
  at::Tensor to_flex(const at::Tensor& cpu);

 private:
  at::Tensor alias_coo(const at::Tensor& flex, bool writes);
  at::Tensor alias_compressed(const at::Tensor& flex, bool writes);
  at::Tensor alias_quantized(const at::Tensor& flex, bool writes);
  at::Tensor alias_nested(const at::Tensor& flex, bool writes);
  at::Tensor adopt(const at::Tensor& cpu);
  void write_back(const at::Tensor& flex, const at::Tensor& cpu);

  device::AliasScope scope_;  // first, to outlive every alias below
  c10::DispatchKeySet cpu_keys_;
  device::AddressMap<at::Tensor, 4> aliases_;  // by flex tensor: its alias
  struct Written {
    at::Tensor flex, cpu;
  };
  c10::SmallVector<Written, 2> written_;
  device::AddressMap<at::Tensor, 2> same_;  // by CPU tensor: what it is as a result (written arguments, CPU arguments)
};

}  // namespace flexcpu::aten
