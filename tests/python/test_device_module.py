"""torch.flex and torch.accelerator: what a user of torch.cuda takes for granted."""

import gc
import threading
import warnings

import pytest
import torch

import flexcpu

flex = torch.flex


def test_is_the_device_module():
    assert torch.get_device_module("flex") is flex is torch.get_device_module(torch.device("flex:0"))
    assert flex.is_available() and flex.is_initialized() and not flex._is_in_bad_fork()
    assert flex.device_count() == 1 and flex.current_device() == 0
    assert flex.init() is None and flex._lazy_init() is None
    assert all(hasattr(flex, name) for name in flex.__all__)


def test_names_of_cuda_that_have_a_meaning_are_there():
    missing = {
        # graphs, libraries, compilers, sensors and pools of a GPU
        "CUDAGraph", "CudaError", "DeferredCudaCallError", "ExternalStream", "GreenContext", "CUDAPluggableAllocator",
        "MemPool", "amp", "caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_disabled",
        "caching_allocator_enable", "change_current_allocator", "check_error", "clock_rate", "cudaStatus", "cudart",
        "current_blas_handle", "current_solver_handle", "device_memory_used", "get_allocator_backend",
        "get_gencode_flags", "get_stream_from_external", "get_sync_debug_mode",
        "graph", "graph_pool_handle", "graphs", "has_half", "has_magma", "host_memory_stats",
        "host_memory_stats_as_nested_dict", "ipc_collect", "is_current_stream_capturing", "is_tf32_supported",
        "jiterator", "list_gpu_processes", "make_graphed_callables", "memory_usage", "nccl", "nvtx",
        "power_draw", "profiler", "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats",
        "set_sync_debug_mode", "sparse", "temperature", "tunable", "use_mem_pool",
        "utilization",
    }  # fmt: skip
    expected = {name for name in torch.cuda.__all__ if not name.endswith(("Storage", "Tensor"))} - missing
    assert {name for name in expected if not hasattr(flex, name)} == set()


def test_tensor_module_storage_and_sequence_methods():
    cpu = torch.arange(3.0)
    t = cpu.flex()
    assert t.is_flex and not cpu.is_flex and t.device == torch.device("flex:0") and t.flex() is t
    assert t.get_device() == 0 and torch.equal(t.cpu(), cpu)
    assert cpu.flex(0).is_flex and cpu.flex(torch.device("flex:0")).is_flex
    module = torch.nn.Linear(2, 2).flex()
    assert module.weight.is_flex and module.cpu().weight.device.type == "cpu"
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert packed.flex().is_flex and not packed.is_flex and not packed.flex().cpu().is_flex
    storage = cpu.untyped_storage().flex()
    assert storage.is_flex and storage.tolist() == cpu.untyped_storage().tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cpu.storage().flex().is_flex and cpu.storage().flex().tolist() == [0, 1, 2]


@pytest.mark.parametrize("device", [None, 0, "flex", "flex:0", torch.device("flex"), torch.device("flex:0"), -1])
def test_devices_are_taken_as_elsewhere(device):
    flex.set_device(device)
    flex.synchronize(device)
    with flex.device(device):
        assert flex.current_device() == 0
    assert flex.memory_allocated(device) == flex.memory_allocated()


@pytest.mark.parametrize(
    ("device", "error", "text"),
    [
        (1, RuntimeError, "flex has one device, flex:0; got index 1"),
        ("flex:7", RuntimeError, "flex has one device, flex:0; got index 7"),
        ("cpu", ValueError, "Expected a flex device, but got: cpu"),
        (1.5, TypeError, "Expected a torch.device, a string or an integer"),
    ],
)
def test_wrong_devices(device, error, text):
    for function in (flex.set_device, flex.synchronize, flex.device, flex.get_device_name, flex.get_device_properties,
                     flex.memory_stats, flex.current_stream, flex.get_rng_state, flex.mem_get_info):  # fmt: skip
        with pytest.raises(error, match=text):
            function(device)


def test_only_one_device():
    with pytest.raises(RuntimeError, match="flex has one device, flex:0"):
        torch.ones(2, device="flex:1")
    with pytest.raises(RuntimeError, match="flex has one device, flex:0"):
        torch.ones(2).to("flex:1")
    assert not flex.can_device_access_peer(0, 0)


