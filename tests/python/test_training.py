"""Training loops: every optimizer, schedulers, clipping, scaling, averaging, reparametrized weights equal the CPU's."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn, update_bn

from parity import DOUBLE_CLOSE, backward, check, check_error, gradients, integers, leaf, made, minimize, seeded, state
from models.vision import UNet

# In float64, so that the sums' order does not decide what a sign or a square root makes of it.


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tensors are tiny here: a second thread would only wait for the machine's other processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


OPTIMIZERS = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3},
    "Adam": {"lr": 1e-2, "amsgrad": True},
    "AdamW": {"lr": 1e-2, "weight_decay": 0.1},
    "Adagrad": {"lr": 0.05, "lr_decay": 0.1, "initial_accumulator_value": 0.1},
    "Adadelta": {"lr": 1.0, "weight_decay": 1e-3},
    "Adamax": {"lr": 1e-2},
    "NAdam": {"lr": 1e-2, "decoupled_weight_decay": True, "weight_decay": 0.01},
    "RAdam": {"lr": 1e-2},
    "RMSprop": {"lr": 1e-2, "momentum": 0.9, "centered": True},
    "Rprop": {"lr": 1e-2},
    "ASGD": {"lr": 0.05, "t0": 1, "weight_decay": 1e-3},
    "Adafactor": {"lr": 1e-2},
}


def implementations(name: str) -> list[dict[str, bool]]:
    known = inspect.signature(getattr(torch.optim, name)).parameters
    chosen = [{}, {"foreach": False}, {"foreach": True}]
    return chosen + [{"fused": True}] if "fused" in known else chosen


def unet(device: str, dtype: torch.dtype = torch.float64):
    return made(UNet, device).to(dtype), seeded((2, 3, 8, 8), 1, dtype, device), integers(2, (2, 8, 8), 2, device)


def train(model: nn.Module, images, labels, optimizer, steps: int = 3) -> list[torch.Tensor]:
    return minimize(optimizer, lambda: nn.functional.cross_entropy(model(images), labels), steps)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict:
    return {
        f"{i}.{key}": value
        for i, entry in optimizer.state_dict()["state"].items()
        for key, value in entry.items()
        if isinstance(value, torch.Tensor) and value.dim() > 0
    }


# ---- A convolutional net ----


def test_unet_float32():
    def program(device):
        model, images, labels = unet(device, torch.float32)
        losses = train(model, images, labels, torch.optim.SGD(model.parameters(), lr=0.1))
        return losses, gradients(model), state(model), model.eval()(images)

    losses, *_ = check(program, rtol=1e-3, atol=1e-5)
    assert losses[-1] < losses[0]


def test_unet_channels_last():
    def program(device):
        model, images, labels = unet(device)
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
        losses = train(model, images, labels, torch.optim.SGD(model.parameters(), lr=0.1))
        return losses, gradients(model), model(images)

    check(program, **DOUBLE_CLOSE)


@pytest.mark.parametrize(
    "name, chosen",
    [(n, c) for n in OPTIMIZERS for c in implementations(n)],
    ids=lambda x: x if isinstance(x, str) else "-".join(x) + "-".join(map(str, x.values())) or "default",
)
def test_optimizer(name, chosen):
    def program(device):
        model, images, labels = unet(device)
        # What torch chooses by itself for every device but the CPU.
        options = chosen or ({} if device == "flex" else {"foreach": True})
        optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name], **options)
        losses = train(model, images, labels, optimizer)
        return losses, state(model), optimizer_state(optimizer)

    losses, *_ = check(program, **DOUBLE_CLOSE)
    assert len({float(loss) for loss in losses}) == 3


@pytest.mark.parametrize("option", ["maximize", "capturable"])
@pytest.mark.parametrize("name", ["Adam", "NAdam", "Rprop"])
def test_optimizer_options(name, option):
    def program(device):
        weight = nn.Parameter(seeded((4, 3), 0, torch.float64, device))
        # The CPU refuses capturable optimizers; their results are the ordinary ones, but for powers taken in float32.
        chosen = {} if option == "capturable" and device == "cpu" else {option: True}
        optimizer = getattr(torch.optim, name)([weight], lr=1e-2, **chosen)
        for _ in range(3):
            weight.grad = weight.detach().sin() + 2
            optimizer.step()
        return weight.detach()

    check(program, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_derivative_of_a_step(name):
    def program(device):
        start = leaf((4, 3), 0, torch.float64, device)
        weight = start.clone()
        weight.grad = start.detach().cos()
        getattr(torch.optim, name)([weight], lr=0.1, differentiable=True).step()
        backward(weight.sin())
        return weight, start.grad

    check(program, **DOUBLE_CLOSE)


def test_learning_rate_in_a_tensor():
    def program(device):
        model, images, labels = unet(device)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=torch.tensor(1e-2, device=device), foreach=False, fused=True
        )
        return train(model, images, labels, optimizer), state(model)

    check(program, **DOUBLE_CLOSE)


def test_muon():
    def program(device):
        model = made(lambda: nn.Sequential(nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 4, bias=False)), device)
        optimizer = torch.optim.Muon(model.parameters(), lr=0.05)
        return train(model, seeded((5, 6), device=device), integers(4, (5,), device=device), optimizer), state(model)

    check(program, rtol=2e-2, atol=2e-2)  # it iterates in bfloat16


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(search):
    def program(device):
        model = made(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), device).double()
        inputs, targets = seeded((16, 4), 1, torch.float64, device), seeded((16, 1), 2, torch.float64, device)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn=search)

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            return loss

        return [optimizer.step(closure).detach() for _ in range(4)], state(model)

    losses, _ = check(program, rtol=1e-6, atol=1e-8)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_adam(layer):
    def program(device):
        model = made(lambda: layer(20, 6, sparse=True), device)
        optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
        words = integers(20, (4, 5), device=device)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(words) ** 2).sum()
            loss.backward()
            assert model.weight.grad.layout == torch.sparse_coo
            found.append(model.weight.grad.to_dense())
            optimizer.step()
        return found, state(model)

    check(program, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_sparse_gradients_of_other_optimizers(name):
    def program(device):
        model = made(lambda: nn.Embedding(20, 6, sparse=True, padding_idx=3), device)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            backward(model(integers(20, (4, 5), device=device)))
            optimizer.step()
        return state(model)

    check(program, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("offsets", [False, True])
def test_embedding_bag(mode, offsets):
    def program(device):
        bag = made(lambda: nn.EmbeddingBag(12, 5, mode=mode, padding_idx=2, include_last_offset=offsets), device)
        words = integers(12, (14,) if offsets else (4, 6), device=device)
        starts = torch.tensor([0, 3, 3, 9, 14], device=device) if offsets else None
        weights = leaf(words.shape, 5, device=device) if mode == "sum" else None
        output = bag(words, starts, per_sample_weights=weights)
        backward(output)
        return output, bag.weight.grad, weights.grad if weights is not None else None

    check(program)


def test_embedding_max_norm():
    def program(device):
        layer = made(lambda: nn.Embedding(9, 4, max_norm=1.0, scale_grad_by_freq=True), device)
        output = layer(integers(9, (3, 5), device=device))
        backward(output)
        return output, layer.weight.grad, state(layer)

    check(program)


# ---- Optimizers through moves and checkpoints ----


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_optimizer_of_before_the_move(name):
    def program(device):
        torch.manual_seed(0)
        model = UNet().double()
        optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name])
        model.to(device)
        _, images, labels = unet(device)
        return train(model, images, labels, optimizer), state(model)

    check(program, **DOUBLE_CLOSE)


def test_checkpoint_between_devices(tmp_path):
    """Two steps on one device and two on the other, through a file, equal four on the CPU."""

    def program(first, second):
        model, images, labels = unet(first)
        optimizer = torch.optim.AdamW(model.parameters(), **OPTIMIZERS["AdamW"])
        train(model, images, labels, optimizer, 2)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
        saved = torch.load(tmp_path / "checkpoint.pt", map_location=second, weights_only=True)
        model, images, labels = unet(second)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        train(model, images, labels, optimizer, 2)
        return {name: tensor.cpu() for name, tensor in state(model).items()}

    expected = program("cpu", "cpu")
    for devices in [("cpu", "flex"), ("flex", "cpu"), ("flex", "flex")]:
        torch.testing.assert_close(program(*devices), expected, **DOUBLE_CLOSE)


@pytest.mark.parametrize("assign", [False, True])
def test_state_dict_is_no_snapshot_but_a_deepcopy_is(assign):
    def program(device):
        model, images, labels = unet(device)
        kept = copy.deepcopy(model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, images, labels, optimizer)
        trained = copy.deepcopy(state(model))
        model.load_state_dict(kept, assign=assign)
        return kept, trained, state(model)

    kept, trained, restored = check(program, **DOUBLE_CLOSE)
    assert all(torch.equal(kept[name], restored[name]) for name in kept)
    assert not torch.equal(kept["first.0.weight"], trained["first.0.weight"])


# ---- Learning rates ----

SCHEDULERS = {
    "StepLR": {"step_size": 2, "gamma": 0.5},
    "MultiStepLR": {"milestones": [1, 3]},
    "ConstantLR": {"total_iters": 2},
    "LinearLR": {"total_iters": 3},
    "ExponentialLR": {"gamma": 0.7},
    "PolynomialLR": {"total_iters": 5, "power": 2.0},
    "CosineAnnealingLR": {"T_max": 4},
    "CosineAnnealingWarmRestarts": {"T_0": 2},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 2},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 6},
    "LambdaLR": {"lr_lambda": lambda epoch: 0.9**epoch},
    "MultiplicativeLR": {"lr_lambda": lambda epoch: 0.9},
    "ReduceLROnPlateau": {"patience": 0, "factor": 0.5},
}


@pytest.mark.parametrize("in_tensor", [False, True])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler(name, in_tensor):
    def program(device):
        weight = nn.Parameter(seeded((4, 3), device=device))
        rate = torch.tensor(0.05, device=device) if in_tensor else 0.05
        optimizer = torch.optim.SGD([weight], lr=rate, momentum=0.9, foreach=False)
        scheduler = getattr(lr_scheduler, name)(optimizer, **SCHEDULERS[name])
        rates = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = (weight**2).sum()
            loss.backward()
            optimizer.step()
            scheduler.step(*([loss] if name == "ReduceLROnPlateau" else []))
            rates.append(float(optimizer.param_groups[0]["lr"]))
        return rates, weight.detach()

    check(program)


def test_chained_schedulers():
    def program(device):
        weight = nn.Parameter(seeded((4, 3), device=device))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scheduler = lr_scheduler.SequentialLR(
            optimizer,
            [lr_scheduler.LinearLR(optimizer, total_iters=2), lr_scheduler.ExponentialLR(optimizer, 0.5)],
            [2],
        )
        for _ in range(4):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
            scheduler.step()
        return weight.detach(), scheduler.get_last_lr()

    check(program)


# ---- Gradients between backward and step ----


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
def test_clip_grad_norm(norm, foreach):
    def program(device):
        model, images, _ = unet(device)
        backward(model(images))
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.5, norm, foreach=foreach)
        return total, gradients(model)

    check(program, **DOUBLE_CLOSE)


def test_clip_grad_norm_refuses_nan():
    def program(device):
        model, images, _ = unet(device)
        backward(model(images * float("nan")))
        nn.utils.clip_grad_norm_(model.parameters(), 0.5, error_if_nonfinite=True)

    check_error(program)


@pytest.mark.parametrize("foreach", [None, False, True])
def test_clip_grad_value(foreach):
    def program(device):
        model, images, _ = unet(device)
        backward(model(images))
        nn.utils.clip_grad_value_(model.parameters(), 0.05, foreach=foreach)
        return gradients(model), nn.utils.get_total_norm([p.grad for p in model.parameters()])

    check(program, **DOUBLE_CLOSE)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("overflows", [False, True])
def test_grad_scaler(overflows, fused):
    def program(device):
        model, images, labels = unet(device, torch.float32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False, fused=fused)
        scaler = torch.amp.GradScaler(device, init_scale=4.0, growth_interval=2)
        assert scaler.is_enabled()
        scales = []
        for step in range(4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            scaler.scale(loss).backward()
            if overflows and step == 1:
                model.head.weight.grad[0, 0] = float("inf")
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, state(model)

    scales, _ = check(program, rtol=1e-3, atol=1e-5)
    assert scales == ([4.0, 2.0, 2.0, 4.0] if overflows else [4.0, 8.0, 8.0, 16.0])


def test_accumulated_gradients():
    def program(device):
        model, images, labels = unet(device)
        for image, label in zip(images, labels):
            (nn.functional.cross_entropy(model(image[None]), label[None]) / 2).backward()
        model.first[0].weight.grad.mul_(2)
        return gradients(model)

    check(program, **DOUBLE_CLOSE)


# ---- Averages of weights ----


@pytest.mark.parametrize("average", ["swa", "ema"])
def test_averaged_model(average):
    def program(device):
        model, images, labels = unet(device)
        functions = {"swa": get_swa_multi_avg_fn(), "ema": get_ema_multi_avg_fn(0.9)}
        averaged = AveragedModel(model, device=device, multi_avg_fn=functions[average])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
        for _ in range(3):
            train(model, images, labels, optimizer, 1)
            averaged.update_parameters(model)
            schedule.step()
        update_bn([images, images.flip(0)], averaged, device=device)
        return state(averaged), averaged.eval()(images)

    check(program, **DOUBLE_CLOSE)


# ---- Weights made of other weights ----


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)

    def right_inverse(self, weight):
        return weight.triu()


def symmetric() -> nn.Module:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


REPARAMETRIZED = {
    "parametrize": symmetric,
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
    "weight_norm of a dim": lambda: parametrizations.weight_norm(nn.Conv1d(4, 4, 1), dim=1),
    "weight_norm without dim": lambda: parametrizations.weight_norm(nn.Linear(4, 4), dim=None),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
    "orthogonal by householder": lambda: parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map="householder"),
    "old weight_norm": lambda: nn.utils.weight_norm(nn.Linear(4, 4)),
    "old spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", REPARAMETRIZED)
def test_reparametrized_weights(name):
    def program(device):
        layer = made(REPARAMETRIZED[name], device).double()
        inputs = seeded((4, 4), 3, torch.float64, device)
        inputs = inputs.unsqueeze(-1) if isinstance(layer, nn.Conv1d) else inputs
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        losses = minimize(optimizer, lambda: (layer(inputs) ** 2).mean())
        return losses, gradients(layer), state(layer), layer.weight.detach()

    check(program, **DOUBLE_CLOSE)


PRUNING = {
    "l1": lambda layer: prune.l1_unstructured(layer, "weight", amount=0.4),
    "ln": lambda layer: prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0),
    "custom": lambda layer: prune.custom_from_mask(layer, "weight", (seeded((4, 4), 7) > 0).to(layer.weight.device)),
}


@pytest.mark.parametrize("name", PRUNING)
def test_pruning(name):
    def program(device):
        layer = made(lambda: nn.Linear(4, 4), device)
        PRUNING[name](layer)
        backward(layer(seeded((3, 4), device=device)))
        found = gradients(layer), state(layer)
        prune.remove(layer, "weight")
        return found, state(layer)

    check(program)


def test_random_pruning_keeps_the_amount():
    layer = made(lambda: nn.Linear(16, 16), "flex")
    prune.random_unstructured(layer, "weight", amount=0.25)
    assert int((layer.weight_mask == 0).sum()) == 64
    prune.global_unstructured([(layer, "weight")], pruning_method=prune.L1Unstructured, amount=64)
    assert int((layer.weight_mask == 0).sum()) == 128


# ---- Dropout ----


@pytest.mark.parametrize(
    "layer, shape, whole",
    [
        (nn.Dropout, (200, 100), False),
        (nn.AlphaDropout, (200, 100), False),
        (nn.Dropout2d, (50, 40, 3, 3), True),
        (nn.FeatureAlphaDropout, (50, 40, 3, 3), True),
    ],
)
def test_dropout(layer, shape, whole):
    module = layer(0.3)
    torch.manual_seed(5)
    ones = torch.ones(shape, device="flex", requires_grad=True)
    output = module(ones)
    output.sum().backward()
    dropped = ones.grad == 0
    assert torch.equal(dropped, output == output.min())
    assert abs(float(dropped.float().mean()) - 0.3) < 0.05
    if whole:
        flat = dropped.flatten(2)
        assert torch.equal(flat.any(2), flat.all(2))
    torch.manual_seed(5)
    assert torch.equal(module(ones), output)
    assert not torch.equal(module(ones), output)
    assert torch.equal(module.eval()(ones), ones)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_limits(p):
    def program(device):
        inputs = leaf((4, 5), device=device)
        output = nn.functional.dropout(inputs, p)
        output.sum().backward()
        return output, inputs.grad

    check(program)
