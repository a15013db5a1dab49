#include "aten/fallback.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/op_registration/adaption.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "aten/fallback_report.h"
#include "aten/layouts.h"
#include "device/alias.h"
#include "device/autograd_thread.h"
#include "device/cpu_allocator.h"
#include "device/generator.h"

namespace flexcpu::aten {
namespace {

using c10::IValue;

// ---- What is known of an op, found out once ----

struct OpEntry {
  std::string name;
  std::vector<bool> writes;  // per argument
  bool has_writes = false;
  bool is_aten = false;
  bool is_copy = false;        // between any two devices
  bool is_pointwise = false;   // TensorIterator's device errors
  int cpu_argument = -1;       // takes CPU tensors beside flex ones, as on CUDA
  int cpu_result = -1;         // stays on the CPU
  std::atomic<uint64_t> calls{0};
  std::atomic<bool> warned{false};
};

// Arguments that CUDA takes from the CPU, and results that it leaves there.
int cpu_argument_of(const c10::FunctionSchema& schema) {
  const auto& name = schema.name();
  const char* argument = nullptr;
  if (name == "aten::index" || name == "aten::index_put" || name == "aten::index_put_" ||
      name == "aten::_index_put_impl_" || name == "aten::_index_put_impl" || name == "aten::_unsafe_index" ||
      name == "aten::_unsafe_index_put")
    argument = "indices";
  if (name == "aten::_pack_padded_sequence") argument = "lengths";
  return argument ? schema.argumentIndexWithName(argument).value_or(-1) : -1;
}

std::unique_ptr<OpEntry> examine(const c10::OperatorHandle& op) {
  auto entry = std::make_unique<OpEntry>();
  const auto& schema = op.schema();
  entry->name = toString(op.operator_name());
  entry->is_aten = schema.name().starts_with("aten::");
  entry->is_copy = schema.name() == "aten::copy_" || schema.name() == "aten::copy_sparse_to_sparse_";
  entry->is_pointwise = op.hasTag(at::Tag::pointwise);
  entry->cpu_argument = cpu_argument_of(schema);
  entry->cpu_result = schema.name() == "aten::_pack_padded_sequence" ? 1 : -1;
  for (const auto& argument : schema.arguments()) {
    entry->writes.push_back(argument.alias_info() && argument.alias_info()->isWrite());
    entry->has_writes |= entry->writes.back();
  }
  return entry;
}

class OpTable {
 public:
  OpEntry& find(const c10::OperatorHandle& op) {
    // Schemas live as long as the process; a thread's own cache spares the lock.
    thread_local ska::flat_hash_map<const void*, OpEntry*> seen;
    OpEntry*& cached = seen[&op.schema()];
    if (!cached) [[unlikely]] {
      std::lock_guard<std::mutex> guard(mutex_);
      auto& entry = entries_[&op.schema()];
      if (!entry) entry = examine(op);
      cached = entry.get();
    }
    return *cached;
  }

  template <typename Body>
  void for_each(const Body& body) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (auto& [schema, entry] : entries_) body(*entry);
  }

 private:
  std::mutex mutex_;
  ska::flat_hash_map<const void*, std::unique_ptr<OpEntry>> entries_;
};

OpTable& table() {
  static auto* instance = new OpTable;  // threads may outlive static destructors
  return *instance;
}

// ---- Whether it may run ----

std::atomic<FallbackMode> mode{FallbackMode::kSilent};
thread_local int forbidden = 0;

void check_permitted(OpEntry& op) {
  const FallbackMode now = mode.load(std::memory_order_relaxed);
  if (now == FallbackMode::kSilent && forbidden == 0) [[likely]] return;
  TORCH_CHECK_NOT_IMPLEMENTED(forbidden == 0 && now != FallbackMode::kError, op.name,
                              " has no native flex kernel for these arguments, and the CPU fallback is forbidden here "
                              "(FLEXCPU_FALLBACK=error, or a block under torch.flex.forbid_fallback()).");
  if (!op.warned.exchange(true))
    TORCH_WARN(op.name, " has no native flex kernel for these arguments; it runs on the CPU kernel over the same bytes "
               "(FLEXCPU_FALLBACK=silent silences this).");
}

// ---- Devices ----

// Arguments must be flex; CPU scalars and the CPU arguments that CUDA takes too may stand beside them.
class DeviceCheck {
 public:
  DeviceCheck(const OpEntry& op, const c10::FunctionSchema& schema) : op_(op), schema_(schema) {}

