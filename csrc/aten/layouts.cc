#include "aten/layouts.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace flexcpu::aten {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

bool is_compressed(c10::Layout layout) {
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr ||
         layout == c10::kSparseBsc;
}

at::SparseTensorImpl* coo_of(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl* compressed_of(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

// Members are told apart by what is plain and what is compressed, whichever of rows and columns that is.
template <typename Map>
at::Tensor map_coo(const at::Tensor& from, DispatchKey key, const Map& map) {
  auto* source = coo_of(from);
  auto result = at::detail::make_tensor<at::SparseTensorImpl>(DispatchKeySet(key), from.dtype());
  auto* impl = coo_of(result);
  impl->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
  impl->set_indices_and_values_unsafe(map(source->indices()), map(source->values()));
  impl->set_coalesced(source->coalesced());
  return result;
}

template <typename Map>
at::Tensor map_compressed(const at::Tensor& from, DispatchKey key, c10::Device device, const Map& map) {
  // Whoever made `from` has been told that compressed layouts are in beta.
  class Silent final : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  auto* source = compressed_of(from);
  auto result = at::detail::make_tensor<at::SparseCsrTensorImpl>(DispatchKeySet(key), device, source->layout(),
                                                                 from.dtype());
  compressed_of(result)->set_member_tensors(map(source->compressed_indices()), map(source->plain_indices()),
                                            map(source->values()), source->sizes());
  return result;
}

at::Tensor quantized_on(const at::Tensor& strided, DispatchKey key, const at::Tensor& like) {
  auto result = at::detail::make_tensor<at::QTensorImpl>(
      c10::Storage(strided.storage()), DispatchKeySet(key), like.dtype(), at::get_qtensorimpl(like)->quantizer());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return result;
}

// A nested tensor is one buffer. Where its parts lie in it, CPU tensors tell, whatever the device.
at::Tensor buffer_of(const at::Tensor& nested) {
  return at::native::get_nested_tensor_impl(nested)->get_unsafe_storage_as_tensor();
}

at::Tensor nested_on(const at::Tensor& buffer, const at::Tensor& like) {
  const auto* from = at::native::get_nested_tensor_impl(like);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(buffer, from->get_nested_sizes(),
                                                               from->get_nested_strides(), from->get_storage_offsets());
}

}  // namespace

Layouts::Layouts(DispatchKeySet keys) : cpu_keys_(DispatchKey::CPU) {
  if (keys.has(DispatchKey::SparsePrivateUse1)) cpu_keys_ = cpu_keys_.add(DispatchKey::SparseCPU);
  if (keys.has(DispatchKey::SparseCsrPrivateUse1)) cpu_keys_ = cpu_keys_.add(DispatchKey::SparseCsrCPU);
  if (keys.has(DispatchKey::QuantizedPrivateUse1)) cpu_keys_ = cpu_keys_.add(DispatchKey::QuantizedCPU);
  if (keys.has(DispatchKey::NestedTensorPrivateUse1)) cpu_keys_ = cpu_keys_.add(DispatchKey::NestedTensorCPU);
}

at::Tensor Layouts::to_cpu(const at::Tensor& flex, bool writes) {
  // One alias per tensor: kernels ask whether a result is an argument.
  if (const at::Tensor* known = aliases_.find(flex.unsafeGetTensorImpl())) return *known;
  at::Tensor cpu;
  if (flex.layout() == c10::kStrided && !flex.is_quantized() && !flex.is_nested()) [[likely]] {
    cpu = scope_.to_cpu(flex, writes);
  } else if (flex.layout() == c10::kSparse) {
    cpu = alias_coo(flex, writes);
  } else if (is_compressed(flex.layout())) {
    cpu = alias_compressed(flex, writes);
  } else if (flex.is_quantized()) {
    cpu = alias_quantized(flex, writes);
  } else if (flex.layout() == c10::kStrided) {
    cpu = alias_nested(flex, writes);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "flex has no tensors of layout ", flex.layout(),
                                "; move it to the CPU first with .cpu().");
  }
  // Some kernels save what a backward will need only if there will be one.
  if (flex.requires_grad() && c10::GradMode::is_enabled()) cpu.set_requires_grad(true);
  if (writes) {
    written_.push_back({flex, cpu});
    same_.add(cpu.unsafeGetTensorImpl(), flex);
  }
  return aliases_.add(flex.unsafeGetTensorImpl(), cpu);
}

