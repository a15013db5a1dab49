// flexcpu._C: what the Python package asks of the core. Its functions are not public; the package documents them.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/pybind.h>

#include <vector>

#include "aten/fallback_report.h"
#include "aten/registration.h"
#include "device/allocator.h"
#include "device/autograd_thread.h"
#include "device/generator.h"
#include "device/hooks.h"
#include "device/mapping.h"
#include "device/pending.h"
#include "device/operand.h"
#include "device/share.h"
#include "device/storage.h"
#include "kernels/simd/targets.h"
#include "memory/block_cache.h"
#include "memory/statistics.h"
#include "onednn/engine.h"
#include "plan/explain.h"

namespace flexcpu::python {
namespace {

namespace py = pybind11;

c10::StorageImpl* storage_of(const py::object& storage) {
  TORCH_CHECK_TYPE(THPStorage_Check(storage.ptr()), "expected a torch.UntypedStorage");
  return THPStorage_Unpack(storage.ptr()).unsafeGetStorageImpl();
}

py::object wrap(c10::intrusive_ptr<c10::StorageImpl> storage) {
  return py::reinterpret_steal<py::object>(THPStorage_Wrap(c10::Storage(std::move(storage))));
}

// What torch's statistics of a device have no place for.
py::dict sharing_statistics() {
  py::dict figures;
  figures["num_shares"] = memory::statistics().shares.load(std::memory_order_relaxed);
  figures["num_unshares"] = memory::statistics().unshares.load(std::memory_order_relaxed);
  figures["num_deferred"] = memory::statistics().deferred.load(std::memory_order_relaxed);
  figures["num_settled"] = memory::statistics().settled.load(std::memory_order_relaxed);
  return figures;
}

// [(address, capacity, bytes in use)] of every large block.
py::list segments() {
  // Python objects are made without the cache's lock: a garbage collection frees tensors.
  std::vector<memory::Segment> segments;
  memory::for_each_segment([&](const memory::Segment& segment) { segments.push_back(segment); });
  py::list found;
  for (const auto& [address, capacity, size] : segments)
    found.append(py::make_tuple(reinterpret_cast<uintptr_t>(address), capacity, size));
  return found;
}

// {"owners", "escaped", "pinned_down", "generation"} of a storage's buffer; None when its bytes are not one of ours.
py::object buffer_state(const py::object& storage) {
  const device::Pin pin = device::buffer_of(storage_of(storage));
  if (!pin.buffer()) return py::none();
  py::dict state;
  state["owners"] = pin.buffer()->owners();
  state["escaped"] = pin.buffer()->is_escaped();
  state["pinned_down"] = pin.buffer()->is_pinned_down();
  state["generation"] = pin.buffer()->generation();
  return state;
}

py::object wrap_or_none(c10::intrusive_ptr<c10::StorageImpl> storage) {
  return storage ? wrap(std::move(storage)) : py::none();
}

void bind_memory(py::module_& m) {
  m.def("sharing_statistics", &sharing_statistics);
  m.def("segments", &segments);
  m.def("reset_peak_memory_stats", [] { device::allocator()->resetPeakStats(0); });
  m.def("reset_accumulated_memory_stats", [] { device::allocator()->resetAccumulatedStats(0); });
  m.def("memory_info", [] { return device::allocator()->getMemoryInfo(0); }, "(free, total) bytes of the machine");
  m.def("empty_cache", &memory::empty_block_cache);
  m.def("cache_limit", &memory::block_cache_limit);
  m.def("set_cache_limit", &memory::set_block_cache_limit);
  m.def("memory_limit", &memory::memory_limit);
  m.def("set_memory_limit", &memory::set_memory_limit);

  m.def("buffer_state", &buffer_state);
  m.def("is_pending", [](const py::object& storage) { return device::is_pending(storage_of(storage)); });
  m.def("set_pending", [](bool on, bool small) {
    device::may_be_pending.store(on);
    device::are_small_pending.store(small);
  }, py::arg("on"), py::arg("small") = false, "Whether rearranged copies may be put off, and whether small ones too.");
  m.def("address", [](const py::object& storage) { return reinterpret_cast<uintptr_t>(device::read(storage_of(storage)).data); },
        "data_ptr() for comparisons only: the bytes do not escape.");
  m.def("shares_memory", &device::shares_memory);
  m.def("alias_on_cpu", &device::alias_on_cpu);
  m.def("adopt_from_cpu", &device::adopt_from_cpu);
  m.def("adopt_storage", [](const py::object& storage) {
    return wrap_or_none(device::share_by_adopting(storage_of(storage)));
  }, "A flex storage that shares a CPU storage's bytes copy-on-write, whatever owns them; None when they have escaped.");
}

void bind_shared_memory(py::module_& m) {
  m.def("install_mapping", [](const py::object& storage, const py::object& mapping) {
    device::put_on_mapping(storage_of(storage), storage_of(mapping));
  });
  m.def("mapping_of", [](const py::object& storage) { return wrap_or_none(device::mapping_of(storage_of(storage))); });
  m.def("is_mapped_by_descriptor", [](const py::object& mapping) {
    return device::is_mapped_by_descriptor(storage_of(mapping));
  });
}

void bind_fallback(py::module_& m) {
  m.def("fallback_counts", [] {
    py::dict counts;
    for (const auto& [op, calls] : aten::fallback_counts()) counts[py::str(op)] = calls;
    return counts;
  });
  m.def("reset_fallback_counts", &aten::reset_fallback_counts);
  m.def("forbid_fallback", &aten::forbid_fallback, py::arg("begin"));
  py::enum_<aten::FallbackMode>(m, "FallbackMode")
      .value("silent", aten::FallbackMode::kSilent)
      .value("warn", aten::FallbackMode::kWarn)
      .value("error", aten::FallbackMode::kError);
  m.def("set_fallback_mode", &aten::set_fallback_mode);
  m.def("fallback_mode", &aten::fallback_mode);
}

// Tuples of what flexcpu.plans.Plan has.
py::list explained_since(size_t mark) {
  py::list plans;
  for (const plan::Explanation& plan : plan::explained_since(mark)) {
    py::list dtypes;
    for (DType dtype : plan.dtypes) dtypes.append(py::cast(device::scalar_type_of(dtype)));
    py::dict refusals;
    for (const plan::Refusal& refusal : plan.refusals) refusals[refusal.route] = refusal.reason;
    plans.append(py::make_tuple(plan.family, plan.route, py::tuple(dtypes), py::tuple(py::cast(plan.extents)),
                                plan.team, refusals));
  }
  return plans;
}

void bind_plans(py::module_& m) {
  m.def("begin_explaining", &plan::begin_explaining);
  m.def("explained_since", &explained_since, py::arg("mark"));
}

void bind_machine(py::module_& m) {
  m.def("cpu_has_baseline", &simd::cpu_has_baseline);
  m.def("cap_target", [](const std::string& target) {
    simd::cap_target(target);
    onednn::cap_target(target);
  });
  m.def("active_target", [] { return std::string(simd::active_target()); });
  m.def("onednn_version", &onednn::version);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.def("register_device", [] {
    device::register_device();
    aten::register_fallback_over_defaults();
  }, "Tells torch of the device; once per process.");
  m.def("default_generator", [] { return device::default_generator(); });
  m.def("enter", &device::enter, "Keeps backward of this thread on this thread.");
  m.def("was_used", [] { return device::was_used.load(std::memory_order_relaxed); });
  bind_memory(m);
  bind_shared_memory(m);
  bind_fallback(m);
  bind_plans(m);
  bind_machine(m);
}

}  // namespace flexcpu::python