  void see(const at::Tensor& tensor, size_t argument) {
    if (tensor.device().type() == device::kFlex.type()) {
      has_flex_ = true;
      return;
    }
    has_others_ = true;
    if (!stranger_.defined() && static_cast<int>(argument) != op_.cpu_argument &&
        (tensor.dim() != 0 || op_.writes[argument])) {
      stranger_ = tensor;
      argument_ = argument;
    }
  }

  // A flex generator brings a CPU op here.
  bool has_only_others() const { return has_others_ && !has_flex_; }

  void conclude() const {
    if (!has_flex_ || !stranger_.defined() || !op_.is_aten || op_.is_copy) return;
    TORCH_CHECK(!op_.is_pointwise, "Expected all tensors to be on the same device, but found at least two devices, ",
                device::kFlex, " and ", stranger_.device(), "!");
    const std::string overload = schema_.overload_name().empty() ? "" : schema_.overload_name() + "_";
    const std::string method = "wrapper_PrivateUse1_" + overload + schema_.name().substr(schema_.name().rfind(':') + 1);
    c10::impl::common_device_check_failure(device::kFlex, stranger_, method.c_str(),
                                           schema_.arguments()[argument_].name().c_str());
  }

 private:
  const OpEntry& op_;
  const c10::FunctionSchema& schema_;
  at::Tensor stranger_;
  size_t argument_ = 0;
  bool has_flex_ = false, has_others_ = false;
};

// ---- One call ----

class Call {
 public:
  Call(const OpEntry& op, const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack)
      : layouts_(keys), op_(op), handle_(handle), schema_(handle.schema()), stack_(stack),
        first_(stack->size() - schema_.arguments().size()) {}

  void run() {
    check_devices();
    try {
      if (op_.has_writes) alias_arguments(/*writes=*/true);
      alias_arguments(/*writes=*/false);
      // As below a CPU kernel's own wrapper: the caller's autograd is done.
      at::AutoDispatchBelowADInplaceOrView guard;
      const device::CpuKernelScope scope;
      handle_.redispatchBoxed(layouts_.cpu_keys(), stack_);
    } catch (...) {
      // The caller may keep the stack: no alias must be left on it. What the kernel resized before it failed stays so.
      stack_->resize(first_);
      layouts_.write_back();
      throw;
    }
    layouts_.write_back();
    adopt_results();
  }

 private:
  void check_devices() {
    DeviceCheck check(op_, schema_);
    for (size_t i = 0; i < schema_.arguments().size(); ++i)
      for_each_tensor((*stack_)[first_ + i], [&](const at::Tensor& tensor) {
        check.see(tensor, i);
        if (tensor.device().type() != device::kFlex.type()) layouts_.keep(tensor);
      });
    check.conclude();
    of_cpu_tensors_ = check.has_only_others();
  }

