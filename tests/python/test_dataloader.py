"""DataLoader and pinned memory."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Rows(Dataset):
    """Rows made on a device in the worker; or indexed from a tensor that the parent made."""

    def __init__(self, device, source=None):
        self.device, self.source = device, source

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if self.source is not None:
            return self.source[index], index
        return torch.full((3,), float(index), device=self.device).add(0.5), index


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("made", ["cpu", "flex", "parent"])
def test_workers(method, made):
    source = torch.arange(36.0, device="flex").view(12, 3) if made == "parent" else None
    loader = DataLoader(
        Rows(made, source), batch_size=4, num_workers=2, multiprocessing_context=method, persistent_workers=True
    )
    for _ in range(2):
        rows = []
        for batch, index in loader:
            assert batch.device.type == ("cpu" if made == "cpu" else "flex")
            rows += batch.flex().tolist()
            assert index.device.type == "cpu"
        expected = source if source is not None else torch.arange(12.0).add(0.5).repeat(3, 1).T
        assert rows == expected.tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_pin_memory(workers, recwarn):
    loader = DataLoader(TensorDataset(torch.arange(12.0)), batch_size=4, num_workers=workers, pin_memory=True)
    values = []
    for (batch,) in loader:
        assert batch.is_pinned() and batch.device.type == "cpu"
        values += batch.to("flex", non_blocking=True).tolist()
    assert values == list(range(12))
    assert not [str(warning.message) for warning in recwarn if "pin_memory" in str(warning.message)]


def test_training_from_workers():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    module = torch.nn.Linear(4, 1).flex()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for _ in range(10):
        for rows, targets in DataLoader(data, batch_size=16, num_workers=2, shuffle=True, pin_memory=True):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(module(rows.flex()), targets.flex())
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.01 * losses[0] + 1e-3


def test_only_pinned_memory_is_pinned():
    ordinary = torch.arange(8.0)
    pinned = ordinary.pin_memory()
    assert pinned.is_pinned() and pinned[3:].is_pinned() and pinned.tolist() == ordinary.tolist()
    assert not ordinary.is_pinned() and not ordinary.flex().is_pinned() and not torch.empty(0).is_pinned()
    assert pinned.pin_memory() is pinned
    assert torch.empty(4, pin_memory=True).is_pinned()
    assert ordinary.untyped_storage().pin_memory().is_pinned()
    pointer = pinned.data_ptr()
    del pinned
    later = [torch.empty(8) for _ in range(50)]
    assert not any(t.is_pinned() for t in later), pointer
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        ordinary.flex().pin_memory()
