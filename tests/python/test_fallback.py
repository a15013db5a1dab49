"""The fallback: the CPU kernel over the same bytes, counted."""

import pytest
import torch

import flexcpu
from flexcpu import _C


@pytest.fixture(autouse=True)
def fresh_report():
    torch.flex.reset_fallback_report()
    yield
    _C.set_fallback_mode(_C.FallbackMode.silent)


def flex(*shape):
    return torch.randn(*shape).to("flex")


def test_calls_are_counted_per_op():
    x = flex(4)
    for _ in range(3):
        torch.erfinv(x)
    torch.lgamma(x)
    report = torch.flex.fallback_report()
    assert report["aten::erfinv"] == 3 and report["aten::lgamma"] == 1
    torch.flex.reset_fallback_report()
    assert "aten::erfinv" not in torch.flex.fallback_report()


def test_native_ops_are_not_counted():
    x, y = flex(3, 4), flex(4, 3)
    (
        x + y.t(),
        x - 1,
        x * 2.5,
        x / y.t(),
        x.sum(0),
        x.mean(),
        x.t().contiguous(),
        x.to(torch.bfloat16),
        x.zero_(),
        x.fill_(1),
    )
    x.cpu(), x.clone(), x.view(12), x[1], x.item if False else None
    assert torch.flex.fallback_report() == {}


def test_error_mode_forbids_and_names_the_op():
    x = flex(4)
    _C.set_fallback_mode(_C.FallbackMode.error)
    with pytest.raises(NotImplementedError, match=r"aten::erfinv has no native flex kernel"):
        torch.erfinv(x)
    assert torch.flex.fallback_report() == {}
    (x + x).sum()


def test_warn_mode_warns_once_per_op():
    x = flex(4)
    _C.set_fallback_mode(_C.FallbackMode.warn)
    with pytest.warns(UserWarning, match="aten::i0e|aten::special_i0e"):
        torch.special.i0e(x)


def test_a_block_can_forbid_it():
    x = flex(4)
    with torch.flex.forbid_fallback():
        x + 1
        with pytest.raises(NotImplementedError):
            torch.erfinv(x)
    torch.erfinv(x)


def test_inputs_stay_shared_and_tracked():
    x = flex(100)
    peer = x.clone()
    torch.erfinv(x)
    assert flexcpu.shares_memory(x, peer)
    torch.erfinv(x, out=torch.empty(100, device="flex"))
    assert not _C.buffer_state(x.untyped_storage())["escaped"]
    x.erfinv_()
    assert not _C.buffer_state(x.untyped_storage())["escaped"]
    assert flexcpu.shares_memory(x, x.clone())


def test_results_are_adopted_and_shareable():
    y = torch.erfinv(flex(100))
    assert y.device.type == "flex" and flexcpu.shares_memory(y, y.clone())


def test_results_that_are_views_of_an_argument_stay_views():
    x = flex(4, 4)
    parts = torch.ops.aten.unsafe_split.Tensor(x, 2)
    values, _ = (
        torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2), (3,)).to("flex").coalesce().values(),
        parts,
    )
    values.mul_(3)
    assert values.tolist() == [3, 3]


def test_overlapping_arguments_are_seen_as_on_the_cpu():
    x = torch.arange(10.0)
    y = x.to("flex")
    with pytest.raises(RuntimeError) as cpu:
        torch.erfinv(x[:9], out=x[1:])
    with pytest.raises(RuntimeError) as own:
        torch.erfinv(y[:9], out=y[1:])
    assert str(cpu.value) == str(own.value)


def test_a_resized_out_is_written_back():
    out = torch.empty(0, device="flex")
    view = out.view(0)
    torch.erfinv(torch.zeros(5, 5, device="flex"), out=out)
    assert out.shape == (5, 5) and out.eq(0).all() and view.shape == (0,)
    peer = out.clone()
    out.add_(1)
    assert peer.eq(0).all()


