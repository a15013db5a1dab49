"""Files: torch.save and load with every map_location, mmap, weights_only; pickle; truncated and foreign files."""

import io
import mmap
import pickle
import resource

import pytest
import torch

import flexcpu
from flexcpu import _C

MAPS = {
    "none": (None, "flex"),
    "flex": ("flex", "flex"),
    "flex:0": ("flex:0", "flex"),
    "device": (torch.device("flex"), "flex"),
    "cpu": ("cpu", "cpu"),
    "meta": ("meta", "meta"),
    "dict": ({"flex:0": "cpu"}, "cpu"),
    "callable": (lambda storage, location: storage, "cpu"),
    "callable to flex": (lambda storage, location: storage.flex(), "flex"),
}


def contents(device="flex"):
    base = torch.arange(12.0, device=device).view(3, 4)
    return {
        "base": base,
        "view": base[1:, ::2],
        "half": base.half(),
        "bool": base > 3,
        "complex": torch.complex(base, base + 1).conj(),
        "empty": torch.empty(0, 3, device=device),
        "parameter": torch.nn.Parameter(base.clone() + 1),
        "number": 3,
    }


def check(loaded, device):
    for name, value in contents("cpu").items():
        found = loaded[name]
        if not isinstance(value, torch.Tensor):
            assert found == value
            continue
        assert found.device.type == device and type(found) is type(value) and found.requires_grad == value.requires_grad
        assert (found.shape, found.dtype) == (value.shape, value.dtype)
        if device != "meta":
            assert torch.equal(found.detach().cpu().resolve_conj(), value.detach().resolve_conj()), name
    if device != "meta":
        assert loaded["view"].untyped_storage()._cdata == loaded["base"].untyped_storage()._cdata


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("where", MAPS)
@pytest.mark.parametrize("form", ["zip", "mmap", "legacy"])
@pytest.mark.parametrize("source", ["flex", "cpu"])
def test_save_and_load(tmp_path, source, form, where, weights_only):
    path = tmp_path / "file.pt"
    torch.save(contents(source), path, _use_new_zipfile_serialization=form != "legacy")
    map_location, device = MAPS[where]
    if source == "cpu" and map_location is None or where == "dict" and source == "cpu":
        device = "cpu"
    loaded = torch.load(path, map_location, mmap=form == "mmap", weights_only=weights_only)
    check(loaded, device)
    if device == "flex":
        loaded["base"].fill_(7)
        assert loaded["view"].eq(7).all()
        check(torch.load(path, map_location, weights_only=weights_only), device)


def test_loading_the_device_that_is_not_there():
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on FLEX device 3"):
        torch.load(file, "flex:3")


@pytest.mark.parametrize("mapped", [False, True])
def test_loaded_bytes_are_adopted_and_stay_shareable(tmp_path, mapped):
    path = tmp_path / "file.pt"
    torch.save({"a": torch.arange(8.0, device="flex"), "b": torch.ones(8, device="flex")}, path)
    stored = path.read_bytes()
    loaded = torch.load(path, "flex", mmap=mapped)
    for t in loaded.values():
        state = _C.buffer_state(t.untyped_storage())
        assert state["owners"] == 1 and not state["escaped"] and flexcpu.shares_memory(t, t.clone())
    clone = loaded["a"].clone()
    loaded["a"].add_(1)
    assert clone.tolist() == list(range(8)) and loaded["b"].eq(1).all()
    loaded["b"].resize_(1000)[8:].fill_(2)
    assert loaded["b"][:8].eq(1).all()
    assert path.read_bytes() == stored


@pytest.mark.parametrize("legacy", [False, True])
def test_saving_leaves_tensors_shareable(legacy):
    t = torch.ones(8, device="flex")
    torch.save(t, io.BytesIO(), _use_new_zipfile_serialization=not legacy)
    pickle.dumps(t)
    assert not _C.buffer_state(t.untyped_storage())["escaped"] and flexcpu.shares_memory(t, t.clone())
    t.untyped_storage().data_ptr()
    assert _C.buffer_state(t.untyped_storage())["escaped"]


def test_a_mapped_checkpoint_is_not_read(tmp_path):
    path = tmp_path / "file.pt"
    torch.save(torch.zeros(1 << 26, dtype=torch.uint8, device="flex"), path)
    torch.load(path, "flex", mmap=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    t = torch.load(path, "flex", mmap=True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 2000
    assert t.numel() == 1 << 26 and t[::4097].sum() == 0


def test_a_shared_mapping_of_the_file_is_copied(tmp_path):
    path = tmp_path / "file.pt"
    torch.save(torch.ones(8, device="flex"), path)
    stored = path.read_bytes()
    with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        t = torch.load(path, "flex", mmap=True)
    t.fill_(5)
    assert path.read_bytes() == stored and t.eq(5).all()


def test_files_load_where_the_device_is_not(tmp_path, python):
    path = str(tmp_path / "file.pt")
    torch.save(torch.arange(3.0, device="flex"), path)
    done = python(
        """
        import sys, torch
        print(torch.load(sys.argv[1], map_location="cpu"))
        try:
            torch.load(sys.argv[1])
        except RuntimeError as error:
            print("flex:0" in str(error))
        """,
        path,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.stdout == "tensor([0., 1., 2.])\nTrue\n"


def test_modules_and_optimizers(tmp_path):
    path = tmp_path / "file.pt"
    module = torch.nn.Linear(3, 3).flex()
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(2, 3, device="flex")).sum().backward()
    optimizer.step()
    torch.save({"module": module.state_dict(), "optimizer": optimizer.state_dict()}, path)
    loaded = torch.load(path)
    twin = torch.nn.Linear(3, 3).flex()
    twin.load_state_dict(loaded["module"])
    twin_optimizer = torch.optim.Adam(twin.parameters())
    twin_optimizer.load_state_dict(loaded["optimizer"])
    for m, o in ((module, optimizer), (twin, twin_optimizer)):
        o.zero_grad()
        m(torch.ones(2, 3, device="flex")).square().sum().backward()
        o.step()
    assert torch.equal(module.weight, twin.weight)
    torch.save(module, path)
    assert torch.equal(torch.load(path, weights_only=False).weight, module.weight)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol):
    again = pickle.loads(pickle.dumps(contents(), protocol))
    for name, value in contents().items():
        if isinstance(value, torch.Tensor):
            assert again[name].is_flex and torch.equal(again[name], value)
    sparse = torch.eye(3, device="flex").to_sparse()
    assert torch.equal(pickle.loads(pickle.dumps(sparse, protocol)).to_dense(), sparse.to_dense())


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9])
def test_truncated_files_are_errors(tmp_path, kept):
    path = tmp_path / "file.pt"
    torch.save(contents(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    before = torch.flex.memory_allocated()
    for mapped in (False, True):
        with pytest.raises((RuntimeError, EOFError, OSError, ValueError)):
            torch.load(path, "flex", mmap=mapped)
    assert torch.flex.memory_allocated() == before


def test_load_into_a_model_in_place(tmp_path):
    path = tmp_path / "file.pt"
    module = torch.nn.Linear(3, 3).flex()
    torch.save(module.state_dict(), path)
    with torch.device("meta"):
        twin = torch.nn.Linear(3, 3)
    twin.load_state_dict(torch.load(path, "flex", mmap=True), assign=True)
    assert twin.weight.is_flex and torch.equal(twin.weight, module.weight)
