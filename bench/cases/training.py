"""Whole training steps: forward, backward, optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from ..case import Case


class Step:
    """One step on the same batch each time; returns the loss, detached."""

    def __init__(
        self, model: nn.Module, batch: torch.Tensor, labels: torch.Tensor, loss: Callable, optimizer: Callable
    ):
        self.model, self.batch, self.labels, self.loss = model, batch, labels, loss
        self.optimizer = optimizer(model.parameters())

    def __call__(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(self.model(self.batch), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def _adam(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4)


@dataclass(frozen=True)
class Cnn:
    """(N, 3, size, size) images to ten classes: three times convolution, batch norm, ReLU, max pooling."""

    batch: int = 64
    size: int = 64
    channels: tuple[int, ...] = (32, 64, 128)

    def on(self, device: str, generator: torch.Generator) -> Step:
        layers, width = [], 3
        for channels in self.channels:
            layers += [nn.Conv2d(width, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]
            width = channels
        features = width * (self.size >> len(self.channels)) ** 2
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 10)).to(device)
        images = torch.randn(self.batch, 3, self.size, self.size, generator=generator).to(device)
        labels = torch.randint(10, (self.batch,), generator=generator).to(device)
        return Step(model, images, labels, F.cross_entropy, _adam)


class _Transformer(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, length: int):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(length, width) * 0.02)
        # Dropout draws other numbers on another device, and results could not be compared.
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.tokens(tokens) + self.positions, mask=self.mask, is_causal=True)
        return self.head(self.norm(hidden)).flatten(0, 1)


@dataclass(frozen=True)
class Transformer:
    """A causal language model of (batch, length) tokens."""

    layers: int = 4
    width: int = 256
    heads: int = 8
    vocabulary: int = 8000
    batch: int = 16
    length: int = 128

    def on(self, device: str, generator: torch.Generator) -> Step:
        model = _Transformer(self.layers, self.width, self.heads, self.vocabulary, self.length).to(device)
        text = torch.randint(self.vocabulary, (self.batch, self.length + 1), generator=generator)
        tokens, labels = (t.contiguous().to(device) for t in (text[:, :-1], text[:, 1:].flatten()))
        return Step(model, tokens, labels, F.cross_entropy, _adam)


@dataclass(frozen=True)
class Mlp:
    """(batch, widths[0]) rows to one number: linear layers and ReLU."""

    batch: int = 1024
    widths: tuple[int, ...] = (100, 512, 512, 1)

    def on(self, device: str, generator: torch.Generator) -> Step:
        layers = [nn.Linear(self.widths[0], self.widths[1])]
        for a, b in pairwise(self.widths[1:]):
            layers += [nn.ReLU(), nn.Linear(a, b)]
        rows = torch.randn(self.batch, self.widths[0], generator=generator).to(device)
        targets = torch.randn(self.batch, self.widths[-1], generator=generator).to(device)
        return Step(nn.Sequential(*layers).to(device), rows, targets, F.mse_loss, _adam)


_LOSSES = "torch.stack([step() for _ in range(3)])"
_CLOSE = (1e-3, 1e-5)

CASES = [
    Case("cnn", "step()", {"step": Cnn()}, check=_LOSSES, mark=1.15, memory_mark=1.15, tolerance=_CLOSE),
    Case("transformer", "step()", {"step": Transformer()}, check=_LOSSES, mark=1, memory_mark=1.15, tolerance=_CLOSE),
    Case("mlp", "step()", {"step": Mlp()}, check=_LOSSES, mark=1, tolerance=_CLOSE),
    Case("mlp-tiny", "step()", {"step": Mlp(32, (32, 32, 1))}, check=_LOSSES, mark=1, tolerance=_CLOSE),
]
