"""NumPy and DLPack over the same bytes."""

import gc

import numpy as np
import pytest
import torch
from torch.utils.dlpack import DLDeviceType

import flexcpu


def test_numpy_raises_as_on_cuda():
    t = torch.ones(2, device="flex")
    for convert in (t.numpy, lambda: np.asarray(t), lambda: np.add(t, 1)):
        with pytest.raises(TypeError, match="can't convert flex:0 device type tensor to numpy. Use Tensor.cpu()"):
            convert()
    assert t.numpy(force=True).tolist() == [1, 1]
    assert torch.from_numpy(np.ones(2)).flex().is_flex
    assert torch.as_tensor(np.arange(3), device="flex").tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool,
                                   torch.complex64, torch.uint16])  # fmt: skip
def test_asarray_is_a_view(dtype):
    cpu = torch.arange(12).to(dtype).view(3, 4)
    t = cpu.flex()
    clone = t.clone()
    array = flexcpu.asarray(t[1:].T)
    expected = cpu[1:].T.numpy()
    assert array.dtype == expected.dtype and array.strides == expected.strides and np.array_equal(array, expected)
    array[0, 0] = 0
    assert t[1, 0] == 0 and torch.equal(clone.cpu(), cpu)
    t.fill_(1)
    assert (array == 1).all()
    del t
    gc.collect()
    assert (array == 1).all()


def test_asarray_errors_are_numpys():
    t = torch.ones(2, device="flex")
    for make in (
        lambda t: t.requires_grad_(),
        lambda t: t.to(torch.complex64).conj(),
        lambda t: t.to(torch.bfloat16),
        lambda t: t.to_sparse(),
    ):
        with pytest.raises((RuntimeError, TypeError)) as ours:
            flexcpu.asarray(make(t.clone()))
        with pytest.raises((RuntimeError, TypeError)) as numpys:
            make(t.cpu()).numpy()
        if not make(t.clone()).is_sparse:
            assert (ours.type, str(ours.value)) == (numpys.type, str(numpys.value))
    assert flexcpu.asarray(torch.ones(2)).tolist() == [1, 1]


def test_from_cpu():
    cpu = torch.arange(4.0)
    copied, shared = flexcpu.from_cpu(cpu), flexcpu.from_cpu(cpu, copy=False)
    assert copied.is_flex and shared.is_flex and flexcpu.shares_memory(shared, cpu)
    cpu[0] = 9
    assert copied[0] == 0 and shared[0] == 9
    shared[1] = 8
    assert cpu[1] == 8
    view = flexcpu.from_cpu(cpu.view(2, 2).T, copy=False)
    assert view.stride() == (1, 2) and view.tolist() == cpu.view(2, 2).T.tolist()

    ours = torch.ones(4, device="flex").cpu()
    adopted = flexcpu.from_cpu(ours, copy=False)
    adopted.add_(1)
    assert ours.tolist() == [1] * 4, "a CPU tensor that came from flex is shared copy-on-write"
    with pytest.raises(ValueError, match="expected a CPU tensor"):
        flexcpu.from_cpu(adopted)
    with pytest.raises(ValueError, match="requires grad"):
        flexcpu.from_cpu(torch.ones(2, requires_grad=True), copy=False)
    grad = torch.ones(2, requires_grad=True)
    flexcpu.from_cpu(grad).sum().backward()
    assert grad.grad.tolist() == [1, 1]


def test_from_cpu_of_numpy_memory():
    array = np.arange(3.0)
    t = flexcpu.from_cpu(torch.from_numpy(array), copy=False)
    array[0] = 5
    assert t.tolist() == [5, 1, 2]
    t.mul_(2)
    assert array.tolist() == [10, 2, 4]


# ---- DLPack ----


def test_dlpack_exports_as_cpu_memory():
    t = torch.arange(6.0, device="flex").view(2, 3)
    clone = t.clone()
    assert t.__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    array = np.from_dlpack(t.T)
    assert array.shape == (3, 2) and array[2, 1] == 5
    t[1, 2] = 7
    assert array[2, 1] == 7 and clone[1, 2] == 5
    cpu = torch.from_dlpack(t)
    assert cpu.device.type == "cpu" and flexcpu.shares_memory(cpu, t)
    cpu[0, 0] = 3
    assert t[0, 0] == 3
    assert np.from_dlpack(t, copy=True).tolist() == t.tolist() if "copy" in (np.from_dlpack.__doc__ or "") else True
    capsule = t.__dlpack__(max_version=(1, 0))
    assert torch.utils.dlpack.from_dlpack(capsule).device.type == "cpu"


def test_dlpack_import():
    array = np.arange(3.0)
    t = torch.from_dlpack(array, device="flex")
    assert t.is_flex and t.tolist() == [0, 1, 2]
    array[0] = 5
    assert t[0] == 0, "torch copies between devices that DLPack names differently"
    adopted = flexcpu.from_cpu(torch.from_dlpack(array), copy=False)
    array[1] = 6
    assert adopted.tolist() == [5, 6, 2]
    assert torch.from_dlpack(torch.ones(2, device="flex"), device="flex").is_flex
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(array, device="flex", copy=False)


def test_dlpack_between_flex_tensors_shares():
    t = torch.arange(4.0, device="flex")
    again = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(t[1:]))
    assert again.is_flex
    again[0] = 7
    assert t.tolist() == [0, 7, 2, 3]
    clone = again.clone()
    del t
    gc.collect()
    again.add_(1)
    assert clone.tolist() == [7, 2, 3] and again.tolist() == [8, 3, 4]


def test_dlpack_refuses_what_the_cpu_refuses():
    for make in (lambda t: t.requires_grad_(), lambda t: t.to(torch.complex64).conj(), lambda t: t.to_sparse()):
        texts = []
        for device in ("flex", "cpu"):
            with pytest.raises(BufferError) as refused:
                make(torch.ones(2, device=device)).__dlpack__()
            texts.append(str(refused.value))
        assert texts[0] == texts[1]


def test_dlpack_of_other_devices_is_untouched():
    cpu = torch.arange(3.0)
    assert cpu.__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    array = np.from_dlpack(cpu)
    array[0] = 5
    assert cpu[0] == 5

    class Sub(torch.Tensor):
        pass

    sub = torch.ones(2, device="flex").as_subclass(Sub)
    assert sub.__dlpack_device__() == (DLDeviceType.kDLCPU, 0) and np.from_dlpack(sub).tolist() == [1, 1]
    assert torch.Tensor.__dlpack__.__doc__.strip().startswith("Creates a DLpack")