@pytest.mark.parametrize(
    "op",
    [
        lambda d, o: torch.mm(torch.ones(2, 2, device=d), torch.ones(2, 2, device=o)),
        lambda d, o: torch.atan2(torch.ones(2, device=d), torch.ones(2, device=o)),
        lambda d, o: torch.cat([torch.ones(2, device=d), torch.ones(2, device=o)]),
        lambda d, o: torch.ones(2, device=d).add(torch.ones(2, device=o)),
        lambda d, o: torch.ones(2, device=d).gather(0, torch.zeros(1, dtype=torch.long, device=o)),
        lambda d, o: torch.where(torch.ones(2, device=d) > 0, torch.ones(2, device=d), torch.ones(2, device=o)),
        lambda d, o: torch.sin(torch.ones(2, device=d), out=torch.ones(2, device=o)),
        lambda d, o: torch.nn.functional.linear(torch.ones(2, 2, device=d), torch.ones(2, 2, device=o)),
        lambda d, o: torch.nn.functional.conv1d(torch.ones(1, 1, 3, device=d), torch.ones(1, 1, 1, device=o)),
        lambda d, o: torch.ones(2, device=d).mul_(torch.ones(2, device=o)),
        lambda d, o: torch.addmm(torch.ones(2, 2, device=d), torch.ones(2, 2, device=d), torch.ones(2, 2, device=o)),
    ],
)
@pytest.mark.parametrize("devices", [("flex", "cpu"), ("cpu", "flex")])
def test_mixed_devices_raise(op, devices):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        op(*devices)


def test_cpu_scalars_and_cpu_indices_mix_in():
    x = torch.arange(6.0, device="flex")
    assert (x * torch.tensor(2.0)).tolist() == [0, 2, 4, 6, 8, 10]
    assert (torch.tensor(2.0) - x).device.type == "flex"
    assert torch.atan2(x, torch.tensor(1.0)).device.type == "flex"
    assert x[torch.tensor([1, 3])].tolist() == [1, 3]
    x[torch.tensor([0])] = 7
    x[torch.tensor([True, False, False, False, False, True])] = 9
    assert x.tolist() == [9, 1, 2, 3, 4, 9]


def test_generators():
    x = torch.empty(5, device="flex")
    own = torch.Generator("flex").manual_seed(3)
    a = x.normal_(generator=own).clone()
    own.manual_seed(3)
    assert torch.equal(a, x.normal_(generator=own))
    with pytest.raises(RuntimeError, match="Expected a 'flex' device type for generator but found 'cpu'"):
        x.normal_(generator=torch.Generator())
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator"):
        torch.empty(5).normal_(generator=own)


def test_device_random_ops_leave_the_cpu_stream_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    torch.rand(100, device="flex"), torch.nn.functional.dropout(torch.ones(50, device="flex"), 0.5)
    torch.multinomial(torch.ones(9, device="flex"), 3), torch.randperm(9, device="flex"), torch.rand(3, device="flex")
    assert torch.equal(torch.rand(3), expected)


def test_an_error_of_the_cpu_kernel_loses_nothing():
    x = torch.arange(6.0, device="flex")
    peer = x.clone()
    for bad in (
        lambda: x.index_fill_(0, torch.tensor([99], device="flex"), 1.0),
        lambda: torch.cholesky_inverse(x),
        lambda: x.sort(dim=5),
        lambda: torch.mm(x, x),
    ):
        with pytest.raises((RuntimeError, IndexError)):
            bad()
    assert torch.equal(x, peer) and x.tolist() == list(range(6))


def test_out_of_memory_is_an_error_and_the_process_goes_on():
    before = torch.flex.memory_allocated()
    for n in (2**50, 2**60):
        with pytest.raises(RuntimeError):
            torch.empty(n, device="flex")
        with pytest.raises(RuntimeError):
            torch.ones(1, device="flex").expand(n).contiguous()
    assert torch.flex.memory_allocated() <= before + 64
    assert torch.ones(3, device="flex").sum().item() == 3


