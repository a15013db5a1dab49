"""Backward runs on the thread that calls it: no engine thread exists, and forked children can compute gradients."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.checkpoint import checkpoint


def on_fresh_thread(function):
    """The result of a call on a Python thread that never ran an op."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def native_threads():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


class Recorder(torch.autograd.Function):
    """Identity that notes which thread its backward runs on."""

    seen: list[int] = []

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        Recorder.seen.append(threading.get_ident())
        return grad


def graph():
    x = torch.arange(3.0, device="flex", requires_grad=True)
    return x, Recorder.apply(x * x) * 2


CALLS = {
    "backward": lambda x, y: y.sum().backward(),
    "explicit gradient": lambda x, y: y.backward(torch.ones(3, device="flex")),
    "grad": lambda x, y: x.__setattr__("grad", torch.autograd.grad(y, x, torch.ones(3, device="flex"))[0]),
    "autograd.backward": lambda x, y: torch.autograd.backward([y], [torch.ones(3, device="flex")]),
    "create_graph": lambda x, y: y.sum().backward(create_graph=True),
}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore:Using backward")
def test_runs_on_the_caller(call, fresh):
    Recorder.seen.clear()
    x, y = graph()
    identity = []

    def run():
        identity.append(threading.get_ident())
        CALLS[call](x, y)

    on_fresh_thread(run) if fresh else run()
    assert Recorder.seen == identity
    assert x.grad.tolist() == [0, 4, 8]


def test_a_gradient_made_elsewhere_on_a_thread_that_ran_no_op():
    x, y = graph()
    gradient = torch.ones(3, device="flex")
    on_fresh_thread(lambda: y.backward(gradient))
    assert x.grad.tolist() == [0, 4, 8]


def test_inference_mode_before():
    def train():
        with torch.inference_mode():
            torch.ones(2, device="flex") + 1
        with torch.autograd.set_multithreading_enabled(True):
            x, y = graph()
            y.sum().backward()
        return x.grad.tolist()

    assert on_fresh_thread(train) == train() == [0, 4, 8]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant):
    def run():
        x = torch.arange(3.0, device="flex", requires_grad=True)
        checkpoint(lambda t: (t * t).relu(), x, use_reentrant=reentrant).sum().backward()
        return x.grad.tolist()

    assert on_fresh_thread(run) == run() == [0, 2, 4]


def test_deeply_nested_checkpoints():
    """Beyond a depth of 60 the engine carries on in another thread."""

    def nest(depth, t):
        return t + 1 if depth == 0 else checkpoint(nest, depth - 1, t * 1, use_reentrant=True)

    x = torch.ones(2, device="flex", requires_grad=True)
    nest(80, x).sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_hooks_and_saved_tensor_hooks():
    Recorder.seen.clear()
    x = torch.arange(3.0, device="flex", requires_grad=True)
    seen = []
    x.register_hook(lambda grad: seen.append(threading.get_ident()) or grad * 2)
    x.register_post_accumulate_grad_hook(lambda p: seen.append(threading.get_ident()))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.flex()):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [0, 4, 8] and seen == [threading.get_ident()] * 2
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    assert torch.autograd.grad(y, x)[0].tolist() == [0, 4, 8]


def test_functional():
    def run():
        x = torch.arange(3.0, device="flex")
        assert torch.func.grad(lambda t: (t * t).sum())(x).tolist() == [0, 2, 4]
        assert torch.func.jacrev(torch.sin)(x).shape == (3, 3)
        assert torch.func.vmap(torch.func.grad(lambda t: t * t))(x).tolist() == [0, 2, 4]
        value, tangent = torch.func.jvp(lambda t: t * t, (x,), (torch.ones_like(x),))
        return tangent.tolist()

    assert on_fresh_thread(run) == run() == [0, 2, 4]


def test_double_backward_and_hessian_vector_products():
    def run():
        x = torch.arange(3.0, device="flex", requires_grad=True)
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return second.tolist()

    assert on_fresh_thread(run) == run() == [0, 6, 12]


def test_cpu_and_flex_in_one_graph():
    def run():
        w = torch.ones(3, requires_grad=True)
        y = (w.to("flex") * 2).cpu().sum() + (w * 3).sum()
        y.backward()
        return w.grad.tolist()

    assert on_fresh_thread(run) == run() == [5, 5, 5]


def test_many_threads_at_once():
    shared = torch.nn.Linear(4, 4).flex()
    gradients = []

    def run():
        for _ in range(20):
            x = torch.ones(2, 4, device="flex", requires_grad=True)
            gradients.append(torch.autograd.grad(shared(x).sum(), x)[0].tolist())

    threads = [threading.Thread(target=run) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(gradients) == 80 and all(gradient == gradients[0] for gradient in gradients)


def test_no_engine_thread_is_made():
    torch.ones(2, device="flex", requires_grad=True).sum().backward()
    before = native_threads()
    x, y = graph()
    y.sum().backward()
    assert native_threads() == before


FORKED = """
import os, torch, flexcpu
torch.set_num_threads(1)

def train(device):
    module = torch.nn.Linear(4, 4).to(device)
    module(torch.ones(8, 4, device=device)).square().sum().backward()
    return module.weight.grad.abs().sum().item() > 0

for device in {before}:
    assert train(device)
if os.fork() == 0:
    code = 1
    try:
        if all(train(device) for device in {after}):
            code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
for device in ("cpu", "flex"):
    assert train(device)
print("trained", len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("before", [(), ("cpu",), ("flex",)])
@pytest.mark.parametrize("after", [("cpu",), ("flex",), ("flex", "cpu")])
def test_backward_in_a_forked_child(python, before, after):
    done = python(FORKED.format(before=before, after=after))
    assert done.stdout == "trained 1\n", "and one thread, with one thread for OpenMP"