at::Tensor Layouts::alias_coo(const at::Tensor& flex, bool writes) {
  cpu_keys_ = cpu_keys_.add(DispatchKey::SparseCPU);
  return map_coo(flex, DispatchKey::SparseCPU, [&](const at::Tensor& member) { return scope_.to_cpu(member, writes); });
}

at::Tensor Layouts::alias_compressed(const at::Tensor& flex, bool writes) {
  cpu_keys_ = cpu_keys_.add(DispatchKey::SparseCsrCPU);
  return map_compressed(flex, DispatchKey::SparseCsrCPU, device::kCpu,
                        [&](const at::Tensor& member) { return scope_.to_cpu(member, writes); });
}

at::Tensor Layouts::alias_quantized(const at::Tensor& flex, bool writes) {
  cpu_keys_ = cpu_keys_.add(DispatchKey::QuantizedCPU);
  return quantized_on(scope_.to_cpu(flex, writes), DispatchKey::QuantizedCPU, flex);
}

at::Tensor Layouts::alias_nested(const at::Tensor& flex, bool writes) {
  cpu_keys_ = cpu_keys_.add(DispatchKey::NestedTensorCPU);
  return nested_on(scope_.to_cpu(buffer_of(flex), writes), flex);
}

void Layouts::write_back() {
  scope_.write_back_storages();
  for (const Written& argument : written_) write_back(argument.flex, argument.cpu);
}

void Layouts::write_back(const at::Tensor& flex, const at::Tensor& cpu) {
  if (cpu.layout() == c10::kSparse) {
    auto *from = coo_of(cpu), *to = coo_of(flex);
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
    to->set_indices_and_values_unsafe(scope_.to_flex(from->indices()), scope_.to_flex(from->values()));
    to->set_coalesced(from->coalesced());
  } else if (is_compressed(cpu.layout())) {
    auto* from = compressed_of(cpu);
    compressed_of(flex)->set_member_tensors(scope_.to_flex(from->compressed_indices()),
                                            scope_.to_flex(from->plain_indices()), scope_.to_flex(from->values()),
                                            from->sizes());
  } else if (!cpu.is_nested()) {  // no op moves the parts of a nested tensor
    scope_.write_back_metadata(flex, cpu);
  }
}

at::Tensor Layouts::to_flex(const at::Tensor& cpu) {
  const at::Tensor* known = same_.find(cpu.unsafeGetTensorImpl());
  return known ? *known : adopt(cpu);
}

at::Tensor Layouts::adopt(const at::Tensor& cpu) {
  const auto member = [&](const at::Tensor& tensor) { return scope_.to_flex(tensor); };
  if (cpu.is_quantized()) return quantized_on(scope_.to_flex(cpu), DispatchKey::QuantizedPrivateUse1, cpu);
  if (cpu.is_nested()) return nested_on(scope_.to_flex(buffer_of(cpu)), cpu);
  if (cpu.layout() == c10::kStrided) return scope_.to_flex(cpu);
  if (cpu.layout() == c10::kSparse) return map_coo(cpu, DispatchKey::SparsePrivateUse1, member);
  if (is_compressed(cpu.layout()))
    return map_compressed(cpu, DispatchKey::SparseCsrPrivateUse1, device::kFlex, member);
  TORCH_CHECK_NOT_IMPLEMENTED(false, "flex has no tensors of layout ", cpu.layout(),
                              "; move the input to the CPU first with .cpu().");
}

}  // namespace flexcpu::aten
