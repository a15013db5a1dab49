"""Storages from Python: methods, resizing, sharing and escaping, set_, view(dtype), copies that are none."""

import copy
import gc
import resource
import threading

import pytest
import torch

import flexcpu
from flexcpu import _C


def state(t):
    return _C.buffer_state(t.untyped_storage())


def test_untyped_storage_methods():
    storage = torch.UntypedStorage(8, device="flex")
    assert storage.device == torch.device("flex:0") and storage.nbytes() == len(storage) == 8 and storage.is_flex
    storage.fill_(3)
    assert storage.tolist() == [3] * 8 and storage[2] == 3
    storage[2] = 7
    assert storage[1:4].tolist() == [3, 7, 3] and list(storage.cpu()) == [3, 3, 7, 3, 3, 3, 3, 3]
    other = storage.clone()
    other[0] = 0
    assert storage[0] == 3 and other.device == storage.device
    assert storage.cpu().device.type == "cpu" and storage.cpu().flex().tolist() == storage.tolist()
    assert storage.to(device="cpu").tolist() == storage.tolist() == storage.cpu().to(device="flex").tolist()
    assert storage.copy_(torch.UntypedStorage([1] * 8)).tolist() == [1] * 8
    assert storage.get_device() == 0 and storage.element_size() == 1 and storage.resizable()
    assert copy.copy(storage).tolist() == storage.tolist()


def test_slices_of_storages_are_views():
    t = torch.zeros(4, dtype=torch.uint8, device="flex")
    t.untyped_storage()[1:3].fill_(5)
    assert t.tolist() == [0, 5, 5, 0]


def test_storage_resize():
    t = torch.arange(4.0, device="flex")
    shared = t.clone()
    storage = t.untyped_storage()
    storage.resize_(32)
    assert storage.nbytes() == 32 and torch.empty(0, device="flex").set_(storage, 0, (4,)).tolist() == [0, 1, 2, 3]
    storage.resize_(0)
    assert storage.nbytes() == 0 and storage.data_ptr() == 0
    storage.resize_(16)
    t.copy_(torch.arange(4.0))
    assert t.tolist() == shared.tolist() == [0, 1, 2, 3]


def test_tensor_resize_and_set():
    t = torch.arange(6.0, device="flex")
    view, clone = t[:3], t.clone()
    t.resize_(8)[6:].fill_(9)
    assert t.tolist() == [0, 1, 2, 3, 4, 5, 9, 9]
    assert view.tolist() == [0, 1, 2] and clone.tolist() == [0, 1, 2, 3, 4, 5]
    view.fill_(7)
    assert t[:3].tolist() == [7, 7, 7]
    other = torch.empty(0, device="flex")
    other.set_(t)
    assert other.is_set_to(t)
    other.set_(t.untyped_storage(), 2, (2, 2), (1, 2))
    assert other.tolist() == [[7, 4], [3, 5]]
    other.set_()
    assert other.shape == (0,) and t.numel() == 8
    with pytest.raises(RuntimeError):
        t.set_(torch.zeros(4).untyped_storage())


def test_view_dtype_and_views_of_views():
    cpu = torch.arange(12, dtype=torch.int32)
    t = cpu.flex()
    assert torch.equal(t.view(torch.int16).cpu(), cpu.view(torch.int16))
    assert torch.equal(t.view(3, 4).t()[1:, ::2].T.cpu(), cpu.view(3, 4).t()[1:, ::2].T)
    t.view(3, 4)[:, 1].zero_()
    cpu.view(3, 4)[:, 1].zero_()
    assert torch.equal(t.cpu(), cpu)


# ---- Sharing, and when it ends ----


@pytest.mark.parametrize(
    "copied",
    [
        torch.clone,
        torch.Tensor.cpu,
        copy.deepcopy,
        lambda t: torch.empty_like(t).copy_(t),
        lambda t: t.to("flex", copy=True),
    ],
)
def test_copies_share_until_either_side_writes(copied):
    for writer in (0, 1):
        pair = [torch.arange(64.0, device="flex")]
        pair.append(copied(pair[0]))
        assert flexcpu.shares_memory(*pair)
        pair[writer].add_(1)
        assert not flexcpu.shares_memory(*pair)
        assert torch.equal(pair[writer].cpu(), torch.arange(64.0) + 1)
        assert torch.equal(pair[1 - writer].cpu(), torch.arange(64.0))


