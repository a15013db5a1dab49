"""One small layer of every kind that has a derivative of its own, with the shape of its input."""

from __future__ import annotations

import torch
from torch import nn

from parity import DOUBLE, leaf, made


class First(nn.Module):
    """A layer's first result."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, inputs):
        return self.layer(inputs)[0]


class Paired(First):
    """A layer of two inputs."""

    def forward(self, inputs):
        return self.layer(inputs, inputs.cos())


LAYERS = {
    "linear": (lambda: nn.Linear(5, 4), (3, 5)),
    "bilinear": (lambda: Paired(nn.Bilinear(5, 5, 4)), (3, 5)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), (2, 4, 7)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, stride=2), (2, 3, 7, 7)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, dilation=2), (1, 2, 5, 5, 5)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (2, 3, 4, 4)),
    "lstm": (lambda: First(nn.LSTM(5, 4, num_layers=2, bidirectional=True)), (3, 2, 5)),
    "gru": (lambda: First(nn.GRU(5, 4, batch_first=True)), (2, 3, 5)),
    "rnn": (lambda: First(nn.RNN(5, 4)), (3, 2, 5)),
    "lstm_cell": (lambda: First(nn.LSTMCell(5, 4)), (3, 5)),
    "gru_cell": (lambda: nn.GRUCell(5, 4), (3, 5)),
    "layer_norm": (lambda: nn.LayerNorm(5), (3, 5)),
    "rms_norm": (lambda: nn.RMSNorm(5), (3, 5)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "batch_norm": (lambda: nn.BatchNorm2d(3), (4, 3, 3, 3)),
    "batch_norm in eval": (lambda: nn.BatchNorm1d(3).eval(), (4, 3)),
    "instance_norm": (lambda: nn.InstanceNorm1d(3, affine=True), (2, 3, 6)),
    "avg_pool2d": (lambda: nn.AvgPool2d(2), (2, 3, 6, 6)),
    "max_pool2d": (lambda: nn.MaxPool2d(2), (2, 3, 6, 6)),
    "adaptive_avg_pool2d": (lambda: nn.AdaptiveAvgPool2d(2), (2, 3, 5, 5)),
    "softmax": (lambda: nn.Softmax(-1), (3, 5)),
    "gelu": (lambda: nn.GELU("tanh"), (3, 5)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), (2, 3, 4, 4)),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), (2, 4, 3, 3)),
    "prelu": (lambda: nn.PReLU(3), (2, 3, 4)),
}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def mlp_and_inputs(device: str) -> tuple[nn.Module, torch.Tensor]:
    """In float64."""
    return made(mlp, device).double(), leaf((4, 5), 1, DOUBLE, device)
