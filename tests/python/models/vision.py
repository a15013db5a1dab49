"""Small convolutional nets."""

from __future__ import annotations

import torch
from torch import nn


class DoubleConv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.GroupNorm(2, outputs),
            nn.SiLU(),
        )


class UNet(nn.Module):
    """(N, 3, H, W) to (N, classes, H, W), H and W divisible by 4: pooling and striding down, transposed convolution and
    interpolation up, skip connections."""

    def __init__(self, classes: int = 2, width: int = 4):
        super().__init__()
        self.first = DoubleConv(3, width)
        self.second = DoubleConv(width, 2 * width)
        self.down = nn.Conv2d(2 * width, 2 * width, 2, stride=2, groups=2)
        self.bottom = DoubleConv(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.third = DoubleConv(4 * width, 2 * width)
        self.fourth = DoubleConv(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = self.first(images)
        second = self.second(nn.functional.max_pool2d(first, 2))
        bottom = self.bottom(self.down(second))
        third = self.third(torch.cat([self.up(bottom), second], 1))
        wide = nn.functional.interpolate(third, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.fourth(torch.cat([wide, first], 1)))
