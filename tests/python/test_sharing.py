"""Copies that share bytes until the first write, and who may not share."""

import copy
import ctypes
import resource
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from flexcpu import _C, asarray, from_cpu, shares_memory

LARGE = 64 * 1024 * 1024  # elements: 256 MB of float32


def state(tensor):
    return _C.buffer_state(tensor.untyped_storage())


def make(n=1000):
    return torch.arange(n, dtype=torch.float32).to("flex")


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


COPIES = {
    "clone": lambda t: t.clone(),
    "deepcopy": copy.deepcopy,
    "cpu": lambda t: t.cpu(),
    "to_cpu": lambda t: t.to("cpu"),
    "storage_clone": lambda t: torch.empty(0, device="flex").set_(t.untyped_storage().clone(), 0, t.shape, t.stride()),
    "contiguous_clone": lambda t: t.clone(memory_format=torch.contiguous_format),
}
SHARING = [name for name in COPIES if name != "storage_clone"]


@pytest.mark.parametrize("name", SHARING)
def test_a_copy_shares(name):
    source = make()
    result = COPIES[name](source)
    assert shares_memory(source, result)
    assert result.data_ptr() != 0 and result.stride() == source.stride()


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("writer", ["source", "copy"])
def test_a_write_reaches_one_side_only(name, writer):
    source = make()
    result = COPIES[name](source)
    before = list(range(1000))
    written, kept = (source, result) if writer == "source" else (result, source)
    written.add_(1)
    assert written.cpu().tolist() == [v + 1 for v in before]
    assert kept.cpu().tolist() == before
    assert not shares_memory(source, result)


@pytest.mark.parametrize(
    "op",
    [
        lambda t: t.fill_(7),
        lambda t: t.zero_(),
        lambda t: t.sin_(),
        lambda t: torch.sort(t, out=(t, t.long())),
        lambda t: t[3:5].mul_(2),
        lambda t: t.view(10, 100).t().add_(1),
        lambda t: t.index_fill_(0, torch.tensor([1], device="flex"), 9.0),
        lambda t: torch.add(t, 1, out=t),
        lambda t: t.copy_(torch.ones(1000)),
        lambda t: t.uniform_(),
        lambda t: t.view(torch.int32).add_(1),
        lambda t: t.resize_(2000).fill_(1),
        lambda t: torch._foreach_add_([t], 1),
        lambda t: t.set_(torch.zeros(3, device="flex")),
        lambda t: t.untyped_storage().fill_(1),
        lambda t: t.__setitem__(0, 5),
        lambda t: t.masked_fill_(t > 10, 0),
        lambda t: t.untyped_storage().resize_(0),
    ],
)
def test_every_kind_of_write_leaves_peers_alone(op):
    tensor = make()
    peers = [tensor.clone(), tensor.cpu(), tensor.view(10, 100).clone()]
    op(tensor)
    for peer in peers:
        assert torch.equal(peer.cpu().flatten(), torch.arange(1000.0))


def test_only_a_writer_with_peers_copies():
    source = make()
    _C.reset_accumulated_memory_stats()
    unshares = _C.sharing_statistics()["num_unshares"]
    peer = source.clone()
    address = _C.alias_on_cpu(make()).data_ptr()  # an unrelated escape counts for nothing
    assert address and _C.sharing_statistics()["num_unshares"] == unshares
    peer.add_(1)
    assert _C.sharing_statistics()["num_unshares"] == unshares + 1
    peer.add_(1)
    source.add_(1)  # the last owner writes in place
    assert _C.sharing_statistics()["num_unshares"] == unshares + 1


def test_the_last_owner_steals_the_bytes():
    source = make()
    peer = source.clone()
    del source
    assert state(peer)["owners"] == 1
    unshares = _C.sharing_statistics()["num_unshares"]
    peer.add_(1)
    assert _C.sharing_statistics()["num_unshares"] == unshares
    assert peer.sum().item() == sum(range(1, 1001))


def test_a_small_clone_does_not_keep_a_large_storage():
    base = make()
    assert not shares_memory(base, base[:499].clone())
    assert shares_memory(base, base[:500].clone())
    assert base[:499].clone().untyped_storage().nbytes() == 499 * 4


