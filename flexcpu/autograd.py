"""Backward runs on the thread that calls it, as on the CPU."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import _C


class _Engine(torch._C._ImperativeEngine):
    """torch's engine, which would look for a thread of the device's own on behalf of a Python thread that has not run a
    flex op yet (every flex op tells its thread; `loss.backward()` on a fresh thread is none, and fake tensors run no op
    at all)."""

    def run_backward(self, tensors, *args, **kwargs):
        if _C.was_used() or any(isinstance(tensor, FakeTensor) for tensor in tensors):
            _C.enter()
        return super().run_backward(tensors, *args, **kwargs)


def register() -> None:
    torch.autograd.Variable._execution_engine = _Engine()
