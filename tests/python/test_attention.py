"""Attention equals the CPU's: the choice of kernel and the values of scaled_dot_product_attention, multi-head attention
and transformer layers with their fast paths."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as attend

from parity import DOUBLE, DOUBLE_CLOSE, backward, check, check_error, gradients, leaf, made, seeded, state

FLOAT_TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 5, 7, 8


def operands(device: str, dtype=torch.float32, heads: int = HEADS, queries: int = QUERIES, grad: bool = True):
    shapes = [(BATCH, HEADS, queries, SIZE), (BATCH, heads, KEYS, SIZE), (BATCH, heads, KEYS, SIZE)]
    return [seeded(shape, i, dtype, device).requires_grad_(grad) for i, shape in enumerate(shapes)]


def mask(kind: str, device: str, dtype=torch.float32):
    if kind == "none":
        return None
    shape = {
        "small": (QUERIES, KEYS),
        "batch": (BATCH, 1, 1, KEYS),
        "whole": (BATCH, HEADS, QUERIES, KEYS),
        "bool": (QUERIES, KEYS),
        "bool batch": (BATCH, 1, QUERIES, KEYS),
        "grad": (HEADS, QUERIES, KEYS),
    }[kind]
    if kind.startswith("bool"):
        keep = seeded(shape, 9, device=device) > -0.5
        keep[..., 0] = True
        return keep
    return seeded(shape, 9, dtype, device).requires_grad_(kind == "grad")


MASKS = ["none", "small", "batch", "whole", "bool", "bool batch", "grad"]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE, torch.bfloat16, torch.float16])
def test_masks(kind, dtype):
    def program(device):
        given, bias = operands(device, dtype), mask(kind, device, dtype)
        output = attend(*given, attn_mask=bias)
        backward(output)
        return output, [t.grad for t in given], bias.grad if bias is not None else None

    check(program, **({"rtol": 2e-2, "atol": 2e-2} if dtype.itemsize == 2 else FLOAT_TOLERANCE))


@pytest.mark.parametrize(
    "heads, causal, scale, grad", itertools.product((HEADS, 2, 1), (False, True), (None, 0.3), (False, True))
)
def test_causal_grouped_scaled(heads, causal, scale, grad):
    def program(device):
        given = operands(device, heads=heads, grad=grad)
        output = attend(*given, is_causal=causal, scale=scale, enable_gqa=heads != HEADS)
        if grad:
            backward(output)
        return output, [t.grad for t in given]

    check(program, **FLOAT_TOLERANCE)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grad", [False, True])
def test_choice_of_kernel(kind, dtype, grad):
    """The same fused kernel or the same composite as the CPU."""

    def program(device):
        given = operands(device, dtype, grad=grad)
        chosen = torch._fused_sdp_choice(*given, attn_mask=mask(kind, device, dtype))
        return chosen, attend(*given, attn_mask=mask(kind, device, dtype)).grad_fn.__class__.__name__

    check(program)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_chosen_backend(backend):
    def program(device):
        with sdpa_kernel(backend):
            given = operands(device)
            output = attend(*given, is_causal=True)
            backward(output)
            return output, [t.grad for t in given], output.grad_fn.__class__.__name__

    check(program, **FLOAT_TOLERANCE)


@pytest.mark.parametrize(
    "shape", [(QUERIES, SIZE), (3, QUERIES, SIZE), (2, 3, 2, QUERIES, SIZE), (2, 3, 0, SIZE), (0, 3, 4, SIZE)]
)
def test_other_ranks_and_empty(shape):
    def program(device):
        given = [seeded(shape, i, device=device).requires_grad_() for i in range(3)]
        output = attend(*given)
        backward(output)
        return output, [t.grad for t in given]

    check(program, **FLOAT_TOLERANCE)


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded", "odd"])
def test_layouts(layout):
    def program(device):
        query, key, value = operands(device, grad=False)
        if layout == "transposed":
            query, key, value = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (query, key, value))
        elif layout == "sliced":
            query, key, value = (torch.cat([t, t], -1)[..., ::2] for t in (query, key, value))
        elif layout == "expanded":
            key, value = key[:, :1].expand(-1, HEADS, -1, -1), value[:, :1].expand(-1, HEADS, -1, -1)
        else:
            query, key, value = query[..., :5], key[..., :5], value[..., :5]
        for tensor in (query, key, value):
            tensor.requires_grad_()
        output = attend(query, key, value, is_causal=True)
        backward(output)
        return output, query.grad, key.grad, value.grad

    check(program, **FLOAT_TOLERANCE)


def test_rows_without_keys():
    def program(device):
        given = operands(device)
        keep = torch.ones(QUERIES, KEYS, dtype=torch.bool, device=device)
        keep[2] = False
        output = attend(*given, attn_mask=keep)
        backward(output)
        return output, [t.grad for t in given]

    check(program, **FLOAT_TOLERANCE)


@pytest.mark.parametrize("bias", [causal_upper_left, causal_lower_right])
def test_causal_bias(bias):
    check(lambda device: attend(*operands(device), attn_mask=bias(QUERIES, KEYS)), **FLOAT_TOLERANCE)


def test_dropout():
    query, key, value = operands("flex", DOUBLE)
    value = torch.eye(KEYS, dtype=DOUBLE, device="flex").expand(BATCH, HEADS, KEYS, KEYS)
    whole = attend(query, key, value)  # the weights themselves
    torch.manual_seed(1)
    dropped = attend(query, key, value, dropout_p=0.5)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], whole[kept] * 2)
    assert 0.3 < float(kept.double().mean()) < 0.7
    torch.manual_seed(1)
    assert torch.equal(attend(query, key, value, dropout_p=0.5), dropped)
    check(lambda device: attend(*operands(device), dropout_p=1.0).nan_to_num(), **FLOAT_TOLERANCE)


def test_double_backward():
    def program(device):
        with sdpa_kernel(SDPBackend.MATH):
            given = operands(device, DOUBLE)
            first = torch.autograd.grad(attend(*given, is_causal=True).sin().sum(), given, create_graph=True)
            return torch.autograd.grad(sum((g**2).sum() for g in first), given)

    check(program, strides=False, **DOUBLE_CLOSE)


def test_functorch():
    def program(device):
        given = operands(device, DOUBLE, grad=False)
        mapped = torch.func.vmap(lambda q, k, v: attend(q, k, v))(*given)
        slope = torch.func.grad(lambda q: attend(q, *given[1:]).sum())(given[0])
        with sdpa_kernel(SDPBackend.MATH):
            pushed = torch.func.jvp(lambda q: attend(q, *given[1:]), (given[0],), (torch.ones_like(given[0]),))
        return mapped, slope, pushed

    check(program, strides=False, **DOUBLE_CLOSE)


@pytest.mark.parametrize(
    "case",
    [
        lambda q, k, v: attend(q, k[..., :4], v),
        lambda q, k, v: attend(q, k.double(), v),
        lambda q, k, v: attend(q, k, v, attn_mask=torch.ones(3, 3, device=q.device)),
        lambda q, k, v: attend(q, k, v, attn_mask=torch.ones(QUERIES, KEYS, dtype=torch.int32, device=q.device)),
        lambda q, k, v: attend(q, k[:, :3], v[:, :3], enable_gqa=True),
        lambda q, k, v: attend(q[0, 0, 0], k, v),
        lambda q, k, v: attend(q, k, v, dropout_p=1.5),
    ],
)
def test_errors(case):
    check_error(lambda device: case(*operands(device, grad=False)))


# ---- nn.MultiheadAttention ----


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True},
        {"bias": False},
        {"kdim": 6, "vdim": 10},
        {"add_bias_kv": True},
        {"add_zero_attn": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("weights", [True, False])
def test_multihead_attention(options, weights):
    def program(device):
        layer = made(lambda: nn.MultiheadAttention(16, 4, **options), device).double()
        first = (BATCH, 5) if options.get("batch_first") else (5, BATCH)
        query = leaf((*first, 16), 1, DOUBLE, device)
        key = leaf((*first, options.get("kdim", 16)), 2, DOUBLE, device)
        value = leaf((*first, options.get("vdim", 16)), 3, DOUBLE, device)
        padding = torch.zeros(BATCH, 5, dtype=torch.bool, device=device)
        padding[1, 3:] = True
        causal = nn.Transformer.generate_square_subsequent_mask(5, device=device, dtype=DOUBLE)
        output, seen = layer(
            query,
            key,
            value,
            key_padding_mask=padding,
            attn_mask=causal,
            need_weights=weights,
            average_attn_weights=False,
        )
        backward(output)
        return output, seen, query.grad, key.grad, value.grad, gradients(layer)

    check(program, strides=False, **DOUBLE_CLOSE)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masked", [None, "padding", "attention"])
@pytest.mark.parametrize("weights", [True, False])
def test_multihead_attention_in_inference(batch_first, masked, weights):
    """In eval without gradients torch takes a fused op for self-attention."""

    def program(device):
        layer = made(lambda: nn.MultiheadAttention(16, 4, batch_first=batch_first), device).eval()
        first = (BATCH, 5) if batch_first else (5, BATCH)
        x = seeded((*first, 16), 1, device=device)
        padding = torch.arange(5, device=device) >= torch.tensor([[5], [3]], device=device)
        causal = torch.ones(5, 5, dtype=torch.bool, device=device).triu(1)
        with torch.no_grad():
            return layer(
                x,
                x,
                x,
                key_padding_mask=padding if masked == "padding" else None,
                attn_mask=causal if masked == "attention" else None,
                need_weights=weights,
            )

    check(program, strides=False, **FLOAT_TOLERANCE)


def test_multihead_attention_without_batch():
    def program(device):
        layer = made(lambda: nn.MultiheadAttention(16, 4), device)
        x = leaf((5, 16), 1, device=device)
        output, seen = layer(x, x, x)
        backward(output)
        return output, seen, x.grad

    check(program, strides=False, **FLOAT_TOLERANCE)


# ---- Transformers ----


def encoder(**options) -> nn.TransformerEncoder:
    nested = options.pop("nested", False)
    layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_trains(activation, norm_first):
    def program(device):
        model = made(lambda: encoder(activation=activation, norm_first=norm_first), device).double()
        inputs = leaf((BATCH, 6, 16), 1, DOUBLE, device)
        padding = torch.arange(6, device=device) >= torch.tensor([[6], [4]], device=device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(2):
            optimizer.zero_grad()
            output = model(inputs, src_key_padding_mask=padding)
            backward(output)
            optimizer.step()
        return output, inputs.grad, gradients(model), state(model)

    check(program, strides=False, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", [None, "padding", "causal"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_encoder_fast_path(activation, norm_first, masked, mode):
    def program(device):
        model = made(lambda: encoder(activation=activation, norm_first=norm_first), device).eval()
        inputs = seeded((BATCH, 6, 16), 1, device=device)
        padding = torch.arange(6, device=device) >= torch.tensor([[6], [4]], device=device)
        causal = nn.Transformer.generate_square_subsequent_mask(6, device=device)
        with mode():
            return model(
                inputs,
                src_key_padding_mask=padding if masked == "padding" else None,
                mask=causal if masked == "causal" else None,
                is_causal=masked == "causal",
            )

    check(program, strides=False, **FLOAT_TOLERANCE)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
def test_encoder_with_padding_removed():
    """enable_nested_tensor=True, torch's default: inside, the batch is a nested tensor without the padding."""

    def program(device):
        model = made(lambda: encoder(nested=True), device).eval()
        padding = torch.arange(6, device=device) >= torch.tensor([[6], [4]], device=device)
        with torch.no_grad():
            output = model(seeded((BATCH, 6, 16), 1, device=device), src_key_padding_mask=padding)
        return output.masked_fill(padding[..., None], 0)

    check(program, strides=False, **FLOAT_TOLERANCE)