def test_a_clone_of_a_slice_is_as_a_copy():
    base, cpu = make(), torch.arange(1000.0)
    for part in (slice(0, 500), slice(16, 900), slice(496, 1000), slice(3, 900)):
        clone, copied = base[part].clone(), cpu[part].clone()
        assert clone.storage_offset() == 0 and clone.untyped_storage().nbytes() == copied.untyped_storage().nbytes()
        assert torch.equal(clone.cpu(), copied)
        clone.mul_(2)
        assert torch.equal(clone.cpu(), copied * 2)
    assert torch.equal(base.cpu(), cpu)
    part = base[16:900].clone()
    assert shares_memory(base, part) and not shares_memory(part, part[:400].clone())
    part.untyped_storage().resize_(8000)
    part.data_ptr()
    base.zero_()
    assert part.sum() == cpu[16:900].sum()


def test_a_view_of_a_clone_of_a_view():
    base = make().view(10, 100)
    peer = base.t().clone()
    assert peer.stride() == (1, 100) and shares_memory(base, peer)
    peer[5].view(2, 5)[1].zero_()
    expected = torch.arange(1000.0).view(10, 100).t().clone()
    expected[5, 5:] = 0
    assert torch.equal(peer.cpu(), expected)
    assert torch.equal(base.cpu().flatten(), torch.arange(1000.0))


def test_strides_of_size_one_are_those_of_a_copy():
    for shape, stride in [((2, 1), (1, 7)), ((1, 3), (9, 1)), ((1, 1), (5, 3))]:
        cpu = torch.zeros(30).as_strided(shape, stride)
        flex = torch.zeros(30, device="flex").as_strided(shape, stride)
        for fmt in (torch.preserve_format, torch.contiguous_format):
            assert flex.clone(memory_format=fmt).stride() == cpu.clone(memory_format=fmt).stride()


# ---- Escapes ----

ESCAPES = {
    "data_ptr": lambda t: t.data_ptr(),
    "storage_data_ptr": lambda t: t.untyped_storage().data_ptr(),
    "asarray": asarray,
}


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escaped_tensor_shares_no_more(name):
    tensor = make()
    held = ESCAPES[name](tensor)
    assert held is not None and state(tensor)["escaped"]
    peer = tensor.clone()
    assert not shares_memory(tensor, peer)
    assert torch.equal(peer.cpu(), torch.arange(1000.0))
    assert not state(peer)["escaped"]


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_of_a_shared_tensor_leaves_peers_alone(name):
    tensor = make()
    peer = tensor.clone()
    ESCAPES[name](tensor)
    address = tensor.data_ptr()
    ctypes.memset(address, 0, 4000)
    assert tensor.cpu().sum() == 0
    assert torch.equal(peer.cpu(), torch.arange(1000.0))


def test_writes_through_a_pointer_taken_before_are_seen_by_the_tensor_alone():
    tensor = make()
    array = asarray(tensor)
    peer = tensor.clone()
    array[:] = -1
    assert (tensor == -1).all() and torch.equal(peer.cpu(), torch.arange(1000.0))
    tensor.fill_(3)
    assert (array == 3).all()


def test_const_pointers_are_good_while_a_private_clone_is_held():
    tensor = make()
    held = tensor.clone()
    address = held.const_data_ptr()
    assert address == tensor.const_data_ptr()
    tensor.add_(1)
    del tensor
    make().zero_()
    assert (ctypes.c_float * 1000).from_address(address)[:3] == [0, 1, 2]


def test_what_moves_a_storage():
    tensor, source = make(), make()
    for move in (lambda t: t.copy_(source), lambda t: t.add_(1), lambda t: t.resize_(2000)):
        before = tensor.const_data_ptr()
        move(tensor)
        assert tensor.const_data_ptr() != before
    address = tensor.data_ptr()
    for stay in (lambda t: t.copy_(make(2000)), lambda t: t.clone(), lambda t: t.add_(1)):
        stay(tensor)
        assert tensor.const_data_ptr() == tensor.data_ptr() == address


def test_const_access_does_not_escape():
    tensor = make()
    peer = tensor.clone()
    repr(tensor), tensor.tolist(), tensor[0].item(), tensor.const_data_ptr()
    assert shares_memory(tensor, peer) and not state(tensor)["escaped"]


