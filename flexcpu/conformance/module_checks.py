"""The checks on module_db: outputs, gradients and buffers, state dicts, deep copies, and moving."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .compare import requiring_grad
from .databases import dtype_name
from .devices import Transfer
from .execution import execute
from .results import Result
from .subject import Subject, seeded_like


class ModuleSubject(Subject):
    """One module class in one dtype."""

    def inputs(self, result: Result, cap: int, training: bool) -> Iterator[tuple[str, Any]]:
        """(name, input) of at most `cap` inputs: arguments of the constructor and of the call."""
        torch.manual_seed(0)
        make = self.info.module_inputs_func
        found = make(self.info, device="cpu", dtype=self.dtype, requires_grad=True, training=training)
        for index, given in self.chosen(found, result, cap):
            yield f"sample {index} {given.desc}".rstrip(), given

    def make(self, given, device: str, seed: int = 0) -> torch.nn.Module:
        """A new module on a device; of one seed, all devices get the same parameters."""
        torch.manual_seed(seed)
        args, kwargs = copy.deepcopy((given.constructor_input.args, given.constructor_input.kwargs))
        return self.info.module_cls(*args, **kwargs).to(self.dtype).to(device)

    def run(self, result: Result, where: str, function: Callable[[str], Any]) -> None:
        """Compares what function(device name) returns or raises."""
        result.samples += 1
        expected = execute(lambda: function("cpu"), seed=0)
        actual = execute(lambda: self.device.invoke(function, self.device.name), seed=0)
        # Construction draws numbers on the CPU, whichever the device: it does not make the results random.
        expected.random = False
        result.compare(where, expected, actual, ((), ()), self.tolerance, self.device.name)


def _evaluate(module: torch.nn.Module, operands: tuple[tuple, dict]) -> Any:
    """Outputs, the gradients of parameters and operands, and the buffers as the call leaves them."""
    args, kwargs = operands
    value = module(*args, **kwargs)
    outputs, inputs = requiring_grad(value), requiring_grad((operands, list(module.parameters())))
    gradients = ()
    if outputs:
        gradients = torch.autograd.grad(outputs, inputs, [seeded_like(t) for t in outputs], allow_unused=True)
    value = tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, value)
    return value, gradients, dict(module.named_buffers())


def _call(subject: ModuleSubject, result: Result, cap: int, training: bool) -> None:
    device = subject.device
    for where, given in subject.inputs(result, cap, training):
        result.samples += 1
        expected = execute(lambda: subject.make(given, "cpu").train(training), seed=0)
        actual = execute(lambda: device.invoke(subject.make, given, device.name).train(training), seed=0)
        if expected.error is not None:
            raise expected.error
        ours, theirs = actual.value, expected.value
        expected.value = actual.value = None
        if not result.compare(f"{where} construction", expected, actual, ((), ()), subject.tolerance, device.name):
            continue

        # A module that draws numbers (dropout, a lazy one's parameters) is compared without values first; then, with
        # the CPU's parameters, by its values if it has stopped drawing.
        for attempt in ("", " again"):
            result.samples += 1
            source = (given.forward_input.args, given.forward_input.kwargs)
            operands = Transfer("cpu")(source), Transfer(device.name)(source)
            expected = execute(lambda: _evaluate(theirs, operands[0]), seed=0)
            actual = execute(lambda: device.invoke(_evaluate, ours, operands[1]), seed=0)
            result.compare(where + attempt, expected, actual, operands, subject.tolerance, device.name)
            if not expected.random or expected.error or actual.error:
                break
            ours.load_state_dict(theirs.state_dict())


def train(subject: ModuleSubject, result: Result, cap: int) -> None:
    """Outputs, gradients and buffers in training mode."""
    _call(subject, result, cap, training=True)


def evaluate(subject: ModuleSubject, result: Result, cap: int) -> None:
    """Outputs, gradients and buffers in evaluation mode."""
    _call(subject, result, cap, training=False)


def state_dict(subject: ModuleSubject, result: Result, cap: int) -> None:
    """State dicts, and loading them into another module, from the device's and from the CPU's."""
    for where, given in subject.inputs(result, cap, training=True):

        def run(device: str, given=given) -> Any:
            module, other, third = (subject.make(given, device, seed) for seed in (0, 1, 2))
            loaded = other.load_state_dict(module.state_dict())
            third.load_state_dict(subject.make(given, "cpu", 3).state_dict())
            return dict(module.state_dict()), tuple(loaded), dict(other.state_dict()), dict(third.state_dict())

        if not subject.info.is_lazy:
            subject.run(result, where, run)


def deepcopy(subject: ModuleSubject, result: Result, cap: int) -> None:
    """A deep copy is equal, and independent of the original."""
    for where, given in subject.inputs(result, cap, training=True):

        def run(device: str, given=given) -> Any:
            module = subject.make(given, device)
            twin = copy.deepcopy(module)
            before = {name: t.clone() for name, t in twin.state_dict().items()}
            with torch.no_grad():
                for t in twin.state_dict().values():
                    t.zero_()
            return before, dict(twin.state_dict()), dict(module.state_dict())

        if not subject.info.is_lazy:
            subject.run(result, where, run)


def to(subject: ModuleSubject, result: Result, cap: int) -> None:
    """Moving keeps the parameters the same objects; dtypes, memory formats and the way back."""
    for where, given in subject.inputs(result, cap, training=True):

        def run(device: str, given=given) -> Any:
            module = subject.make(given, "cpu")
            before = [id(p) for p in module.parameters()]
            module.to(device)
            kept = [id(p) for p in module.parameters()] == before
            on_device = {name: t.clone() for name, t in module.state_dict().items()}
            half = {name: t.clone() for name, t in module.to(torch.bfloat16).state_dict().items()}
            four = all(p.dim() in (4, 5) for p in module.parameters() if p.dim() > 1)
            last = dict(module.to(memory_format=torch.channels_last).state_dict()) if four else {}
            back = [p.detach().clone() for p in module.to("cpu").parameters()]
            return (
                kept,
                on_device,
                half,
                last,
                [p.device.type == "cpu" for p in back],
                [p.float().tolist() for p in back],
            )

        if not subject.info.is_lazy:
            subject.run(result, where, run)


def errors(subject: ModuleSubject, result: Result, cap: int) -> None:
    """The database's error inputs, to construction or to the call."""
    given = subject.info.module_error_inputs_func(
        subject.info, device="cpu", dtype=subject.dtype, requires_grad=False, training=False
    )
    for index, error_input in enumerate(given):
        subject.progress(index)

        def run(device: str, given=error_input.module_error_input) -> Any:
            module = subject.make(given, device)
            args, kwargs = Transfer(device)((given.forward_input.args, given.forward_input.kwargs))
            return module(*args, **kwargs)

        subject.run(result, f"error input {index} {dtype_name(subject.dtype)}", run)


CHECKS = {
    "train": train, "eval": evaluate, "state_dict": state_dict, "deepcopy": deepcopy, "to": to, "errors": errors,
}  # fmt: skip
