"""RNN, LSTM and GRU equal the CPU's: layers, directions, packed sequences, projections, cells."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, unpack_sequence

from parity import DOUBLE, DOUBLE_CLOSE, backward, check, check_error, gradients, leaf, made, minimize, seeded

KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
BATCH, LENGTH, INPUT, HIDDEN = 3, 5, 4, 6


def run(
    kind: str,
    device: str,
    *,
    packed: bool = False,
    initial: bool = False,
    batched: bool = True,
    dtype=DOUBLE,
    lengths=(5, 2, 4),
    **options,
):
    """Output, last states, and every gradient, for gradients into the output and the states."""
    layer = made(lambda: KINDS[kind](INPUT, HIDDEN, **options), device).to(dtype)
    first = (BATCH, LENGTH) if options.get("batch_first") else (LENGTH, BATCH)
    inputs = leaf((*first, INPUT) if batched else (LENGTH, INPUT), 1, dtype, device)
    states = None
    if initial:
        count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
        shape = lambda size: (count, BATCH, size) if batched else (count, size)  # noqa: E731
        states = leaf(shape(options.get("proj_size") or HIDDEN), 2, dtype, device)
        if kind == "LSTM":
            states = (states, leaf(shape(HIDDEN), 3, dtype, device))
    given = inputs
    if packed:
        given = pack_padded_sequence(
            inputs, torch.tensor(lengths), options.get("batch_first", False), enforce_sorted=False
        )
    output, last = layer(given, states)
    if isinstance(output, PackedSequence):
        assert output.batch_sizes.device.type == "cpu"
        output, counted = pad_packed_sequence(output, options.get("batch_first", False))
        assert counted.tolist() == list(lengths)
    last = last if isinstance(last, tuple) else (last,)
    loss = sum((part * seeded(part.shape, 10 + i, dtype, device)).sum() for i, part in enumerate((output, *last)))
    loss.backward()
    held = states if isinstance(states, tuple) else (states,)
    return output, last, inputs.grad, gradients(layer), tuple(s.grad for s in held if s is not None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "layers, bidirectional, batch_first, initial",
    [*itertools.product((1, 2), (False, True), (False, True), (False, True))],
)
def test_forward_and_backward(kind, layers, bidirectional, batch_first, initial):
    options = {"num_layers": layers, "bidirectional": bidirectional, "batch_first": batch_first}
    check(lambda device: run(kind, device, initial=initial, **options), strides=False, **DOUBLE_CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "num_layers": 2}, {"batch_first": True, "bias": False}], ids=str
)
def test_packed(kind, options):
    check(lambda device: run(kind, device, packed=True, initial=True, **options), strides=False, **DOUBLE_CLOSE)


@pytest.mark.parametrize(
    "options",
    [
        {"proj_size": 2},
        {"proj_size": 3, "bidirectional": True, "num_layers": 2},
        {"proj_size": 2, "bias": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("packed", [False, True])
def test_projection(options, packed):
    check(lambda device: run("LSTM", device, packed=packed, initial=True, **options), strides=False, **DOUBLE_CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_without_batch_or_bias(kind):
    check(lambda device: run(kind, device, batched=False, initial=True), strides=False, **DOUBLE_CLOSE)
    check(lambda device: run(kind, device, bias=False), strides=False, **DOUBLE_CLOSE)


def test_relu():
    check(lambda device: run("RNN", device, nonlinearity="relu", num_layers=2), strides=False, **DOUBLE_CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes(kind, dtype):
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.1, "atol": 0.1}
    check(lambda device: run(kind, device, dtype=dtype, num_layers=2, bidirectional=True), strides=False, **tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_inference(kind):
    """Without gradients torch takes other kernels (oneDNN's for float32 LSTM)."""

    def program(device):
        layer = made(lambda: KINDS[kind](INPUT, HIDDEN, num_layers=2, bidirectional=True), device).eval()
        with torch.inference_mode():
            return layer(seeded((LENGTH, BATCH, INPUT), device=device))

    check(program, strides=False, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers(kind):
    def outputs(p, seed, train=True):
        layer = made(lambda: KINDS[kind](INPUT, HIDDEN, num_layers=2, dropout=p), "flex").train(train)
        torch.manual_seed(seed)
        return layer(seeded((LENGTH, BATCH, INPUT), device="flex"))[0]

    assert torch.equal(outputs(0.5, 1), outputs(0.5, 1))
    assert not torch.equal(outputs(0.5, 1), outputs(0.5, 2))
    assert not torch.equal(outputs(0.5, 1), outputs(0.0, 1))
    assert torch.equal(outputs(0.5, 1, train=False), outputs(0.0, 1))
    # With everything dropped nothing is random.
    check(lambda device: run(kind, device, num_layers=2, dropout=1.0), strides=False, **DOUBLE_CLOSE)


@pytest.mark.parametrize("build", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_cells(build, bias, given):
    def program(device):
        cell = made(lambda: build(INPUT, HIDDEN, bias=bias), device).double()
        inputs = leaf((BATCH, INPUT), 1, DOUBLE, device)
        state = tuple(leaf((BATCH, HIDDEN), 2 + i, DOUBLE, device) for i in range(2 if build is nn.LSTMCell else 1))
        hidden = None if not given else state if build is nn.LSTMCell else state[0]
        for _ in range(3):
            hidden = cell(inputs, hidden)
        backward((hidden[0] + hidden[1].sin()) if build is nn.LSTMCell else hidden)
        return hidden, inputs.grad, gradients(cell), [s.grad for s in state]

    check(program, **DOUBLE_CLOSE)


@pytest.mark.parametrize("which", [0, 1])
def test_lstm_gradient_into_one_state_only(which):
    def program(device):
        cell = made(lambda: nn.LSTMCell(INPUT, HIDDEN), device).double()
        inputs = leaf((BATCH, INPUT), 1, DOUBLE, device)
        states = cell(inputs)
        backward(states[which])
        return states, inputs.grad, gradients(cell)

    check(program, **DOUBLE_CLOSE)


def test_packing():
    def program(device):
        parts = [seeded((n, 3), n, device=device) for n in (2, 5, 3)]
        packed = pack_sequence(parts, enforce_sorted=False)
        assert packed.data.device.type == device and packed.batch_sizes.device.type == "cpu"
        padded, lengths = pad_packed_sequence(packed, padding_value=-1.0, total_length=7)
        return packed.data, padded, lengths.tolist(), unpack_sequence(packed), packed.sorted_indices

    check(program)


def test_packed_sequence_moves():
    packed = pack_sequence([torch.ones(3, 2), torch.zeros(2, 2)])
    moved = packed.to("flex")
    assert (
        moved.data.device.type == "flex"
        and moved.batch_sizes.device.type == "cpu"
        and moved.cpu().data.device.type == "cpu"
    )
    assert torch.equal(moved.data.cpu(), packed.data)
    lengths = torch.tensor([3, 2], device="flex")
    with pytest.raises(RuntimeError, match="should be a 1D CPU int64 tensor"):
        pack_padded_sequence(torch.ones(3, 2, 2, device="flex"), lengths)


def test_flattened_weights():
    layer = made(lambda: nn.LSTM(INPUT, HIDDEN, num_layers=2), "flex")
    layer.flatten_parameters()
    assert len(layer.all_weights) == 2 and all(w.device.type == "flex" for group in layer.all_weights for w in group)
    moved = layer.to("cpu")(torch.ones(2, 1, INPUT))[0]
    assert moved.device.type == "cpu"


@pytest.mark.parametrize("shape", [(5, 3, 9), (5, 3, 4, 1), (4,)])
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_shapes(kind, shape):
    check_error(lambda device: KINDS[kind](INPUT, HIDDEN, device=device)(torch.ones(shape, device=device)))


def test_wrong_dtype_and_state():
    check_error(lambda device: nn.LSTM(4, 6, device=device)(torch.ones(5, 3, 4, dtype=DOUBLE, device=device)))
    check_error(
        lambda device: nn.GRU(4, 6, device=device)(
            torch.ones(5, 3, 4, device=device), torch.ones(1, 2, 6, device=device)
        )
    )


def test_language_model_trains():
    """An embedding, two recurrent layers and a projection over packed sequences, three steps."""

    def program(device):
        def build():
            return nn.ModuleList(
                [nn.Embedding(11, INPUT), nn.LSTM(INPUT, HIDDEN, 2, batch_first=True), nn.Linear(HIDDEN, 11)]
            )

        words, lstm, head = model = made(build, device).double()
        text = torch.arange(18, device=device).view(3, 6) % 11
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

        def loss():
            packed = pack_padded_sequence(words(text[:, :-1]), torch.tensor([5, 3, 2]), batch_first=True)
            output, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
            return nn.functional.cross_entropy(head(output).flatten(0, 1), text[:, 1:].flatten())

        return minimize(optimizer, loss), gradients(model)

    losses, _ = check(program, **DOUBLE_CLOSE)
    assert losses[-1] < losses[0]