def test_from_cpu_without_a_copy():
    cpu = torch.arange(10.0)
    flex = from_cpu(cpu, copy=False)
    cpu[0] = 100
    assert flex[0].item() == 100
    flex[1] = 200
    assert cpu[1] == 200
    peer = flex.clone()
    cpu[2] = 300
    assert peer[2].item() == 2
    cpu.resize_(100_000).zero_()  # moves the CPU side; the flex side keeps its bytes
    assert flex[0].item() == 100


def test_from_cpu_of_a_cpu_copy_shares_until_somebody_writes():
    tensor = make()
    cpu = tensor.cpu()
    flex = from_cpu(cpu, copy=False)
    assert shares_memory(tensor, flex) and shares_memory(cpu, flex)
    cpu[0] = 100
    flex[1] = 200
    assert flex[:2].tolist() == [0, 200] and cpu[:2].tolist() == [100, 1] and tensor[:2].tolist() == [0, 1]
    alias = from_cpu(cpu, copy=False)  # of bytes that a CPU kernel has a pointer to
    cpu[2] = 300
    alias[3] = 400
    assert alias[2] == 300 and cpu[3] == 400 and tensor[2:4].tolist() == [2, 3]


def test_tensors_without_bytes_share_none():
    assert not shares_memory(torch.ones(3, device="meta"), torch.ones(3, device="meta"))


def test_a_cpu_copy_goes_back_without_a_copy():
    tensor = make()
    back = tensor.cpu().to("flex")
    assert shares_memory(tensor, back)
    back.add_(1)
    assert torch.equal(tensor.cpu(), torch.arange(1000.0))


def test_whole_storage_copy_shares_and_views_follow():
    source, target = make(), torch.zeros(1000, device="flex")
    view = target[10:20]
    target.copy_(source)
    assert shares_memory(source, target)
    assert view.tolist() == list(range(10, 20))
    target.add_(1)
    assert torch.equal(source.cpu(), torch.arange(1000.0))
    held = target.data_ptr()
    target.copy_(source)  # escaped: bytes stay where they are
    assert held == target.data_ptr() and not shares_memory(source, target)
    assert torch.equal(target.cpu(), torch.arange(1000.0))


def test_cpu_tensors_that_share_keep_their_own_resize():
    tensor = make()
    cpu = tensor.cpu()
    cpu.resize_(5000).fill_(1)
    assert torch.equal(tensor.cpu(), torch.arange(1000.0))
    cpu2 = tensor.cpu()
    cpu2.numpy()[:] = 5
    assert torch.equal(tensor.cpu(), torch.arange(1000.0))


def test_storage_resize_to_nothing_and_back():
    tensor = make()
    peer = tensor.clone()
    storage = tensor.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(4000)
    tensor.copy_(peer)
    tensor.mul_(2)
    assert torch.equal(tensor.cpu(), 2 * torch.arange(1000.0))
    assert torch.equal(peer.cpu(), torch.arange(1000.0))


def test_growing_a_shared_tensor_keeps_its_prefix():
    tensor = make()
    peer = tensor.clone()
    tensor.resize_(3000)
    assert torch.equal(tensor[:1000].cpu(), torch.arange(1000.0))
    tensor.add_(1)
    assert torch.equal(peer.cpu(), torch.arange(1000.0))
    assert peer.shape == (1000,)


def test_a_schema_that_lies_about_mutation_is_caught():
    norm = torch.nn.BatchNorm1d(4).to("flex").train()
    peers = [norm.running_mean.clone(), norm.running_var.clone()]
    norm(torch.randn(8, 4, device="flex"))
    assert peers[0].eq(0).all() and peers[1].eq(1).all()
    assert not norm.running_mean.eq(0).all()


# ---- Threads ----


def in_threads(*bodies):
    with ThreadPoolExecutor(len(bodies)) as pool:
        for done in [pool.submit(body) for body in bodies]:
            done.result()


def test_two_threads_that_take_one_tensors_pointer_get_the_same_bytes():
    for _ in range(200):
        tensor = make(100_000)
        peer = tensor.clone()
        pointers = []
        barrier = threading.Barrier(2)

        def take():
            barrier.wait()
            pointers.append(tensor.data_ptr())

        in_threads(take, take)
        assert pointers[0] == pointers[1] == tensor.data_ptr()
        assert not shares_memory(tensor, peer)