def test_a_view_and_its_base_stay_one_storage_after_unsharing():
    t = torch.arange(8.0, device="flex")
    view, clone = t[2:4], t.clone()
    view.fill_(-1)
    assert t.tolist() == [0, 1, -1, -1, 4, 5, 6, 7] and clone.tolist() == list(range(8))
    clone.mul_(2)
    assert view.tolist() == [-1, -1]


def test_escaped_bytes_are_not_shared():
    t = torch.arange(4.0, device="flex")
    clone = t.clone()
    array = flexcpu.asarray(t)
    assert state(t)["escaped"] and not flexcpu.shares_memory(t, clone)
    array[0] = 5
    assert t.tolist() == [5, 1, 2, 3] and clone.tolist() == [0, 1, 2, 3]
    later = t.clone()
    array[1] = 6
    assert t.tolist() == [5, 6, 2, 3] and later.tolist() == [5, 1, 2, 3]


def test_data_ptr_escapes_and_ops_do_not():
    t = torch.ones(4, device="flex")
    t.add_(1).sort()
    t.tolist()
    assert not state(t)["escaped"]
    clone = t.clone()
    assert t.data_ptr() != clone.data_ptr()
    assert state(t)["escaped"] and state(clone)["escaped"]


def test_small_clones_do_not_keep_large_storages():
    t = torch.ones(1 << 16, device="flex")
    assert not flexcpu.shares_memory(t[:10].clone(), t)
    assert flexcpu.shares_memory(t[: 1 << 15].clone(), t)


def faults(action):
    """Page faults of one call, after another one warmed it up."""
    action()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = action()
    found = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    del kept
    return found


@pytest.mark.parametrize("make", [torch.ones, lambda n, device: torch.ones(n, device=device).cumsum(0)])
def test_copies_touch_no_page(make):
    t = make(1 << 24, device="flex")  # 64 MB
    for copied in (torch.clone, torch.Tensor.cpu, copy.deepcopy, lambda t: copy.deepcopy(t.untyped_storage())):
        assert faults(lambda: copied(t)) < 200


def test_deepcopy():
    t = torch.arange(8.0, device="flex")
    base, view = copy.deepcopy([t, t[2:]])
    view.zero_()
    assert base.tolist() == [0, 1] + [0] * 6 and t.tolist() == list(range(8)), "views of one storage stay so"
    parameter = torch.nn.Parameter(t.clone())
    parameter.grad = torch.ones(8, device="flex")
    twin = copy.deepcopy(parameter)
    assert isinstance(twin, torch.nn.Parameter) and twin.requires_grad and flexcpu.shares_memory(twin, parameter)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).flex()
    before = torch.flex.memory_allocated()
    snapshot = copy.deepcopy(module)
    assert torch.flex.memory_allocated() == before
    for (name, one), other in zip(module.state_dict().items(), snapshot.state_dict().values()):
        assert flexcpu.shares_memory(one, other), name
    with torch.no_grad():
        module[0].weight.zero_()
    assert snapshot[0].weight.abs().sum() > 0
    shallow = copy.copy(t)
    shallow.zero_()
    assert t.sum() == 0 and shallow.untyped_storage()._cdata == t.untyped_storage()._cdata


def test_last_owner_keeps_its_bytes():
    t = torch.arange(1 << 16, device="flex").float()
    gc.collect()
    before = torch.flex.memory_allocated()
    clone = t.clone()
    del t
    gc.collect()
    clone.add_(1)
    assert torch.flex.memory_allocated() == before and clone[5] == 6