def test_device_of():
    with flex.device_of(torch.ones(1, device="flex")), flex.device_of(torch.ones(1)):
        assert torch.ones(1, device="flex").get_device() == 0


def test_properties():
    properties = flex.get_device_properties()
    assert properties.name == flex.get_device_name() != ""
    assert properties.total_memory == flex.mem_get_info()[1] > 2**28
    assert properties.multi_processor_count >= 1
    assert properties.simd in flex.get_arch_list() and flex.get_device_capability()["simd"] == properties.simd
    assert flex.is_bf16_supported() is True and isinstance(flex.is_bf16_supported(including_emulation=False), bool)
    assert flex.get_amp_supported_dtype() == [torch.bfloat16, torch.float16]


# ---- Memory ----


def test_memory_in_use():
    gc.collect()
    before = flex.memory_allocated()
    t = torch.empty(1 << 20, dtype=torch.uint8, device="flex")
    assert flex.memory_allocated() - before == 1 << 20
    clone = t.clone()
    assert flex.memory_allocated() - before == 1 << 20
    clone.add_(1)
    assert flex.memory_allocated() - before == 2 << 20
    del t, clone
    assert flex.memory_allocated() == before == flex.memory_stats()["allocated_bytes.all.current"]
    assert flex.memory_reserved() >= before


def test_peaks_and_totals():
    torch.empty(1 << 22, dtype=torch.uint8, device="flex")
    assert flex.max_memory_allocated() >= 1 << 22
    flex.reset_peak_memory_stats()
    assert flex.max_memory_allocated() == flex.memory_allocated()
    flex.reset_accumulated_memory_stats()
    stats = flex.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 0
    torch.empty(1 << 10, dtype=torch.uint8, device="flex")
    stats = flex.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 1 << 10
    assert stats["allocation.all.allocated"] == 1
    assert flex.max_memory_reserved() >= flex.memory_reserved()


def test_sharing_is_counted():
    t = torch.ones(8, device="flex")
    before = flex.memory_stats()
    t.clone().add_(1)
    after = flex.memory_stats()
    assert after["num_shares"] - before["num_shares"] == 1 == after["num_unshares"] - before["num_unshares"]


def test_stats_have_cudas_names():
    stats = flex.memory_stats()
    for metric in ("allocation", "segment", "active", "inactive_split"):
        for name in (metric, "allocated_bytes" if metric == "allocation" else f"{metric}_bytes"):
            for pool in ("all", "large_pool", "small_pool"):
                for kind in ("current", "peak", "allocated", "freed"):
                    key = f"{name}.{pool}.{kind}"
                    assert key in stats or name == "segment_bytes", key
    assert {"num_alloc_retries", "num_ooms", "reserved_bytes.all.current", "requested_bytes.all.peak"} <= set(stats)
    nested = flex.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]
    assert list(stats) == sorted(stats)


def test_memory_summary():
    torch.empty(3 << 20, dtype=torch.uint8, device="flex")
    flex.reset_peak_memory_stats()
    held = torch.empty(1536, dtype=torch.uint8, device="flex")
    text = flex.memory_summary()
    assert "Allocated memory" in text and "Allocations" in text and "out of memory" in text
    assert len(flex.memory_summary(abbreviated=True)) < len(text)
    widths = {len(line) for line in text.splitlines() if "|" in line}
    assert max(widths) <= 79
    del held


def test_out_of_memory_is_an_error_and_counted():
    before = flex.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError, match="flex out of memory"):
        torch.empty(1 << 55, dtype=torch.uint8, device="flex")
    assert flex.memory_stats()["num_ooms"] == before + 1
    assert torch.ones(2, device="flex").sum() == 2


def test_empty_cache():
    torch.ones(1 << 20, device="flex")
    assert flex.empty_cache() is None
    free, total = flex.mem_get_info()
    assert 0 < free <= total


# ---- Fallback ----


def test_fallback_report_counts():
    flex.reset_fallback_report()
    x = torch.randn(8, device="flex")
    assert torch.equal(x.sort()[0].cpu(), x.cpu().sort()[0])
    x.sort()
    report = flex.fallback_report()
    name = next(name for name in report if name.startswith("aten::sort"))
    assert report[name] == 2
    assert list(report.values()) == sorted(report.values(), reverse=True)
    flex.reset_fallback_report()
    assert flex.fallback_report() == {}