@pytest.mark.parametrize("batch_first", [False, True])
def test_transformer(batch_first):
    def program(device):
        model = made(lambda: nn.Transformer(16, 4, 2, 2, 24, dropout=0.0, batch_first=batch_first), device).double()
        shape = lambda n: (BATCH, n, 16) if batch_first else (n, BATCH, 16)  # noqa: E731
        source, target = leaf(shape(6), 1, DOUBLE, device), leaf(shape(4), 2, DOUBLE, device)
        causal = model.generate_square_subsequent_mask(4, device=device, dtype=DOUBLE)
        output = model(source, target, tgt_mask=causal, tgt_is_causal=True)
        backward(output)
        with torch.no_grad():
            evaluated = model.eval()(source, target, tgt_mask=causal)
        return output, evaluated, source.grad, target.grad, gradients(model)

    check(program, strides=False, **DOUBLE_CLOSE)


def test_transformer_dropout_is_reproducible():
    model = made(lambda: nn.Transformer(16, 4, 1, 1, 24, dropout=0.2, batch_first=True), "flex")
    source, target = seeded((2, 6, 16), 1, device="flex"), seeded((2, 4, 16), 2, device="flex")
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(model(source, target))
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize("fast", [True, False])
def test_fast_path_switch(fast):
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fast)
    try:

        def program(device):
            model = made(lambda: encoder(), device).eval()
            with torch.no_grad():
                return model(seeded((BATCH, 6, 16), 1, device=device))

        check(program, strides=False, **FLOAT_TOLERANCE)
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def test_positional_embedding_and_cross_entropy_with_ignored_labels():
    def program(device):
        model = made(
            lambda: nn.ModuleList([nn.Embedding(11, 16, padding_idx=0), encoder(), nn.Linear(16, 11)]), device
        ).double()
        text = torch.tensor([[3, 5, 7, 2], [4, 1, 0, 0]], device=device)
        labels = text.masked_fill(text == 0, -100)
        places = (
            torch.arange(4, device=device, dtype=DOUBLE)[:, None] * torch.ones(16, dtype=DOUBLE, device=device) / 10
        )
        hidden = model[1](model[0](text) + places.sin(), src_key_padding_mask=text == 0)
        loss = nn.functional.cross_entropy(model[2](hidden).transpose(1, 2), labels, label_smoothing=0.1)
        loss.backward()
        return loss, gradients(model)

    check(program, strides=False, **DOUBLE_CLOSE)