def test_threads_share_write_and_escape():
    """Clones stay what they were while their source is written and escapes in other threads."""
    wrong = []

    def clone(source):
        for _ in range(300):
            copied = source.clone()
            first = copied.tolist()
            if first != copied.tolist() or len(set(first)) != 1:
                wrong.append(first)

    for _ in range(5):
        source = torch.zeros(32, device="flex")
        peers = [source.clone() for _ in range(4)]
        pointers = []
        threads = [threading.Thread(target=clone, args=(source,)) for _ in range(2)]
        threads += [threading.Thread(target=lambda: pointers.append(source.data_ptr())) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(set(pointers)) == 1
        assert all(peer.tolist() == [0] * 32 for peer in peers)
    assert not wrong


# ---- Devices mixed ----


def test_meta_to_empty():
    module = torch.nn.Linear(3, 2, device="meta")
    module = module.to_empty(device="flex")
    assert module.weight.is_flex and module.weight.shape == (2, 3)
    module.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    assert module(torch.ones(1, 3, device="flex")).tolist() == [[3, 3]]


def test_cpu_indices_and_scalars_are_taken_as_on_cuda():
    cpu = torch.arange(12.0).view(3, 4)
    t = cpu.flex()
    index, mask = torch.tensor([2, 0]), torch.tensor([True, False, True])
    assert torch.equal(t[index].cpu(), cpu[index]) and torch.equal(t[mask].cpu(), cpu[mask])
    assert torch.equal(t[:, index].cpu(), cpu[:, index])
    t[index] = torch.tensor(7.0)
    cpu[index] = 7
    assert torch.equal(t.cpu(), cpu)
    assert torch.equal((t + torch.tensor(2.0)).cpu(), cpu + 2) and (torch.tensor(2.0) * t).is_flex
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device.*flex:0.*cpu"):
        t + torch.ones(3, 4)
    with pytest.raises(RuntimeError, match="(?i)expected all tensors to be on the same device"):
        torch.mm(t, torch.ones(4, 3))
    with pytest.raises(RuntimeError, match="same device"):
        cpu[torch.tensor([0], device="flex")]


def test_a_tensor_beyond_its_storage_is_refused_and_nothing_is_lost():
    t = torch.ones(100, device="flex")
    slices, stepped = t[50:], t[::2]
    t.untyped_storage().resize_(0)
    uses = [lambda x: x + 1, lambda x: x.cpu(), lambda x: x.sin(), lambda x: x.clone(), lambda x: x.fill_(1),
            lambda x: x.tolist(), lambda x: x.sum(), lambda x: x.copy_(torch.ones_like(x, device="cpu")), str]
    for use in uses:
        for tensor in (t, slices, stepped):
            with pytest.raises(RuntimeError, match="the storage was resized"):
                use(tensor)
    t.untyped_storage().resize_(200)
    assert (t[:50].fill_(2) + 1).tolist() == [3] * 50
    with pytest.raises(RuntimeError, match="needs 400 bytes of its storage, which has 200"):
        t + 1
    t.untyped_storage().resize_(400)
    assert t.fill_(1).sum() == 100
    with pytest.raises(RuntimeError, match="negative number"):
        t.untyped_storage().resize_(-1)
    assert t.sum() == 100


@pytest.mark.parametrize("n", [3, 16, 17, 40])
def test_arguments_are_told_apart_however_many_there_are(n):
    def run(device):
        tensors = [torch.full((2,), float(i), device=device) for i in range(n)]
        tensors += [tensors[0], tensors[-1][:1].expand(2)]
        torch._foreach_add_(tensors[:n:2], 1.0)
        return [torch.stack(tensors), *torch._foreach_exp(tensors), *torch.unbind_copy(torch.stack(tensors))]

    for flex, cpu in zip(run("flex"), run("cpu")):
        assert torch.equal(flex.cpu(), cpu)


def test_seventy_thousand_clones_in_one_op():
    t = torch.ones(4, device="flex")
    clones = [t.clone() for _ in range(70_000)]
    assert torch.stack(clones).sum() == 280_000
    assert state(t)["owners"] == 70_001 and not state(t)["escaped"]
    del clones
    assert state(t)["owners"] == 1


def test_a_cpu_tensor_that_shares_and_writes_again_and_again_keeps_little():
    shared = torch.ones(1000, device="flex").cpu()
    before = torch.flex.memory_allocated()
    for i in range(20):
        flex = shared.to("flex")
        shared[:1].copy_(torch.full((1,), float(i), device="flex"))  # the flex tensor's bytes stay
        assert flex[0] == (1 if i == 0 else i - 1) and shared[0] == i
    del flex
    assert torch.flex.memory_allocated() - before <= 2 * 4000
