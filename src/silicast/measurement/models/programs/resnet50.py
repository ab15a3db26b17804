"""ResNet-50 (He et al. 2016), the stride in the 3 x 3 convolutions as torchvision has it."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import nn

from silicast.measurement.models.model_case import ModelCall, Place, Sizes, measured


def convolution(c_in: int, c_out: int, size: int, stride: int, dtype: Any) -> list[nn.Module]:
    """A convolution without bias and its batch norm."""
    return [
        nn.Conv2d(c_in, c_out, size, stride, size // 2, bias=False, dtype=dtype),
        nn.BatchNorm2d(c_out, dtype=dtype),
    ]


@final
class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, c_in: int, mid: int, stride: int, dtype: Any) -> None:
        super().__init__()
        out = 4 * mid
        self.conv1, self.bn1 = convolution(c_in, mid, 1, 1, dtype)
        self.conv2, self.bn2 = convolution(mid, mid, 3, stride, dtype)
        self.conv3, self.bn3 = convolution(mid, out, 1, 1, dtype)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride > 1 or c_in != out:
            self.down = nn.Sequential(*convolution(c_in, out, 1, stride, dtype))

    def forward(self, x: Any) -> Any:
        """Images of four times the middle channels."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


@final
class ResNet50(nn.Module):
    """Images to 1,000 classes."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *convolution(3, 64, 7, 2, dtype), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks, channels = [], 64
        for stage, depth in enumerate((3, 4, 6, 3)):
            for number in range(depth):
                stride = 2 if stage and not number else 1
                blocks.append(Bottleneck(channels, 64 << stage, stride, dtype))
                channels = 4 * (64 << stage)
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, 1000, dtype=dtype)

    def forward(self, images: Any) -> Any:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(images))), 1))


@measured(
    "resnet50",
    {"b1": {"batch": 1}, "b4": {"batch": 4}},
    {"b8": {"batch": 8}, "b128": {"batch": 128}},
)
def resnet50(position: Place, sizes: Sizes) -> ModelCall:
    """Images of 224 x 224, channels first."""
    dtype = position.torch_dtype()
    return ModelCall(ResNet50(dtype), (torch.randn(sizes["batch"], 3, 224, 224, dtype=dtype),))