  template <typename Body>
  static void for_each_tensor(const IValue& value, const Body& body) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) body(value.toTensor());
    } else if (value.isList()) {
      for (const IValue& item : value.toListRef()) for_each_tensor(item, body);
    } else if (value.isGenericDict()) {
      for (const auto& item : value.toGenericDict()) for_each_tensor(item.value(), body);
    }
  }

  void alias_arguments(bool writes) {
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      if (op_.writes[i] != writes) continue;
      IValue& value = (*stack_)[first_ + i];
      if (value.isTensor()) {
        const at::Tensor& tensor = value.toTensor();
        if (tensor.defined() && tensor.device().type() == device::kFlex.type()) value = alias_of(tensor, writes);
      } else if (value.isNone() || value.isGenerator()) {
        alias_generator(i, value);
      } else if (value.isDevice()) {
        makes_cpu_ |= value.toDevice().is_cpu();
        if (value.toDevice().type() == device::kFlex.type()) value = device::kCpu;
      } else if (!value.isScalar() && !value.isIntList() && !value.isString()) {
        value = aliased(value, writes);
      }
    }
  }

  at::Tensor alias_of(const at::Tensor& tensor, bool writes) {
    // torch's own ops have told autograd of the write on their way here; a user's kernel would do so by what it calls.
    if (writes && !op_.is_aten) tensor.unsafeGetTensorImpl()->bump_version();
    return layouts_.to_cpu(tensor, writes);
  }

  // Containers, of any depth.
  IValue aliased(const IValue& value, bool writes) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (tensor.defined() && tensor.device().type() == device::kFlex.type()) return alias_of(tensor, writes);
      return value;
    }
    if (value.isList()) {
      const auto list = value.toList();
      auto result = c10::impl::GenericList(list.elementType());
      result.reserve(list.size());
      for (const IValue& item : value.toListRef()) result.push_back(aliased(item, writes));
      return result;
    }
    if (value.isGenericDict()) {
      const auto dict = value.toGenericDict();
      auto result = c10::impl::GenericDict(dict.keyType(), dict.valueType());
      for (const auto& item : dict) result.insert(item.key(), aliased(item.value(), writes));
      return result;
    }
    return value;
  }

  void alias_generator(size_t argument, IValue& value) {
    const auto& type = *schema_.arguments()[argument].type();
    const bool takes_generator =
        type.kind() == c10::TypeKind::GeneratorType ||
        (type.kind() == c10::TypeKind::OptionalType &&
         type.castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType);
    if (!takes_generator) return;
    TORCH_CHECK(!of_cpu_tensors_, "Expected a 'cpu' device type for generator but found 'flex'");
    value = device::cpu_generator_of(value.isGenerator() ? value.toGenerator() : at::Generator());
  }

  void adopt_results() {
    const auto& returns = schema_.returns();
    const size_t first = stack_->size() - returns.size();
    for (size_t i = 0; i < returns.size(); ++i) {
      if (static_cast<int>(i) == op_.cpu_result || (makes_cpu_ && !returns[i].alias_info())) continue;
      IValue& value = (*stack_)[first + i];
      value = adopted(std::move(value));
    }
  }

  IValue adopted(IValue value) {
    if (value.isTensor()) return value.toTensor().defined() ? IValue(layouts_.to_flex(value.toTensor())) : value;
    if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
      const auto list = value.toList();
      auto result = c10::impl::GenericList(list.elementType());
      for (const IValue& item : value.toListRef()) result.push_back(adopted(item));
      return result;
    }
    return value;
  }

  Layouts layouts_;  // outlives every alias
  const OpEntry& op_;
  const c10::OperatorHandle& handle_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack* stack_;
  const size_t first_;
  bool makes_cpu_ = false;  // the caller asks for CPU results
  bool of_cpu_tensors_ = false;
};

}  // namespace

void fallback_of_keys(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  device::enter();
  OpEntry& op = table().find(handle);
  check_permitted(op);
  op.calls.fetch_add(1, std::memory_order_relaxed);
  Call(op, handle, keys, stack).run();
}

void fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack) { fallback_of_keys(handle, {}, stack); }

std::vector<FallbackCount> fallback_counts() {
  std::vector<FallbackCount> counts;
  table().for_each([&](const OpEntry& op) {
    if (const uint64_t calls = op.calls.load(std::memory_order_relaxed)) counts.push_back({op.name, calls});
  });
  std::sort(counts.begin(), counts.end(), [](const FallbackCount& a, const FallbackCount& b) {
    return a.calls != b.calls ? a.calls > b.calls : a.op < b.op;
  });
  return counts;
}

void reset_fallback_counts() {
  table().for_each([](OpEntry& op) { op.calls.store(0, std::memory_order_relaxed); });
}

void set_fallback_mode(FallbackMode now) { mode.store(now, std::memory_order_relaxed); }
FallbackMode fallback_mode() { return mode.load(std::memory_order_relaxed); }
void forbid_fallback(bool begin) { forbidden += begin ? 1 : -1; }

}  // namespace flexcpu::aten
