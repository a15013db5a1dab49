"""Processes: share_memory_(), queues by fork and spawn, both sharing strategies, forked children that compute."""

import gc
import os
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing as mp

from flexcpu import _C


@pytest.fixture(params=["file_descriptor", "file_system"])
def strategy(request):
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(request.param)
    yield request.param
    mp.set_sharing_strategy(before)


# ---- share_memory_ ----


def test_share_memory(strategy):
    t = torch.arange(6.0, device="flex")
    view, clone = t[2:], t.clone()
    assert not t.is_shared()
    assert t.share_memory_() is t and t.is_shared() and view.is_shared() and not clone.is_shared()
    view[0] = 9
    assert t.tolist() == [0, 1, 9, 3, 4, 5] and clone.tolist() == [0, 1, 2, 3, 4, 5]
    state = _C.buffer_state(t.untyped_storage())
    assert state["pinned_down"]
    later = t.clone()
    t.add_(1)
    assert later.tolist() == [0, 1, 9, 3, 4, 5]
    assert t.share_memory_().tolist() == [1, 2, 10, 4, 5, 6]
    t.copy_(clone)
    assert t.is_shared() and t.tolist() == clone.tolist() and view.tolist() == [2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="not resizable"):
        t.resize_(1000)
    assert t.untyped_storage().share_memory_().is_shared()


def test_share_memory_is_released(strategy):
    gc.collect()  # what other tests left
    before = torch.flex.memory_allocated()
    t = torch.ones(1 << 20, device="flex").share_memory_()
    assert torch.flex.memory_allocated() - before == 4 << 20
    del t
    gc.collect()
    assert torch.flex.memory_allocated() == before


def test_modules_share(strategy):
    module = torch.nn.Linear(3, 3).flex()
    weight = module.weight
    assert module.share_memory() is module and module.weight is weight
    assert weight.is_shared() and module.bias.is_shared()
    module(torch.ones(1, 3, device="flex")).sum().backward()
    assert weight.grad is not None


def test_empty_tensors_share():
    t = torch.empty(0, device="flex").share_memory_()
    assert t.shape == (0,) and t.is_flex


def test_a_forked_child_writes_through():
    t = torch.zeros(4, device="flex").share_memory_()
    private = torch.zeros(4, device="flex")
    if os.fork() == 0:
        t[1] = 5
        t.add_(1)
        private.add_(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    assert t.tolist() == [1, 6, 1, 1] and private.tolist() == [0, 0, 0, 0]


# ---- Queues ----


def serve(requests, answers, done):
    """In the child: writes to what comes and sends it back with what is seen."""
    torch.set_num_threads(1)
    received = []
    for _ in range(requests.get()):
        message = requests.get()
        received.append(message)
        tensors = [t for t in message if isinstance(t, torch.Tensor)]
        kinds = [(type(t).__name__, t.device.type, t.requires_grad, tuple(t.shape), t.stride()) for t in tensors]
        with torch.no_grad():
            for t in tensors:
                if t.layout == torch.strided and t.numel():
                    t.view(-1)[0] += 1
        identities = [t.untyped_storage()._cdata for m in received for t in m if t.layout == torch.strided]
        answers.put((kinds, len(set(identities)), message))
    done.wait()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_queues(strategy, method):
    context = mp.get_context(method)
    requests, answers, done = context.Queue(), context.Queue(), context.Event()
    child = context.Process(target=serve, args=(requests, answers, done), daemon=True)
    child.start()
    base = torch.arange(6.0, device="flex")
    parameter = torch.nn.Parameter(torch.zeros(3, device="flex"))
    messages = [
        [base, base[2:]],
        [base.view(2, 3), parameter],
        [torch.empty(0, 2, device="flex"), torch.ones(2, device="flex", dtype=torch.bfloat16)],
    ]
    requests.put(len(messages))
    seen = []
    for message in messages:
        requests.put(message)
        seen.append(answers.get(timeout=120))
    assert seen[0][0] == [("Tensor", "flex", False, (6,), (1,)), ("Tensor", "flex", False, (4,), (1,))]
    assert seen[1][0][1] == ("Parameter", "flex", True, (3,), (1,))
    assert seen[0][1] == 1 and seen[1][1] == 2, "tensors on one storage arrive on one storage, also in later messages"
    assert base.tolist() == [2, 1, 3, 3, 4, 5] and parameter.tolist() == [1, 0, 0] and messages[2][1].tolist() == [2, 1]
    for message, (_, _, back) in zip(messages, seen):
        for sent, returned in zip(message, back):
            assert returned.is_flex
            assert sent.numel() == 0 or returned.untyped_storage()._cdata == sent.untyped_storage()._cdata
    base[5] = 50
    assert seen[0][2][1][3] == 50
    del seen, back, returned
    done.set()
    child.join(60)
    assert child.exitcode == 0


def produce(queue, done):
    torch.set_num_threads(1)
    queue.put(torch.arange(4.0, device="flex").mul_(2))
    queue.put({"sparse": torch.eye(2, device="flex").to_sparse(), "module": torch.nn.Linear(2, 2).flex()})
    done.wait()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_makes_what_the_parent_gets(method):
    context = mp.get_context(method)
    queue, done = context.Queue(), context.Event()
    child = context.Process(target=produce, args=(queue, done), daemon=True)
    child.start()
    t, things = queue.get(timeout=120), queue.get(timeout=120)
    done.set()
    child.join(60)
    assert child.exitcode == 0
    assert t.is_flex and t.tolist() == [0, 2, 4, 6] and t.is_shared()
    assert torch.equal(things["sparse"].to_dense().cpu(), torch.eye(2))
    assert things["module"](torch.ones(1, 2, device="flex")).shape == (1, 2)


def fill(rank, t):
    torch.set_num_threads(1)
    t[rank] = rank + 1


def test_spawn_and_pool():
    t = torch.zeros(2, device="flex")
    mp.spawn(fill, args=(t,), nprocs=2)
    assert t.tolist() == [1, 2]
    with mp.get_context("fork").Pool(1) as pool:
        assert pool.apply(torch.sum, (t,)).item() == 3


def test_what_may_not_travel():
    t = torch.ones(2, device="flex", requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing"):
        ForkingPickler.dumps(t)
    assert pickle.loads(pickle.dumps(t.detach())).tolist() == [2, 2] and not t.is_shared()
