"""A small convolutional network learns scikit-learn's handwritten digits on both devices, epoch by epoch in turns."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from . import DEVICES

EPOCHS = 12
BATCH = 64


def network() -> nn.Module:
    """From (N, 1, 8, 8) images to (N, 10) logits; 150,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


@dataclass
class Training:
    """One device's run: the loss of each step, the time spent, and what the test images say in the end."""

    device: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    accuracy: float = 0.0

    @classmethod
    def start(cls, device: str) -> Training:
        torch.manual_seed(0)
        model = network().to(device)
        return cls(device, model, torch.optim.Adam(model.parameters(), lr=1e-3))

    def epoch(self, images: torch.Tensor, labels: torch.Tensor, order: torch.Tensor) -> None:
        started = time.perf_counter()
        for batch in order.to(self.device).split(BATCH):
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(images[batch]), labels[batch])
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
        self.seconds += time.perf_counter() - started

    def test(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.model.eval()
        with torch.no_grad():
            self.accuracy = (self.model(images).argmax(1) == labels).float().mean().item()


def train() -> dict[str, Training]:
    """Trains on both devices, under one progress bar each."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_images, test_images = (torch.tensor(part, dtype=torch.float32).view(-1, 1, 8, 8) / 16 for part in parts[:2])
    train_labels, test_labels = (torch.tensor(part) for part in parts[2:])

    shuffle = torch.Generator().manual_seed(0)
    trainings = {device: Training.start(device) for device in DEVICES}
    data = {device: (train_images.to(device), train_labels.to(device)) for device in DEVICES}
    loss = TextColumn("epochs, loss {task.fields[loss]}")
    columns = (TextColumn("{task.description:>4}"), BarColumn(), MofNCompleteColumn(), loss, TimeElapsedColumn())
    with Progress(*columns) as progress:
        bars = {device: progress.add_task(device, total=EPOCHS, loss="") for device in DEVICES}
        for epoch in range(EPOCHS):
            order = torch.randperm(len(train_images), generator=shuffle)
            # In turns, and in changing order, so that neither has the machine at its best.
            for device in DEVICES if epoch % 2 else reversed(DEVICES):
                trainings[device].epoch(*data[device], order)
                progress.update(bars[device], advance=1, loss=f"{trainings[device].losses[-1]:.4f}")
    for device, training in trainings.items():
        training.test(test_images.to(device), test_labels.to(device))
    return trainings


def plot(trainings: dict[str, Training], path: Path) -> None:
    """Loss curves of both devices, and how far they are apart, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (curves, apart) = pyplot.subplots(
        2, 1, sharex=True, figsize=(8, 6), height_ratios=(3, 1), layout="constrained"
    )
    styles = {"cpu": {"color": "#9ecae1", "linewidth": 5}, "flex": {"color": "#b30000", "linewidth": 1}}
    for device, training in trainings.items():
        curves.plot(training.losses, label=f"{device}: test accuracy {training.accuracy:.2%}", **styles[device])
    curves.set(title="Handwritten digits: the same training on both devices", ylabel="cross-entropy", yscale="log")
    curves.legend()
    apart.plot(loss_differences(trainings), color="#444444", linewidth=1)
    apart.set(xlabel="step", ylabel="|difference|")
    apart.set_yscale("symlog", linthresh=1e-8)
    for axes in (curves, apart):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def loss_differences(trainings: dict[str, Training]) -> list[float]:
    """|loss on cpu - loss on flex| of each step."""
    return [abs(a - b) for a, b in zip(*(trainings[device].losses for device in DEVICES), strict=True)]
