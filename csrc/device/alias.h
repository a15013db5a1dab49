#pragma once
// CPU tensors over the bytes of flex tensors, for the length of one call of CPU code.
//
// The fallback runs CPU kernels this way, uncopied. Within a scope there is one CPU storage per flex storage, so that the
// kernel sees which arguments overlap. What the code does to an alias is carried over: a resized alias resizes the flex
// storage, a re-viewed one re-views the flex tensor, a result on an alias's storage becomes a flex tensor on that flex
// storage, and a fresh CPU result is adopted without a copy.
//
// Order: alias everything that is written before what is only read.

#include <ATen/core/Tensor.h>

#include "device/address_map.h"
#include "device/storage.h"

namespace flexcpu::device {

class AliasScope {
 public:
  AliasScope() = default;
  AliasScope(const AliasScope&) = delete;
  AliasScope& operator=(const AliasScope&) = delete;
  // An alias that somebody kept becomes an owner of its bytes, which escape.
  ~AliasScope();

  // A CPU tensor over a strided flex tensor's bytes. With `writes`, the tensor's storage gets bytes of its own first;
  // without, a schema that lies about mutation is caught: the first mutable access unshares.
  at::Tensor to_cpu(const at::Tensor& flex, bool writes);

  // After the call: brings resized and swapped alias storages back into their flex storages.
  void write_back_storages();
  // And the sizes, strides, offset and storage of `cpu` into `flex`, whose alias it was.
  void write_back_metadata(const at::Tensor& flex, const at::Tensor& cpu);

  // The flex tensor of a CPU result.
  at::Tensor to_flex(const at::Tensor& cpu);

 private:
  struct Entry {
    c10::intrusive_ptr<c10::StorageImpl> flex, cpu;
    Pin pin;
  };

  Entry& alias_of(c10::StorageImpl* flex, bool writes);
  c10::intrusive_ptr<c10::StorageImpl> flex_storage_of(const at::Tensor& cpu);
  static void outlive(c10::StorageImpl* cpu, c10::StorageImpl* flex);

  AddressMap<Entry, 6> aliases_;  // by flex storage
  // Results that came on storages of their own: the CPU storage, and the flex storage that took its bytes over.
  struct Adopted {
    c10::intrusive_ptr<c10::StorageImpl> cpu, flex;
  };
  AddressMap<Adopted, 2> adopted_;  // by CPU storage
};

}  // namespace flexcpu::device
