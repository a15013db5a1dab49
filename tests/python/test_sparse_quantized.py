"""Tensors of other layouts: sparse COO and compressed, quantized, nested. Flex can what the CPU can, or fails alike."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from torch import nn

from parity import check, check_error, gradients, leaf, made, minimize, seeded

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*quantization.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per.*:UserWarning"),
]

COMPRESSED = [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]
LAYOUTS = [torch.sparse_coo, *COMPRESSED]


def holey(shape, seed: int = 0, device: str = "cpu", dtype=torch.float64) -> torch.Tensor:
    dense = seeded(shape, seed, dtype, device)
    return dense * (seeded(shape, seed + 50, device=device) > 0)


def sparse(layout, shape=(4, 6), seed: int = 0, device: str = "cpu") -> torch.Tensor:
    blocked = {"blocksize": (2, 3)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    return holey(shape, seed, device).to_sparse(layout=layout, **blocked)


def members(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def printed(tensor: torch.Tensor) -> str:
    """What repr shows, but for the device and the breaks between lines."""
    return re.sub(r"\s|,\s*device='flex:0'", "", repr(tensor))


# ---- Sparse ----


def test_constructors():
    def program(device):
        indices = torch.tensor([[0, 2, 2, 0], [1, 0, 3, 1]], device=device)
        values = seeded((4,), device=device)
        coo = torch.sparse_coo_tensor(indices, values, (3, 5))
        made = [
            coo.coalesce(),
            torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], device=device),
            torch.sparse_coo_tensor(size=(2, 3), device=device),
            torch.zeros(2, 3, layout=torch.sparse_coo, device=device),
            torch.sparse_coo_tensor(indices, seeded((4, 2), device=device), (3, 5, 2)).coalesce(),
            torch.sparse_csr_tensor([0, 1, 1, 3], [2, 0, 1], seeded((3,), device=device), (3, 4), device=device),
            torch.sparse_csc_tensor([0, 1, 3], [2, 0, 1], seeded((3,), device=device), (3, 2), device=device),
            torch.sparse_bsr_tensor([0, 1, 2], [0, 1], seeded((2, 2, 2), device=device), (4, 4), device=device),
            torch.sparse_compressed_tensor([0, 1], [0], [3.0], (1, 2), layout=torch.sparse_csr, device=device),
        ]
        assert all(
            tensor.device.type == device and tensor.is_sparse == (tensor.layout == torch.sparse_coo) for tensor in made
        )
        return (
            coo._nnz(),
            coo.is_coalesced(),
            [members(tensor) for tensor in made],
            [tensor.to_dense() for tensor in made],
        )

    check(program)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_conversions(layout):
    def program(device):
        tensor = sparse(layout, device=device)
        others = [
            tensor.to_dense().to_sparse(2),
            tensor.to_dense().to_sparse_csr(),
            tensor.to_dense().to_sparse_csc(),
            tensor.to_dense().to_sparse_bsr((2, 3)),
            tensor.transpose(0, 1),
            tensor.clone(),
            tensor.detach(),
            tensor.float(),
        ]
        return [other.to_dense() for other in others], members(tensor), str(torch.empty_like(tensor).layout)

    check(program)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_between_devices(layout):
    cpu = sparse(layout)
    flex = cpu.to("flex")
    assert flex.device.type == "flex" and flex.layout == layout
    assert all(member.device.type == "flex" for member in members(flex))
    back = flex.cpu()
    assert back.device.type == "cpu" and torch.equal(back.to_dense(), cpu.to_dense())
    assert torch.equal(flex.to_dense().cpu(), cpu.to_dense())
    again = pickle.loads(pickle.dumps(flex))
    assert again.device.type == "flex" and torch.equal(again.to_dense(), flex.to_dense())
    flex.values().zero_()  # of flex only
    assert back.to_dense().abs().sum() > 0


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_printing(layout):
    cpu = sparse(layout)
    assert printed(cpu.to("flex")) == printed(cpu)


UNARY = {
    "neg": torch.neg,
    "sin": torch.sin,
    "sqrt of abs": lambda x: x.abs().sqrt(),
    "relu": torch.relu,
    "sign": torch.sign,
    "isnan": torch.isnan,
    "times 2": lambda x: x * 2,
    "sum": torch.sum,
    "zeros_like": torch.zeros_like,
}
COO_ONLY = {
    "sum of a dim": lambda x: torch.sparse.sum(x, 1),
    "softmax": lambda x: torch.sparse.softmax(x, 1),
    "select": lambda x: x.select(0, 1),
    "index_select": lambda x: x.index_select(0, torch.tensor([0, 2], device=x.device)),
    "cat": lambda x: torch.cat([x, x]),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "any": torch.any,
    "norm": lambda x: x.norm(),
    "power": lambda x: x**2,
    "over 2": lambda x: x / 2,
    "deepcopy": copy.deepcopy,
    "sparse_mask": lambda x: torch.ones(4, 6, dtype=x.dtype, device=x.device).sparse_mask(x),
    "narrow_copy": lambda x: x.narrow_copy(0, 1, 2),
    "permute": lambda x: x.permute(1, 0),
    "to_sparse_csr": lambda x: x.to_sparse_csr(),
    "log_softmax": lambda x: torch.sparse.log_softmax(x, 1),
}


def dense_of(result):
    return result.to_dense() if isinstance(result, torch.Tensor) and result.layout != torch.strided else result


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(layout, name):
    check(lambda device: dense_of(UNARY[name](sparse(layout, device=device))), strides=False)


@pytest.mark.parametrize("name", COO_ONLY)
def test_coo_ops(name):
    check(lambda device: dense_of(COO_ONLY[name](sparse(torch.sparse_coo, device=device).coalesce())), strides=False)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_products(layout):
    def program(device):
        matrix, other = sparse(layout, device=device), sparse(layout, (6, 5), 1, device)
        dense, vector = seeded((6, 3), 2, torch.float64, device), seeded((6,), 3, torch.float64, device)
        base = seeded((4, 3), 4, torch.float64, device)
        return [
            dense_of(r)
            for r in (
                matrix @ dense,
                torch.mv(matrix, vector),
                torch.addmm(base, matrix, dense, beta=0.5, alpha=2),
                matrix @ other,
                torch.sparse.mm(matrix, dense),
                matrix + matrix,
                matrix * matrix,
                base[:, :1] + (matrix @ dense),
                torch.sparse.sampled_addmm(
                    sparse(torch.sparse_csr, (4, 4), 5, device),
                    seeded((4, 2), 6, torch.float64, device),
                    seeded((2, 4), 7, torch.float64, device),
                ),
            )
        ]

    check(program, strides=False)


def test_dense_with_sparse():
    def program(device):
        matrix, dense = sparse(torch.sparse_coo, device=device), seeded((4, 6), 1, torch.float64, device)
        return (
            dense + matrix,
            (dense * matrix).to_dense(),
            dense.clone().add_(matrix, alpha=2),
            torch.sparse.addmm(dense, matrix, seeded((6, 6), 2, torch.float64, device)),
        )

    check(program, strides=False)


def test_in_place():
    def program(device):
        matrix = sparse(torch.sparse_coo, device=device).coalesce()
        peer = matrix.clone()
        matrix.mul_(2).add_(sparse(torch.sparse_coo, seed=3, device=device))
        values = peer.values()
        values.add_(1)
        copied = torch.zeros(4, 6, dtype=torch.float64, layout=torch.sparse_coo, device=device).copy_(matrix)
        resized = torch.sparse_coo_tensor(size=(2, 3), device=device).sparse_resize_((4, 5), 2, 0)
        compressed = sparse(torch.sparse_csr, device=device)
        kept = compressed.clone()
        compressed.values().mul_(3)
        zeroed = matrix.clone().zero_()
        return (
            [t.to_dense() for t in (matrix, peer, copied, resized, compressed, kept, zeroed)],
            matrix._nnz(),
            zeroed._nnz(),
        )

    check(program, strides=False)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_backward_of_a_product(layout):
    def program(device):
        matrix = sparse(layout, device=device).requires_grad_()
        dense = leaf((6, 3), 1, torch.float64, device)
        (torch.sparse.mm(matrix, dense) * seeded((4, 3), 2, torch.float64, device)).sum().backward()
        return dense.grad, dense_of(matrix.grad), str(matrix.grad.layout)

    check(program, strides=False)


def test_backward_through_values():
    def program(device):
        values, dense = leaf((3,), 0, torch.float64, device), leaf((4, 2), 1, torch.float64, device)
        matrix = torch.sparse_coo_tensor([[0, 1, 2], [3, 0, 1]], values, (3, 4), device=device)
        ((matrix @ dense).square().sum() + torch.sparse.sum(matrix) + matrix.to_dense().sin().sum()).backward()
        return values.grad, dense.grad

    check(program, strides=False)


def test_sparse_gradient_of_embedding():
    def program(device):
        layer = made(lambda: nn.Embedding(10, 3, sparse=True), device)
        layer(torch.tensor([1, 4, 1, 9], device=device)).sum().backward()
        found = layer.weight.grad.coalesce()
        return found.indices(), found.values(), layer.weight.grad.is_coalesced()

    check(program)


def test_graph_convolution_trains():
    def program(device):
        adjacency = (holey((6, 6), device=device) != 0).double()
        adjacency = (adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)).to_sparse_csr()
        model = made(lambda: nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 2)]), device).double()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        features = seeded((6, 4), 1, torch.float64, device)
        losses = minimize(
            optimizer, lambda: (adjacency @ model[1](torch.relu(adjacency @ model[0](features)))).square().mean()
        )
        return losses, gradients(model)

    check(program)


@pytest.mark.parametrize(
    "case",
    [
        lambda d: torch.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), device=d, check_invariants=True),
        lambda d: torch.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0], (2, 2), device=d, check_invariants=True),
        lambda d: sparse(torch.sparse_coo, device=d) @ torch.ones(5, 2, dtype=torch.float64, device=d),
        lambda d: (
            sparse(torch.sparse_coo, device=d).indices()
            if not sparse(torch.sparse_coo, device=d).is_coalesced()
            else torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,), device=d).indices()
        ),
        lambda d: torch.sparse_coo_tensor([[0, 1]], [1.0], (3,), device=d),
        lambda d: torch.ones(2, device=d).coalesce(),
        lambda d: sparse(torch.sparse_csr, device=d).storage(),
    ],
)
def test_sparse_errors(case):
    check_error(case)


@pytest.mark.parametrize("name", ["view", "sort", "cumsum", "conv", "masked_fill", "equal"])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_what_the_cpu_refuses(layout, name):
    ops = {
        "equal": lambda x: torch.equal(x, x),
        "view": lambda x: x.view(6, 4),
        "sort": lambda x: x.sort(),
        "cumsum": lambda x: x.cumsum(0),
        "conv": lambda x: nn.functional.conv1d(x[None], torch.ones(1, 4, 1, dtype=x.dtype, device=x.device)),
        "masked_fill": lambda x: x.masked_fill(x.to_dense() > 0, 1.0),
    }
    check_error(lambda device: ops[name](sparse(layout, device=device)), same_text=False)


# ---- Quantized ----


def quantized(device: str, dtype=torch.quint8, per_channel: bool = False) -> torch.Tensor:
    real = seeded((4, 6), device=device)
    if per_channel:
        scales = torch.tensor([0.1, 0.2, 0.05, 0.3], dtype=torch.float64, device=device)
        return torch.quantize_per_channel(real, scales, torch.zeros(4, dtype=torch.int64, device=device), 0, dtype)
    return torch.quantize_per_tensor(real, 0.1, 10 if dtype == torch.quint8 else 0, dtype)


@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8, torch.qint32])
@pytest.mark.parametrize("per_channel", [False, True])
def test_quantized_values(dtype, per_channel):
    def program(device):
        tensor = quantized(device, dtype, per_channel)
        assert tensor.is_quantized and tensor.device.type == device and tensor.dtype == dtype
        kept = tensor.clone()
        return (
            tensor.int_repr(),
            tensor.dequantize(),
            kept.dequantize(),
            str(tensor.qscheme()),
            tensor[1:3, ::2].int_repr(),
        )

    check(program)


def test_quantized_ops():
    def program(device):
        tensor = quantized(device)
        found = [
            torch.relu(tensor),
            tensor.view(6, 4),
            tensor.t(),
            nn.functional.max_pool2d(tensor.view(1, 1, 4, 6), 2),
            torch.cat([tensor, tensor]),
            tensor.contiguous(),
            copy.deepcopy(tensor),
            tensor.flatten(),
            tensor.clamp(-1, 1),
            torch.empty_like(tensor).copy_(tensor),
            tensor.reshape(2, 12),
        ]
        return (
            [t.dequantize() for t in found],
            tensor.q_scale(),
            tensor.q_zero_point(),
            torch.equal(tensor, tensor.clone()),
        )

    check(program, strides=False)


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantized_between_devices(per_channel):
    cpu = quantized("cpu", torch.qint8, per_channel)
    flex = cpu.to("flex")
    assert flex.device.type == "flex" and flex.is_quantized
    back = flex.cpu()
    assert (
        back.device.type == "cpu" and torch.equal(back.int_repr(), cpu.int_repr()) and back.qscheme() == cpu.qscheme()
    )
    assert torch.equal(quantized("flex", torch.qint8, per_channel).int_repr().cpu(), cpu.int_repr())
    assert printed(flex) == printed(cpu)


def test_fake_quantize():
    def program(device):
        x = leaf((4, 6), device=device)
        output = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255)
        channel = torch.fake_quantize_per_channel_affine(
            x, torch.rand(4, device=device) * 0 + 0.1, torch.zeros(4, dtype=torch.int32, device=device), 0, 0, 127
        )
        (output + channel).sum().backward()
        return output, channel, x.grad

    check(program)


def test_observed_range():
    def program(device):
        observer = made(lambda: torch.ao.quantization.FusedMovingAvgObsFakeQuantize(), device)
        return observer(seeded((4, 6), device=device)), observer.scale, observer.zero_point

    check(program)


@pytest.mark.parametrize(
    "case",
    [
        lambda d: quantized(d) + quantized(d),
        lambda d: quantized(d).sin(),
        lambda d: torch.quantize_per_tensor(torch.ones(2, dtype=torch.int32, device=d), 0.1, 0, torch.quint8),
        lambda d: quantized(d).q_per_channel_scales(),
        lambda d: torch.ones(2, device=d).q_scale(),
    ],
)
def test_quantized_errors(case):
    check_error(case, same_text=False)


# ---- Nested ----

nested_warning = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning"
)


def nested(device: str, seed: int = 0) -> torch.Tensor:
    return torch.nested.nested_tensor(
        [seeded((n, 8), seed + n, torch.float64, device) for n in (2, 5, 3)], device=device
    )


def parts_of(result: torch.Tensor) -> list[torch.Tensor]:
    return list(result.unbind())


@nested_warning
def test_nested():
    def program(device):
        tensor = nested(device)
        peer = tensor.clone()
        assert tensor.is_nested and tensor.device.type == device and tensor.layout == torch.strided
        found = [
            tensor + tensor,
            tensor * 2,
            tensor @ tensor.transpose(1, 2),
            torch.relu(tensor),
            tensor.softmax(-1),
            tensor.transpose(1, 2),
            made(lambda: nn.LayerNorm(8), device).double()(tensor),
            tensor.transpose(1, 2).contiguous(),
            tensor.detach(),
            tensor.float(),
            torch.nested.nested_tensor([seeded((2, 3), device=device)]),
        ]
        peer.mul_(3)
        return (
            [parts_of(t) for t in (*found, peer)],
            tensor.to_padded_tensor(-1.0),
            tensor.size(0),
            tensor.size(2),
            tensor.numel(),
        )

    check(program, strides=False)


@nested_warning
def test_nested_between_devices():
    cpu = nested("cpu")
    flex = cpu.to("flex")
    assert flex.is_nested and flex.device.type == "flex" and flex.cpu().device.type == "cpu"
    for whole, moved, back in zip(cpu.unbind(), flex.unbind(), flex.cpu().unbind()):
        assert moved.device.type == "flex" and torch.equal(moved.cpu(), whole) and torch.equal(back, whole)
    flex.mul_(0)
    assert all(part.abs().sum() > 0 for part in cpu.unbind())
    assert printed(nested("flex")) == printed(cpu)


@nested_warning
def test_nested_backward():
    def program(device):
        parts = [leaf((n, 4), n, torch.float64, device) for n in (2, 3)]
        layer = made(lambda: nn.Linear(4, 3), device).double()
        output = layer(torch.nested.as_nested_tensor(parts)).to_padded_tensor(0.0)
        (output * seeded(output.shape, 1, torch.float64, device)).sum().backward()
        return output, [part.grad for part in parts], gradients(layer)

    check(program, strides=False)


@nested_warning
@pytest.mark.parametrize(
    "case",
    [
        lambda t: t + torch.ones(3, 2, dtype=t.dtype, device=t.device),
        lambda t: t.view(3, -1),
        lambda t: t.size(1),
        lambda t: t.sort(),
        lambda t: t[:, 0, 0, 0],
    ],
)
def test_nested_errors(case):
    check_error(lambda device: case(nested(device)), same_text=False)


def jagged(device: str, grad: bool = False) -> torch.Tensor:
    parts = [seeded((n, 8), n, torch.float64, device) for n in (2, 5, 3)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, device=device, requires_grad=grad)


def test_jagged():
    def program(device):
        tensor = jagged(device, grad=True)
        assert tensor.is_nested and tensor.layout == torch.jagged and tensor.device.type == device
        layer = made(lambda: nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.LayerNorm(4)), device).double()
        output = layer(tensor)
        total = output.sum() + (tensor * 2).sin().values().sum()
        total.backward()
        return (
            output.values(),
            output.offsets(),
            tensor.grad.values(),
            gradients(layer),
            list(output.detach().unbind()),
            output.to_padded_tensor(0.0),
            tensor.sum(-1).values(),
            tensor.mean(1),
            tensor.softmax(-1).values(),
        )

    check(program, strides=False)


def test_jagged_from_parts_and_moves():
    def program(device):
        values, offsets = seeded((10, 4), device=device), torch.tensor([0, 2, 7, 10], device=device)
        tensor = torch.nested.nested_tensor_from_jagged(values, offsets)
        narrowed = torch.nested.narrow(
            seeded((3, 6, 4), device=device),
            1,
            torch.tensor([0, 1, 2], device=device),
            torch.tensor([3, 2, 4], device=device),
            layout=torch.jagged,
        )
        return (
            tensor.values(),
            narrowed.contiguous().values(),
            torch.nested.masked_select(seeded((3, 4), device=device), seeded((3, 4), 1, device=device) > 0).values(),
        )

    check(program)
    cpu = jagged("cpu")
    flex = cpu.to("flex")
    assert flex.device.type == "flex" and torch.equal(flex.values().cpu(), cpu.values())
    assert torch.equal(flex.cpu().values(), cpu.values())


def test_jagged_attention():
    def program(device):
        parts = [jagged(device).unflatten(-1, (2, 4)).transpose(1, 2) for _ in range(3)]
        return nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2).values()

    check(program, strides=False)
