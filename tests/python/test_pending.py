"""Rearranged copies that are put off: what is, what reads them in place, and that nobody sees a difference.

Every op on pending operands is compared with the CPU by the conformance check "pending".
"""

import copy
import io
import threading

import pytest
import torch

import flexcpu
from flexcpu import _C

SHAPE = (4, 64, 16, 32)  # 512 KiB of float32
REARRANGEMENTS = {
    "flip": lambda t: t.flip(0, 2),
    "flip all": lambda t: t.flip(0, 1, 2, 3),
    "fliplr": lambda t: t.fliplr(),
    "flipud": lambda t: t.flipud(),
    "rot90": lambda t: t.rot90(1, (1, 3)),
    "rot180": lambda t: t.rot90(2, (1, 3)),
    "transposed": lambda t: t.transpose(1, 2).contiguous(),
    "merged heads": lambda t: t.transpose(1, 2).reshape(64, 64, 32),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "expanded": lambda t: t[:1].expand(SHAPE).reshape(64 * 4, -1),
    "flipped channels last": lambda t: t.contiguous(memory_format=torch.channels_last).flip(2),
    "a part of a flip": lambda t: t.flip(1)[1:3, ::2, 3:],
}
READERS = {
    "add": lambda t: t + 1,
    "add to itself": lambda t: t + t,
    "broadcast": lambda t: t * t[:1],
    "sum": lambda t: t.sum(),
    "sum of rows": lambda t: t.sum(-1),
    "sum of a middle dimension": lambda t: t.sum(1, keepdim=True),
    "mean": lambda t: t.mean(0),
    "cast": lambda t: t.to(torch.float64),
    "copy_": lambda t: torch.empty_like(t).copy_(t),
    "out": lambda t: torch.add(t, 1, out=torch.empty_like(t)),
    "stepped view": lambda t: t[..., ::3] - 1,
    "flattened view": lambda t: t.reshape(-1)[7:900:3] + 1,
    "bits": lambda t: t.reshape(-1).view(torch.int32).sum(),
    "fallback": lambda t: t.sin(),
    "clone": lambda t: t.clone(),
    "twice": lambda t: (t + 1) * t,
    "in place": lambda t: t.clone().mul_(2),
}


def is_pending(t):
    return _C.is_pending(t.untyped_storage())


def source(device, shape=SHAPE):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(device)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("rearrangement", REARRANGEMENTS)
def test_a_pending_copy_is_as_a_copy(rearrangement, reader):
    ours, theirs = (REARRANGEMENTS[rearrangement](source(device)) for device in ("flex", "cpu"))
    assert is_pending(ours) and ours.stride() == theirs.stride()
    result, expected = READERS[reader](ours), READERS[reader](theirs)
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0)


def test_the_first_reader_reads_in_place_and_the_second_makes_the_copy():
    for read in (lambda t: t + 1, lambda t: t.sum(1), lambda t: t.to(torch.float64)):
        f = source("flex").flip(1)
        read(f)
        assert is_pending(f)
        read(f)
        assert not is_pending(f)


def test_two_flips_cancel():
    x = source("flex")
    assert flexcpu.shares_memory(x.flip(1).flip(1), x)
    assert flexcpu.shares_memory(x.flip(0).flip(0, 1).flip(1), x)
    assert flexcpu.shares_memory(x.transpose(1, 2).contiguous().transpose(1, 2).contiguous(), x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.bfloat16, torch.float64, torch.complex128])
def test_elements_of_every_size(dtype):
    x = torch.arange(1 << 16).reshape(256, 256).to(dtype)
    for rearrange, least in ((lambda t: t.flip(1), 32 << 10), (lambda t: t.t().contiguous(), 256 << 10)):
        f = rearrange(x.flex())
        assert is_pending(f) == (x.nbytes >= least)
        assert torch.equal(f.cpu(), rearrange(x))


def test_small_and_escaped_tensors_are_copied_at_once():
    assert not is_pending(torch.ones(100, device="flex").flip(0))
    x = source("flex")
    x.data_ptr()
    assert not is_pending(x.flip(0)) and not is_pending(x.transpose(0, 1).contiguous())


