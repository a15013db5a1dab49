"""Models of the transformers library, from configurations: forward, backward, training, generation equal the CPU's."""

from __future__ import annotations

import copy

import pytest
import torch

from models.language import FAMILIES, tokens
from parity import check, gradients, state

pytest.importorskip("transformers", reason="pip install transformers (part of flexcpu[demo] and flexcpu[test])")

CASES = [
    (family, attention) for family in FAMILIES for attention in (("",) if family == "mamba" else ("eager", "sdpa"))
]
GENERATORS = ["gpt2", "t5", "whisper", "mamba"]
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def case(family: str, attention: str = "sdpa"):
    return FAMILIES[family](attention)


@pytest.mark.parametrize("family, attention", CASES)
def test_training_step(family, attention):
    def program(device):
        model, inputs = case(family, attention)(device)
        result = model.train()(**inputs, return_dict=True)
        result.loss.backward()
        return {"loss": result.loss, "logits": result.logits, "gradients": gradients(model), "state": state(model)}

    found = check(program, **TOLERANCE)
    assert any(gradient is not None and gradient.abs().max() > 0 for gradient in found["gradients"].values())


@pytest.mark.parametrize("family, attention", CASES)
def test_inference_shows_every_hidden_state(family, attention):
    def program(device):
        model, inputs = case(family, attention)(device)
        with torch.no_grad():
            result = model.eval()(**inputs, output_hidden_states=True, return_dict=True)
        return {name: value for name, value in result.items() if isinstance(value, (torch.Tensor, tuple))}

    found = check(program, **TOLERANCE)
    assert any("hidden_states" in name for name in found)


@pytest.mark.parametrize("family", FAMILIES)
def test_three_steps_of_adamw(family):
    def program(device):
        model, inputs = case(family)(device, dtype=torch.float64)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
        return losses, state(model)

    # Adam divides small gradients by their own size, and some models sum in float32 whatever their dtype.
    losses, _ = check(program, rtol=1e-4, atol=1e-5)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_bfloat16_inference(family):
    def program(device):
        model, inputs = case(family)(device, dtype=torch.bfloat16)
        with torch.inference_mode():
            return model.eval()(**inputs).logits

    check(program, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("family", GENERATORS)
def test_greedy_generation(family, cached):
    def program(device):
        model, inputs = case(family)(device)
        inputs.pop("labels")
        return model.eval().generate(**inputs, max_new_tokens=8, min_new_tokens=8, do_sample=False, use_cache=cached)

    check(program)


def test_beam_search():
    def program(device):
        model, inputs = case("gpt2")(device)
        inputs.pop("labels")
        return model.eval().generate(**inputs, max_new_tokens=6, num_beams=3, do_sample=False, length_penalty=0.8)

    check(program)


def test_sampling_is_reproducible():
    model, inputs = case("gpt2")("flex")
    inputs.pop("labels")
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(model.eval().generate(**inputs, max_new_tokens=12, do_sample=True, top_k=20, top_p=0.95))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize(
    "family, first, second",
    [
        ("gpt2", "transformer.wte.weight", "lm_head.weight"),
        ("bert", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
        ("t5", "shared.weight", "encoder.embed_tokens.weight"),
    ],
)
def test_tied_weights_stay_tied(family, first, second):
    model = case(family).build()
    before = list(model.parameters())
    pointed_at = model.get_parameter(first)
    assert pointed_at is model.get_parameter(second)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    moved, inputs = model.to("flex"), {name: tensor.to("flex") for name, tensor in case(family).inputs().items()}
    assert all(p is q for p, q in zip(before, moved.parameters(), strict=True))
    assert moved.get_parameter(first) is moved.get_parameter(second) is pointed_at
    assert all(p.device.type == "flex" for p in before)

    # The optimizer of before the move trains the moved model, and the tie holds through it and through copies.
    old = pointed_at.detach().clone()
    moved(**inputs).loss.backward()
    optimizer.step()
    assert not torch.equal(old, pointed_at)
    assert torch.equal(moved.get_parameter(first), moved.get_parameter(second))
    copied = copy.deepcopy(moved)
    assert copied.get_parameter(first) is copied.get_parameter(second)
    back = moved.to("cpu")
    assert back.get_parameter(first) is back.get_parameter(second) is pointed_at


@pytest.mark.parametrize("family", ["gpt2", "vit", "mamba"])
def test_saved_model_comes_back(family, tmp_path):
    model, inputs = case(family)("flex")
    model.eval().save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert {p.device.type for p in loaded.parameters()} == {"cpu"}
    placed = type(model).from_pretrained(tmp_path).to("flex").eval()
    with torch.no_grad():
        expected = model(**inputs).logits
        assert torch.equal(placed(**inputs).logits, expected)
        on_cpu = loaded.eval()(**{name: tensor.cpu() for name, tensor in inputs.items()}).logits
    torch.testing.assert_close(expected.cpu(), on_cpu, **TOLERANCE)


def test_gradient_checkpointing():
    def program(device):
        model, inputs = case("gpt2")(device)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        loss = model.train()(**inputs, use_cache=False).loss
        loss.backward()
        return loss, gradients(model)

    check(program, **TOLERANCE)


def test_cache_continues_a_sentence():
    """Logits of the last token are the same whether the tokens before it come from a cache or are given again."""
    model, _ = case("gpt2")("flex")
    text = tokens((2, 8)).to("flex")
    with torch.no_grad():
        whole = model.eval()(text).logits[:, -1]
        cache = model(text[:, :-1], use_cache=True).past_key_values
        continued = model(text[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]
    torch.testing.assert_close(continued, whole, **TOLERANCE)
