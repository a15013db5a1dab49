"""Modules that move: the same Parameters, tied weights, optimizers built before, `.data`."""

import pytest
import torch

import flexcpu
from parity import minimize


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)
        self.head = torch.nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(4))

    def forward(self, tokens):
        return self.head(self.embed(tokens) * self.scale)


MOVES = {
    "to": lambda module: module.to("flex"),
    "flex": lambda module: module.flex(),
    "to dtype": lambda module: module.to("flex", torch.float64),
    "there and back": lambda module: module.to("flex").cpu().to("flex"),
}


@pytest.mark.parametrize("move", MOVES)
def test_parameters_stay_the_same_objects(move):
    module = Tied()
    weight, values = module.embed.weight, module.embed.weight.detach().clone()
    weight.grad = torch.ones_like(weight)
    assert MOVES[move](module) is module
    assert module.embed.weight is weight is module.head.weight and len(list(module.parameters())) == 1
    assert weight.is_flex and weight.grad.is_flex and module.scale.is_flex and weight.is_leaf and weight.requires_grad
    assert torch.equal(weight.detach().cpu().float(), values)
    assert weight.untyped_storage().is_flex


def train(device, optimizer_class, moved_after):
    torch.manual_seed(0)
    module = Tied()
    if not moved_after:
        module.to(device)
    optimizer = optimizer_class(module.parameters(), lr=0.1)
    module.to(device)
    tokens = torch.arange(10, device=device)
    losses = minimize(optimizer, lambda: torch.nn.functional.cross_entropy(module(tokens), tokens), steps=10)
    return [loss.item() for loss in losses], module.embed.weight


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.Adam])
def test_an_optimizer_built_before_the_move_trains(optimizer_class):
    expected, _ = train("cpu", optimizer_class, moved_after=False)
    losses, weight = train("flex", optimizer_class, moved_after=True)
    assert weight.is_flex and losses[-1] < losses[0]
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)


def test_without_grad_the_copy_of_a_module_shares_again():
    module = torch.nn.Linear(64, 64).flex()
    assert flexcpu.shares_memory(module.weight, module.weight.detach().cpu())


@pytest.mark.parametrize(("source", "target"), [("cpu", "flex"), ("flex", "cpu"), ("flex", "flex")])
def test_data_takes_a_tensor_of_the_other_device(source, target):
    parameter = torch.nn.Parameter(torch.zeros(3, device=source))
    (parameter * 2).sum().backward()
    version = parameter._version
    parameter.grad = None
    parameter.data = torch.arange(4.0, device=target)
    assert parameter.device.type == target and parameter.tolist() == [0, 1, 2, 3] and parameter._version == version
    (parameter * 2).sum().backward()
    assert parameter.grad.device.type == target and parameter.grad.tolist() == [2, 2, 2, 2]
    parameter.data.add_(1)
    assert parameter.tolist() == [1, 2, 3, 4]


def test_data_of_another_class_is_refused():
    dense, sparse = torch.zeros(3, 3, device="flex"), torch.eye(3, device="flex").to_sparse()
    for to, data in ((dense, sparse), (dense, sparse.cpu()), (sparse, dense), (sparse, sparse.cpu()),
                     (dense, torch.zeros(3, 3, device="meta"))):  # fmt: skip
        with pytest.raises(RuntimeError, match="incompatible tensor type"):
            to.data = data
    sparse.data = (2 * torch.eye(3, device="flex")).to_sparse()
    assert torch.equal(sparse.to_dense().cpu(), 2 * torch.eye(3))


@pytest.mark.parametrize("setting", ["overwrite_module_params_on_conversion", "swap_module_params_on_conversion"])
def test_torchs_other_ways_of_moving(setting):
    set_to = getattr(torch.__future__, f"set_{setting}")
    set_to(True)
    try:
        module = torch.nn.Linear(3, 2)
        values = module.weight.detach().clone()
        module.to("flex")
        assert module.weight.is_flex and torch.equal(module.weight.detach().cpu(), values)
        assert module(torch.ones(1, 3, device="flex")).shape == (1, 2)
    finally:
        set_to(False)


def test_state_dicts_cross_devices():
    there, here = torch.nn.Linear(3, 2).flex(), torch.nn.Linear(3, 2)
    here.load_state_dict(there.state_dict())
    assert torch.equal(here.weight, there.weight.cpu()) and here.weight.device.type == "cpu"
    with torch.no_grad():
        here.weight.fill_(1)
    there.load_state_dict(here.state_dict())
    assert there.weight.is_flex and there.weight.eq(1).all()
    there.load_state_dict({name: t.flex() for name, t in here.state_dict().items()}, assign=True)
    assert there.weight.is_flex
    half = torch.nn.Linear(3, 2).half().flex().float()
    assert half.weight.dtype == torch.float32 and half.weight.is_flex


def test_to_copies_ordinary_cpu_tensors():
    cpu = torch.ones(4)
    array, t = cpu.numpy(), cpu.to("flex")
    array[0] = 5
    assert t.tolist() == [1, 1, 1, 1]
    assert t.to("flex") is t and t.to("flex", copy=True) is not t
    non_blocking = cpu.to("flex", non_blocking=True)
    assert non_blocking.tolist() == cpu.tolist()
