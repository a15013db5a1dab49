"""Seeds, states and generators of the device."""

import pickle

import pytest
import torch

flex = torch.flex


def draw(generator=None):
    options = {"device": "flex", "generator": generator}
    return torch.cat([
        torch.rand(5, **options), torch.randn(5, **options), torch.randint(9, (5,), **options).float(),
        torch.randperm(5, **options).float(), torch.empty(5, device="flex").exponential_(generator=generator),
        torch.bernoulli(torch.full((5,), 0.5, device="flex"), generator=generator),
        torch.multinomial(torch.ones(5, device="flex"), 3, generator=generator).float(),
        *([] if generator else [torch.nn.functional.dropout(torch.ones(5, device="flex"))]),
    ])  # fmt: skip


@pytest.mark.parametrize("seed", [torch.manual_seed, flex.manual_seed, flex.manual_seed_all, torch.random.manual_seed])
def test_a_seed_repeats_the_stream(seed):
    seed(5)
    first = draw()
    assert not torch.equal(draw(), first)
    seed(5)
    assert torch.equal(draw(), first)
    assert flex.initial_seed() == 5 == flex.default_generators[0].initial_seed()
    seed(6)
    assert not torch.equal(draw(), first)


def test_flex_and_cpu_streams_are_their_own():
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    torch.rand(100, device="flex")
    assert torch.equal(torch.rand(4), expected)
    state = torch.get_rng_state()
    flex.manual_seed(3)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("seed", [flex.seed, flex.seed_all, torch.seed])
def test_seed_is_different_each_time(seed):
    seed()
    first = flex.initial_seed()
    seed()
    assert flex.initial_seed() != first


def test_states():
    state = flex.get_rng_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    first = draw()
    for device in ("flex", "flex:0", torch.device("flex"), 0):
        flex.set_rng_state(state, device)
        assert torch.equal(draw(), first)
        assert torch.equal(flex.get_rng_state(device), flex.get_rng_state_all()[0])
    flex.set_rng_state_all([state])
    assert torch.equal(draw(), first)
    with pytest.raises(RuntimeError):
        flex.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_fork_rng():
    torch.manual_seed(2)
    expected_cpu, expected = torch.rand(3), draw()
    torch.manual_seed(2)
    with torch.random.fork_rng(device_type="flex"):
        torch.rand(7)
        draw()
    assert torch.equal(torch.rand(3), expected_cpu) and torch.equal(draw(), expected)


def test_generators():
    generator = torch.Generator("flex").manual_seed(7)
    assert generator.device == torch.device("flex:0") and generator.initial_seed() == 7
    first = draw(generator)
    assert torch.equal(draw(torch.Generator(device="flex:0").manual_seed(7)), first)
    flex.manual_seed(1)
    state = flex.get_rng_state()
    generator.manual_seed(7)
    assert torch.equal(draw(generator), first)
    assert torch.equal(flex.get_rng_state(), state), "a generator of one's own leaves the default one alone"

    kept, cloned = generator.get_state(), generator.clone_state()
    second = draw(generator)
    generator.set_state(kept)
    assert torch.equal(draw(generator), second) and torch.equal(draw(cloned), second)
    assert torch.equal(draw(torch.Generator("flex").manual_seed(7)), first)
    assert generator.seed() == generator.initial_seed()


def test_generators_travel():
    generator = torch.Generator("flex").manual_seed(7)
    torch.rand(3, device="flex", generator=generator)
    again = pickle.loads(pickle.dumps(generator))
    assert again.device == generator.device
    assert torch.equal(draw(again), draw(generator))


@pytest.mark.parametrize("seed", [-1, 2**64 - 1, 0])
def test_seeds_of_any_sign(seed):
    flex.manual_seed(seed)
    assert flex.initial_seed() == seed % 2**64


def test_wrong_generators():
    with pytest.raises(RuntimeError, match="Expected a 'flex' device type for generator but found 'cpu'"):
        torch.rand(2, device="flex", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'flex'"):
        torch.rand(2, generator=torch.Generator("flex"))
    with pytest.raises(RuntimeError, match="flex has one device"):
        torch.Generator("flex:1")


def test_dropout_and_checkpoint_draw_alike():
    """Checkpointing replays the device's random state."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    x = torch.ones(64, device="flex", requires_grad=True)
    for reentrant in (True, False):
        y = checkpoint(lambda t: torch.nn.functional.dropout(t), x, use_reentrant=reentrant)
        (grad,) = torch.autograd.grad(y.sum(), x) if not reentrant else (None,)
        if reentrant:
            y.sum().backward()
            grad = x.grad
        assert torch.equal(grad, y.detach())