def test_forbid_fallback_holds_for_the_block_and_the_thread():
    x = torch.randn(8, device="flex")
    seen = []
    with flex.forbid_fallback():
        x + x
        with pytest.raises(NotImplementedError, match="aten::sort.* has no native flex kernel"):
            x.sort()
        with flex.forbid_fallback():
            pass
        with pytest.raises(NotImplementedError):
            x.sort()
        thread = threading.Thread(target=lambda: seen.append(x.sort()[0]))
        thread.start()
        thread.join()
    assert len(seen) == 1 and torch.equal(x.sort()[0], seen[0])
    with pytest.raises(KeyError), flex.forbid_fallback():
        raise KeyError
    x.sort()


def test_fallback_mode():
    assert flex.fallback_mode() == "silent"
    x = torch.randn(8, device="flex")
    try:
        flex.set_fallback_mode("error")
        assert flex.fallback_mode() == "error"
        with pytest.raises(NotImplementedError):
            x.sort()
        flex.set_fallback_mode("warn")
        with pytest.warns(UserWarning, match="aten::argsort.*|aten::.* has no native flex kernel"):
            torch.linalg.qr(torch.eye(2, device="flex"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.linalg.qr(torch.eye(2, device="flex"))
    finally:
        flex.set_fallback_mode("silent")
    with pytest.raises(ValueError, match='must be one of silent, warn, error, not "loud"'):
        flex.set_fallback_mode("loud")


# ---- torch.accelerator ----


def test_accelerator():
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.device_count() == 1
    assert accelerator.current_accelerator() == torch.device("flex")
    assert accelerator.current_device_index() == 0
    accelerator.set_device_index(0)
    accelerator.set_device_index("flex:0")
    with accelerator.device_index(0):
        accelerator.synchronize()
    stream = accelerator.current_stream()
    assert stream.device == torch.device("flex:0")
    accelerator.set_stream(stream)
    assert accelerator.memory_allocated() == flex.memory_allocated()
    assert accelerator.max_memory_allocated() == flex.max_memory_allocated()
    assert accelerator.memory_reserved() == flex.memory_reserved()
    assert accelerator.max_memory_reserved() == flex.max_memory_reserved()
    accelerator.empty_cache()
    accelerator.empty_host_cache()
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    assert accelerator.get_memory_info()[1] == flex.mem_get_info()[1]
    assert torch.float32 in accelerator.get_device_capability()["supported_dtypes"]
    with pytest.raises(RuntimeError):
        accelerator.set_device_index(1)


def test_default_device():
    torch.set_default_device("flex")
    try:
        assert torch.get_default_device() == torch.device("flex:0")
        assert torch.ones(2).is_flex and torch.tensor([1]).is_flex and torch.nn.Linear(2, 2).weight.is_flex
        assert torch.rand(2).is_flex and torch.arange(3).is_flex and torch.randperm(4).is_flex
    finally:
        torch.set_default_device(None)
    with torch.device("flex"):
        assert torch.zeros(2).is_flex
    assert not torch.zeros(2).is_flex


def test_printing_is_the_cpus():
    for cpu in (torch.arange(6.0).view(2, 3), torch.tensor([]), torch.tensor(1.5), torch.tensor([1, 2]) > 1,
                torch.randn(30, 50), torch.tensor([1 + 2j]), torch.tensor([1.0], dtype=torch.bfloat16)):  # fmt: skip
        text, expected = repr(cpu.flex()), repr(cpu)
        assert "device='flex:0'" in text
        assert "".join(text.split()).replace(",device='flex:0'", "") == "".join(expected.split())


def test_profiler_and_device_names():
    assert torch._C._autograd.DeviceType.FLEX == torch._C._autograd.DeviceType.PrivateUse1
    with torch.profiler.profile() as profile:
        torch.ones(4, device="flex").add(1)
    assert any(event.key == "aten::add" for event in profile.key_averages())


def test_autocast_does_not_crash():
    module = torch.nn.Linear(4, 4).flex()
    x = torch.randn(2, 4, device="flex")
    with torch.autocast("flex", dtype=torch.bfloat16):
        y = module(x)
    assert torch.isfinite(y.float()).all()


def test_shares_memory():
    t = torch.ones(4, device="flex")
    assert flexcpu.shares_memory(t, t.clone()) and flexcpu.shares_memory(t, t[1:]) and flexcpu.shares_memory(t, t.cpu())
    assert not flexcpu.shares_memory(t, torch.ones(4, device="flex"))