def test_a_small_copy_does_not_keep_a_large_storage():
    x = torch.ones(1 << 20, device="flex")
    assert not is_pending(x[: 1 << 16].flip(0))
    assert is_pending(x[: 3 << 18].flip(0))


def test_writes_reach_one_side_only():
    x, y = source("flex"), source("cpu")
    f, g = x.flip(1), y.flip(1)
    x.add_(1), y.add_(1)
    assert torch.equal(f.cpu(), g) and torch.equal(x.cpu(), y)
    f, g = x.flip(1), y.flip(1)
    f[0].mul_(2), g[0].mul_(2)
    assert torch.equal(f.cpu(), g) and torch.equal(x.cpu(), y)
    f = x.flip(1)
    f.fill_(3)
    assert f.sum() == 3 * f.numel() and torch.equal(x.cpu(), y)
    f = x.flip(1)
    f.copy_(x)
    assert flexcpu.shares_memory(f, x)


def test_a_source_that_is_gone_or_resized():
    x, y = source("flex"), source("cpu")
    f = x.flip(2)
    x.untyped_storage().resize_(0)
    assert torch.equal(f.cpu(), y.flip(2))
    f = source("flex").flip(2)
    assert torch.equal((f + 0).cpu(), y.flip(2))
    f = source("flex").flip(2)
    f.untyped_storage().resize_(2 * f.untyped_storage().nbytes())
    assert torch.equal(f.cpu(), y.flip(2))


def test_what_leaves_the_device_is_the_copy():
    f, g = source("flex").flip(3), source("cpu").flip(3)
    buffer = io.BytesIO()
    torch.save(f, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer).cpu(), g)
    for leave in (lambda t: t.cpu(), copy.deepcopy, flexcpu.asarray, lambda t: torch.from_dlpack(t), lambda t: t.tolist()):
        left = leave(source("flex").flip(3))
        assert torch.equal(torch.as_tensor(left, device="cpu"), g)
    assert source("flex").flip(3).data_ptr() != 0


def test_autograd_and_views():
    def gradient(device):
        x = source(device).requires_grad_()
        y = x.flip(1).transpose(1, 2).contiguous().view(64, 64, 32)
        (y * y.flip(0)).sum().backward()
        return x.grad.cpu()

    torch.testing.assert_close(gradient("flex"), gradient("cpu"))
    mapped = torch.vmap(lambda t: t.flip(0).sum(-1))(source("flex"))
    torch.testing.assert_close(mapped.cpu(), torch.vmap(lambda t: t.flip(0).sum(-1))(source("cpu")))


def test_threads_read_one_pending_tensor():
    expected = source("cpu").flip(1)
    for _ in range(20):
        f, wrong = source("flex").flip(1), []

        def read(f=f, wrong=wrong):
            if not torch.equal((f + 0).cpu(), expected) or not torch.equal(f.cpu(), expected):
                wrong.append(1)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_a_child_reads_what_was_pending(python):
    code = """
import os, torch
f = torch.arange(1 << 18, dtype=torch.float32, device="flex").flip(0)
pid = os.fork()
if pid == 0:
    torch.set_num_threads(1)
    os._exit(0 if f[0].item() == (1 << 18) - 1 and bool((f[1:] < f[:-1]).all()) else 1)
print(os.waitpid(pid, 0)[1], f[-1].item())
"""
    assert python(code).stdout.strip() == "0 0.0"


def test_the_environment_turns_it_off(python):
    code = """
import torch
from flexcpu import _C
f = torch.ones(1 << 20, device="flex").flip(0)
print(_C.is_pending(f.untyped_storage()))
"""
    assert python(code, FLEXCPU_PENDING="off").stdout.strip() == "False"
    assert python(code, FLEXCPU_PENDING="on").stdout.strip() == "True"


def test_statistics():
    before = torch.flex.memory_stats()
    f = source("flex").flip(0)
    f + 1
    after = torch.flex.memory_stats()
    assert after["num_deferred"] - before["num_deferred"] == 1 and after["num_settled"] == before["num_settled"]
    f + 1
    assert torch.flex.memory_stats()["num_settled"] - before["num_settled"] == 1
