"""flexcpu.explain: the routes of kernels as their callers see them."""

import threading

import pytest
import torch

import flexcpu

BYTES = [torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.complex128]


def route_of(run):
    with flexcpu.explain() as plans:
        run()
    (plan,) = plans
    return plan.route


@pytest.mark.parametrize("dtype", BYTES, ids=str)
def test_routes_of_copies(dtype):
    x = torch.ones(8, 24, 40, device="flex", dtype=dtype)
    pixels = torch.ones(2, 16, 16, 3, device="flex", dtype=dtype)
    planes = torch.ones(2, 4, 16, 16, device="flex", dtype=dtype)
    assert route_of(lambda: x[1:].clone()[0].to(torch.complex64)) == "contiguous"
    assert route_of(lambda: x[:, ::2].contiguous()) == "rows"
    assert route_of(lambda: x.transpose(0, 1).contiguous()) == "rows"
    assert route_of(lambda: x.mT.contiguous()) == "transpose"
    assert route_of(lambda: x[0].t().contiguous()) == "transpose"
    assert route_of(lambda: pixels.permute(0, 3, 1, 2).contiguous()) == "deinterleave"
    assert route_of(lambda: pixels.permute(0, 3, 1, 2).to(torch.complex128, memory_format=torch.contiguous_format)) == (
        "deinterleave"
    )
    assert route_of(lambda: planes.permute(0, 2, 3, 1).contiguous()) == "interleave"
    assert route_of(lambda: planes.contiguous(memory_format=torch.channels_last)) == "interleave"
    assert route_of(lambda: x.permute(2, 1, 0)[:, :, :4].contiguous()) == "strided"


def test_a_plan_says_what_it_is():
    x = torch.ones(300, 500, dtype=torch.uint8, device="flex")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with flexcpu.explain() as plans:
        x.t().to(torch.bfloat16, memory_format=torch.contiguous_format)
    torch.set_num_threads(threads)
    (plan,) = plans
    assert (plan.family, plan.route, plan.threads) == ("copy", "transpose", 1)
    assert plan.dtypes == (torch.bfloat16, torch.uint8) and sorted(plan.extents) == [300, 500]
    assert list(plan.refusals) == ["contiguous", "rows", "reversed rows", "interleave", "deinterleave"]
    assert str(plans).splitlines()[:2] == [
        "copy: transpose, bfloat16 from uint8, 500 x 300, 1 thread",
        "  not contiguous: an operand is not contiguous",
    ]


def test_every_family():
    x = torch.ones(64, 48, device="flex")
    with flexcpu.explain() as plans:
        x + x.t().contiguous().t()
        x.sum(0)
    assert [(plan.family, plan.route) for plan in plans] == [
        ("copy", "transpose"),
        ("elementwise", "transposed"),
        ("reduce", "vertical"),
    ]
    assert plans[1].dtypes == (torch.float32,) * 3 and plans[1].refusals and plans[2].refusals


def test_only_what_runs_in_the_block_of_this_thread():
    x = torch.ones(64, 48, device="flex")
    x.t().contiguous()
    with flexcpu.explain() as outer:
        x.t().contiguous()
        with flexcpu.explain() as inner:
            x + x
        thread = threading.Thread(target=lambda: x.t().contiguous())
        thread.start()
        thread.join()
        x.clone()  # shares
    x + x
    assert [plan.family for plan in inner] == ["elementwise"]
    assert [plan.family for plan in outer] == ["copy", "elementwise"]
    with flexcpu.explain() as later:
        pass
    assert later == [] and str(later) == ""


def test_an_error_ends_the_block():
    x = torch.ones(4, 4, device="flex")
    with pytest.raises(RuntimeError), flexcpu.explain() as plans:
        x + x
        x + torch.ones(3, device="flex")
    assert [plan.family for plan in plans] == ["elementwise"]


def test_backward_is_explained():
    x = torch.ones(64, 48, device="flex", requires_grad=True)
    y = (x * 2).sum()
    with flexcpu.explain() as plans:
        y.backward()
    assert "elementwise" in [plan.family for plan in plans]