def test_a_thread_escapes_while_another_clones_and_writes():
    expected = torch.arange(10_000.0)
    for _ in range(200):
        tensor = make(10_000)
        clones = []
        barrier = threading.Barrier(3)

        def escape():
            barrier.wait()
            tensor.data_ptr()

        def clone():
            barrier.wait()
            for _ in range(5):
                clones.append(tensor.clone())
                clones[-1].cpu()

        def write():
            barrier.wait()
            for _ in range(5):
                own = tensor.clone()
                own.add_(1)
                assert torch.equal(own.cpu(), expected + 1)

        in_threads(escape, clone, write)
        assert all(torch.equal(c.cpu(), expected) for c in clones)
        assert torch.equal(tensor.cpu(), expected)


def test_threads_share_write_and_free_one_tensor():
    tensor = make(10_000)
    expected = torch.arange(10_000.0)

    def work():
        for i in range(300):
            own = tensor.clone()
            own[i % 10_000] = -1
            other = own.cpu()
            own.zero_()
            assert other[i % 10_000] == -1
            assert torch.equal(tensor.cpu(), expected)

    in_threads(*[work] * 4)


# ---- Cost ----


@pytest.mark.parametrize("made_by", ["ones", "fallback"])
@pytest.mark.parametrize("name", ["clone", "cpu", "deepcopy"])
def test_copies_fault_no_pages_however_large(made_by, name):
    def count(n):
        tensor = torch.ones(n, device="flex")
        if made_by == "fallback":
            with torch.no_grad():
                tensor = torch.sin(tensor)
        COPIES[name](tensor)  # first-use costs
        before = faults()
        result = COPIES[name](tensor)
        after = faults()
        assert result.shape == (n,)
        return after - before

    assert count(LARGE) <= count(1024) + 8


def test_a_fallback_op_needs_memory_for_its_output_only():
    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()

    tensor = torch.ones(LARGE, device="flex")
    torch.sin(tensor[:16])
    before = resident()
    result = torch.sin(tensor)
    grown = resident() - before
    assert result.numel() == LARGE and grown < 4 * LARGE + 16 * 1024 * 1024


def test_bytes_that_a_cpu_tensor_shared_stay_while_another_thread_reads_them():
    n = 4_000_000
    for _ in range(10):
        tensor = torch.ones(n, device="flex")
        cpu = tensor.cpu()
        address = _C.address(cpu.untyped_storage())
        cpu.data_ptr()  # moves the CPU tensor; a kernel of another thread may be reading the bytes that it leaves
        assert _C.address(cpu.untyped_storage()) != address
        tensor.fill_(7)
        assert (ctypes.c_float * n).from_address(address)[:: n // 8] == [1.0] * 8
        del tensor
        assert (ctypes.c_float * n).from_address(address)[:: n // 8] == [1.0] * 8


def test_a_copy_to_another_device_index():
    tensor = make()
    with pytest.raises(RuntimeError, match="one device"):
        tensor.to("flex:1")
    assert tensor.to("cpu:0").device == torch.ones(1).to("cpu:0").device


@pytest.mark.parametrize("refresh", ["whole", "converted"])
def test_a_cpu_tensor_may_be_refreshed_while_another_thread_reads_it(refresh):
    n, dtype = 1 << 20, torch.float64 if refresh == "converted" else torch.float32
    c = torch.ones(n, device="flex").cpu()
    limit, wrong, stop = torch.flex.cache_limit(), [], []
    torch.flex.set_cache_limit(0)  # what is freed is gone

    def read():
        while not stop:
            if c.min().item() != 1 or c.max().item() != 1:
                wrong.append(1)

    def write():
        try:
            for _ in range(60):
                kept = c.to("flex")
                c.copy_(torch.ones(n, device="flex", dtype=dtype))
                torch.full((n,), -7.0, device="flex")
                assert kept[0] == 1
        finally:
            stop.append(1)

    try:
        in_threads(read, write)
    finally:
        torch.flex.set_cache_limit(limit)
    assert not wrong


def test_a_clone_of_what_is_being_written_stays_as_it_was_made():
    t, stop, changed = torch.zeros(1 << 22, device="flex"), [], []

    def write():
        value = 0
        while not stop:
            value += 1
            t.fill_(value)

    def clone():
        try:
            for _ in range(40):
                copied = t.clone()
                if copied.sum() != copied.sum():
                    changed.append(1)
        finally:
            stop.append(1)

    in_threads(write, clone)
    assert not changed