def test_lists_dicts_and_undefined_tensors():
    xs = [flex(3), flex(2, 2)]
    assert [y.shape for y in torch._foreach_erf(xs)] == [(3,), (2, 2)]
    torch._foreach_zero_(xs)
    assert all(x.eq(0).all() for x in xs)
    result = torch.ops.aten.native_group_norm(flex(2, 4, 3), None, None, 2, 4, 3, 2, 1e-5)
    assert result[0].device.type == "flex"
    _, grad, none = torch.ops.aten.native_layer_norm_backward(
        flex(2, 3),
        flex(2, 3),
        [3],
        torch.zeros(2, 1, device="flex"),
        torch.ones(2, 1, device="flex"),
        None,
        None,
        [True, False, False],
    )
    assert grad is None and none is None


def test_ops_that_choose_by_device_name_take_the_cpus_way():
    x = torch.randint(0, 3, (4, 5)).to("flex")
    for flexed, cpu in zip(x.mode(1), x.cpu().mode(1), strict=True):
        assert torch.equal(flexed.cpu(), cpu)
    out = (torch.empty(0, dtype=torch.long, device="flex"), torch.empty(0, dtype=torch.long, device="flex"))
    torch.mode(x, 1, out=out)
    assert torch.equal(out[0].cpu(), x.cpu().mode(1)[0])


def test_an_argument_that_is_the_result_is_seen_as_such():
    for device in ("cpu", "flex"):
        x = torch.ones(5, 1, dtype=torch.bool, device=device)
        with pytest.raises(
            RuntimeError, match=r"output with shape \[5, 1\] doesn't match the broadcast shape \[5, 5\]"
        ):
            x.logical_and_(torch.ones(5, 5, dtype=torch.bool, device=device))
        assert x.shape == (5, 1)


def test_indices_of_tensor_split_may_be_on_either_device():
    x = torch.arange(12.0, device="flex").reshape(6, 2).requires_grad_()
    for device in ("cpu", "flex"):
        parts = x.tensor_split(torch.tensor([1, 4], device=device))
        assert [part.tolist() for part in parts] == [part.tolist() for part in x.cpu().tensor_split([1, 4])]
        assert all(part._base is x._base for part in parts)
        (grad,) = torch.autograd.grad(sum(part.sum() for part in parts[1:]), x)
        assert grad.tolist() == [[0.0, 0.0]] + [[1.0, 1.0]] * 5
        with torch.inference_mode():
            assert len(x.tensor_split(torch.tensor(3, device=device))) == 3


def test_max_pool1d_makes_indices_only_for_a_backward():
    x = torch.randn(2, 3, 10, device="flex")
    for grad in (False, True):
        torch.flex.reset_fallback_report()
        torch.nn.functional.max_pool1d(x.requires_grad_(grad), 3)
        assert list(torch.flex.fallback_report()) == ["aten::max_pool2d_with_indices" if grad else "aten::max_pool1d"]


def test_an_output_that_was_resized_before_the_kernel_failed():
    def run(device):
        out = torch.zeros(1, device=device)
        with pytest.raises((RuntimeError, IndexError)) as error:
            torch.index_select(
                torch.arange(6.0, device=device), 0, torch.tensor([0, 1, 99], device=device), out=out
            )
        return out.shape, str(error.value)

    assert run("flex") == run("cpu")


def test_an_alias_that_a_kernel_kept_when_memory_is_out():
    library, kept = torch.library.Library("flexcpu_test_kept", "DEF"), []
    library.define("keep(Tensor x) -> Tensor")
    library.impl("keep", lambda x: (kept.append(x), torch.zeros(1))[1], "CPU")
    x = torch.ones(1 << 20, device="flex")
    y = x.clone()
    torch.flex.set_per_process_memory_fraction(0.0)
    try:
        torch.ops.flexcpu_test_kept.keep(x)
    finally:
        torch.flex.set_per_process_memory_fraction(1.0)
    x.add_(1)
    assert kept[0].sum() == 1 << 20 and y.sum() == 1 << 20 and x.sum() == 2 << 20
