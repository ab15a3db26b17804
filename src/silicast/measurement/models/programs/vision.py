"""Vision models to measure: ResNet-50 and a vision transformer.

ResNet-50 (He et al. 2016), the stride in the 3 x 3 convolutions as torchvision has it.

A vision transformer (Dosovitskiy et al. 2021): patches, a class token, pre-norm layers.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import nn
from torch.nn import functional

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


@final
class VisionLayer(nn.Module):
    """Attention and MLP with pre-norm and residual."""

    def __init__(self, width: int, heads: int, dtype: Any) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, dtype=dtype) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, dtype=dtype)
        self.proj = nn.Linear(width, width, dtype=dtype)
        self.up = nn.Linear(width, 4 * width, dtype=dtype)
        self.down = nn.Linear(4 * width, width, dtype=dtype)

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


@final
class VisionTransformer(nn.Module):
    """Images of 224 x 224 to 1,000 classes."""

    def __init__(self, width: int, depth: int, heads: int, dtype: Any) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16, dtype=dtype)
        self.token = nn.Parameter(torch.zeros(1, 1, width, dtype=dtype))
        self.position = nn.Parameter(torch.zeros(1, 197, width, dtype=dtype))
        self.layers = nn.Sequential(*[VisionLayer(width, heads, dtype) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, dtype=dtype)
        self.head = nn.Linear(width, 1000, dtype=dtype)

    def forward(self, images: Any) -> Any:
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.layers(x)[:, 0]))


SMALL_VIT = {"width": 384, "depth": 12, "heads": 6}
BASE_VIT = {"width": 768, "depth": 12, "heads": 12}


@measured(
    "vit",
    {"s16-b1": {**SMALL_VIT, "batch": 1}, "s16-b4": {**SMALL_VIT, "batch": 4}},
    {"b16-b8": {**BASE_VIT, "batch": 8}, "b16-b128": {**BASE_VIT, "batch": 128}},
)
def vit(position: Place, sizes: Sizes) -> ModelCall:
    """ViT-S/16 and ViT-B/16."""
    dtype = position.torch_dtype()
    model = VisionTransformer(sizes["width"], sizes["depth"], sizes["heads"], dtype)
    return ModelCall(model, (torch.randn(sizes["batch"], 3, 224, 224, dtype=dtype),))
