"""The checks on optim_db: five steps of every configuration in every implementation, and going on from its state."""

from __future__ import annotations

import copy
from typing import Any

import torch

from .execution import execute
from .results import Result
from .subject import Subject

_STEPS = 5
_IMPLEMENTATIONS = {
    "default": {}, "for_loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True},
}  # fmt: skip


class OptimSubject(Subject):
    """One optimizer with parameters of one dtype."""

    def parameters(self, device: str) -> tuple[list[torch.nn.Parameter], list[torch.Tensor]]:
        """Parameters in several layouts, and the values that training draws them to."""
        generator = torch.Generator().manual_seed(0)

        def make(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(self.dtype).to(device)

        shapes = [(4, 5), (3, 2)] if self.info.name == "Muon" else [(10,), (4, 5), (), (2, 3, 2)]
        values = [make(*shape) for shape in shapes] + [make(5, 4).t()]
        return [torch.nn.Parameter(value) for value in values], [make(*value.shape) for value in values]

    def train(self, optimizer, parameters: list, targets: list, steps: int) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = sum(((p - target) ** 2).sum() for p, target in zip(parameters, targets))
            loss.backward()
            if self.info.only_supports_sparse_grads:
                for p in parameters:
                    p.grad = p.grad.to_sparse()
            return loss

        for _ in range(steps):
            if self.info.step_requires_closure:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()

    def run(self, device: str, kwargs: dict) -> Any:
        """Parameters and state after five steps, and after two more from a loaded state dict."""
        parameters, targets = self.parameters(device)
        optimizer = self.info.optim_cls(parameters, **copy.deepcopy(kwargs))
        self.train(optimizer, parameters, targets, _STEPS)
        after = [p.detach().clone() for p in parameters]
        saved = copy.deepcopy(optimizer.state_dict())
        resumed = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
        second = self.info.optim_cls(resumed, **copy.deepcopy(kwargs))
        second.load_state_dict(copy.deepcopy(saved))  # which takes over the tensors that are on the right device
        self.train(second, resumed, targets, 2)
        return after, saved, [p.detach() for p in resumed]


def _steps(subject: OptimSubject, result: Result, cap: int, implementation: str) -> None:
    for index, given in subject.chosen(subject.info.optim_inputs_func(device="cpu"), result, cap):
        kwargs = {**given.kwargs, **_IMPLEMENTATIONS[implementation]}
        if subject.info.name in ("LBFGS", "SparseAdam"):  # have one implementation, and no argument to name it
            kwargs.pop("foreach", None)
        result.samples += 1
        expected = execute(lambda: subject.run("cpu", kwargs), seed=0)
        actual = execute(lambda: subject.device.invoke(subject.run, subject.device.name, kwargs), seed=0)
        # Some state (the step count) lives on the CPU whatever the parameters' device, so devices are not compared.
        result.compare(f"sample {index} {given.desc}", expected, actual, ((), ()), subject.tolerance, None)


CHECKS = {name: lambda subject, result, cap, name=name: _steps(subject, result, cap, name) for name in _IMPLEMENTATIONS}
