"""What the CPU rejects, flex rejects alike; nothing stored is lost or changed."""

import io
import pickle

import pytest
import torch

import flexcpu
from parity import check_error


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.ones(3, device=d)[5],
        lambda d: torch.ones(3, device=d).index_select(0, torch.tensor([7], device=d)),
        lambda d: torch.ones(3, device=d).gather(0, torch.tensor([-1], device=d)),
        lambda d: torch.ones(3, device=d)[torch.tensor([3], device=d)],
        lambda d: torch.nn.functional.embedding(torch.tensor([9], device=d), torch.ones(3, 2, device=d)),
        lambda d: torch.ones(3, device=d).scatter_(0, torch.tensor([4], device=d), 1.0),
        lambda d: torch.nn.functional.nll_loss(torch.ones(2, 3, device=d), torch.tensor([1, 5], device=d)),
        lambda d: torch.ones(3, device=d) + torch.ones(4, device=d),
        lambda d: torch.ones(3, device=d).add_(torch.ones(2, 3, device=d)),
        lambda d: torch.ones(3, dtype=torch.int32, device=d).add_(1.5),
        lambda d: torch.ones(3, dtype=torch.bool, device=d) - torch.ones(3, dtype=torch.bool, device=d),
        lambda d: torch.add(torch.ones(3, dtype=torch.int32, device=d), 1, alpha=1.5),
        lambda d: torch.ones(3, device=d).expand(3, 3).add_(1),
        lambda d: torch.ones(3, device=d).expand(2, 3).copy_(torch.ones(2, 3, device=d)),
        lambda d: (lambda t: torch.add(t[:5], 1, out=t[1:6]))(torch.ones(9, device=d)),
        lambda d: (lambda t: t[:5].add_(t[1:6]))(torch.ones(9, device=d)),
        lambda d: torch.ones(2, 3, device=d).sum(5),
        lambda d: torch.ones(2, 3, device=d).sum((0, 0)),
        lambda d: torch.ones(2, 3, dtype=torch.int32, device=d).mean(),
        lambda d: torch.ones(2, 3, device=d).mean(dtype=torch.int32),
        lambda d: torch.ones(2, 3, device=d).view(5),
        lambda d: torch.ones(2, 3, device=d).t().view(6),
        lambda d: torch.ones(4, device=d).as_strided((2,), (-1,)),
        lambda d: torch.ones(4, device=d).as_strided((9,), (1,)),
        lambda d: torch.ones(4, device=d).resize_(-1),
        lambda d: torch.empty(-3, device=d),
        lambda d: torch.empty(2**62, 4, device=d),
        lambda d: torch.empty_strided((2,), (2**62,), device=d),
        lambda d: torch.ones(3, device=d).view(torch.float64),
        lambda d: torch.ones(3, device=d).fill_(torch.ones(2, device=d)),
        lambda d: torch.ones(3, device=d).item(),
        lambda d: torch.ones(3, 3, device=d).copy_(torch.ones(2, device=d)),
        lambda d: torch.ones(3, device=d).copy_("x"),
        lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(2, 3, device=d)),
        lambda d: torch.nn.functional.conv2d(torch.ones(1, 2, 3, 3, device=d), torch.ones(1, 3, 2, 2, device=d)),
        lambda d: torch.linalg.cholesky(-torch.eye(3, device=d)),
        lambda d: torch.ones(3, device=d).div(0, rounding_mode="up"),
        lambda d: torch.ones(3, dtype=torch.int64, device=d) // torch.zeros(3, dtype=torch.int64, device=d),
        lambda d: torch.ones(3, device=d).set_(torch.ones(2, dtype=torch.float64, device=d)),
        lambda d: torch.ones(2, device=d, requires_grad=True).add_(1),
        lambda d: torch.multinomial(torch.zeros(3, device=d), 1),
        lambda d: torch.ones(3, device=d).bernoulli_(2.0),
        lambda d: torch.cat([torch.ones(2, 2, device=d), torch.ones(3, 3, device=d)]),
    ],
)
def test_same_error_as_on_the_cpu(make):
    check_error(make)


def test_an_error_midway_leaves_arguments_as_they_were():
    x = torch.arange(6.0, device="flex")
    peer = x.clone()
    for attempt in (
        lambda: x.scatter_(0, torch.tensor([0, 99], device="flex"), 5.0),
        lambda: x.index_copy_(0, torch.tensor([99], device="flex"), torch.ones(1, device="flex")),
        lambda: x.add_(torch.ones(7, device="flex")),
        lambda: x.resize_(2**61),
        lambda: x.copy_(torch.ones(5)),
    ):
        with pytest.raises((RuntimeError, IndexError)):
            attempt()
    assert peer.tolist() == list(range(6)) and x.shape == (6,)


def test_wrong_device_index():
    with pytest.raises(RuntimeError, match="flex"):
        torch.ones(1, device="flex:3")
    assert torch.ones(1, device="flex:0").device == torch.device("flex", 0)


def test_use_after_fork(python):
    done = python("""
        import os, torch
        x = torch.arange(1000.0, device="flex"); peer = x.clone(); (x * 2).sum()
        pid = os.fork()
        if pid == 0:
            w = torch.ones(3, device="flex", requires_grad=True)
            (w * 2).sum().backward()
            x.add_(1)
            ok = w.grad.tolist() == [2, 2, 2] and peer.sum().item() == 499500 and x.sum().item() == 500500
            os._exit(0 if ok else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert x.sum().item() == 499500
    """)
    assert done.returncode == 0


def test_fork_while_threads_share(python):
    python("""
        import os, threading, torch
        x = torch.arange(1000.0, device="flex"); stop = False
        def work():
            while not stop:
                y = x.clone(); y.add_(1); y.data_ptr()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads: t.start()
        for _ in range(30):
            pid = os.fork()
            if pid == 0:
                y = x.clone(); y.mul_(2)
                os._exit(0 if y.sum().item() == 999000 else 1)
            assert os.waitpid(pid, 0)[1] == 0
        stop = True
        for t in threads: t.join()
    """)


def test_truncated_and_closed_files_lose_nothing(tmp_path):
    x = torch.arange(5000.0, device="flex")
    path = tmp_path / "x.pt"
    torch.save(x, path)
    data = path.read_bytes()
    for cut in (0, 10, len(data) // 2, len(data) - 30):
        (tmp_path / "cut.pt").write_bytes(data[:cut])
        with pytest.raises((RuntimeError, EOFError, pickle.UnpicklingError, OSError)):
            torch.load(tmp_path / "cut.pt")
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(ValueError):
        torch.save(x, closed)
    assert x.sum().item() == sum(range(5000)) and torch.equal(torch.load(path), x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, requires_grad=True),
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
        lambda: torch._efficientzerotensor((3,)),
        lambda: torch.ones(2, device="meta"),
        lambda: torch.ones(2, device="flex"),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_tensors_whose_bytes_cannot_be_shared(make):
    with pytest.raises(ValueError, match="CPU tensor|requires grad|plain strided tensor"):
        flexcpu.from_cpu(make(), copy=False)


@pytest.mark.parametrize(
    "call",
    [
        lambda: flexcpu.asarray(3),
        lambda: flexcpu.from_cpu("x"),
        lambda: flexcpu.from_cpu(torch.ones(1, device="flex"), copy=False),
        lambda: flexcpu.shares_memory(1, 2),
        lambda: torch.flex.set_device(4),
        lambda: torch.flex.manual_seed("x"),
        lambda: torch.Generator("flex:7"),
        lambda: torch.ones(2, device="flex").numpy(),
        lambda: torch.ones(2, device="flex", pin_memory=True),
    ],
)
def test_bad_arguments_raise(call):
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        call()
    assert str(caught.value)


@pytest.mark.parametrize("variable, value", [("FLEXCPU_SIMD", "avx9"), ("FLEXCPU_FALLBACK", "loud")])
def test_bad_environment_is_named(python, variable, value):
    done = python("import flexcpu", check=False, **{variable: value})
    assert done.returncode != 0 and variable in done.stderr and value in done.stderr


def test_unsupported_corners_say_so():
    x = torch.ones(2, 2, device="flex")
    with pytest.raises((NotImplementedError, RuntimeError), match="(?i)mkldnn"):
        x.to_mkldnn()
