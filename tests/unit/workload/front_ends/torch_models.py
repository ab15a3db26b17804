"""Small programs of every kind, written as people write them; import only where torch is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    def __init__(self, c_in: int, mid: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c_in, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv2 = nn.Conv2d(mid, mid, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(mid)
        self.conv3, self.bn3 = nn.Conv2d(mid, 4 * mid, 1, bias=False), nn.BatchNorm2d(4 * mid)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride > 1 or c_in != 4 * mid:
            self.down = nn.Sequential(
                nn.Conv2d(c_in, 4 * mid, 1, stride, bias=False), nn.BatchNorm2d(4 * mid)
            )

    def forward(self, x: Any) -> Any:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        stages, c = [], width
        for i, depth in enumerate(depths):
            for j in range(depth):
                stages.append(Bottleneck(c, width << i, 2 if i and not j else 1))
                c = 4 * (width << i)
        self.stages = nn.Sequential(*stages)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(c, 1000)

    def forward(self, x: Any) -> Any:
        return self.head(torch.flatten(self.pool(self.stages(self.stem(x))), 1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal, self.dropout = heads, causal, nn.Dropout(dropout)

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.dropout(self.proj(y.transpose(1, 2).reshape(b, n, c)))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, causal, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, width: int = 384, depth: int = 6, heads: int = 6, patch: int = 16) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, 197, width))
        self.layers = nn.Sequential(*[Layer(width, heads, causal=False) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.layers(x))[:, 0])


class GPT(nn.Module):
    """GPT-2 with its loss; the head shares the embedding's weights."""

    def __init__(self, width: int = 384, depth: int = 4, heads: int = 6, vocab: int = 8192,
                 dropout: float = 0.0) -> None:  # fmt: skip
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList(
            [Layer(width, heads, causal=True, dropout=dropout) for _ in range(depth)]
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens: Any, labels: Any = None) -> Any:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        if labels is None:
            return logits
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


class ResidualUnit(nn.Module):
    def __init__(self, c: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, c), nn.GroupNorm(8, c)
        self.conv1, self.conv2 = nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, c, 3, 1, 1)
        self.time = nn.Linear(time, c)

    def forward(self, x: Any, t: Any) -> Any:
        y = (
            self.conv1(functional.silu(self.norm1(x)))
            + self.time(functional.silu(t))[:, :, None, None]
        )
        return x + self.conv2(functional.silu(self.norm2(y)))


class UNet(nn.Module):
    """A diffusion model's U-Net with attention over a text at its lowest level."""

    def __init__(self, c: int = 64, text: int = 128) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(4, c, 3, 1, 1), nn.Conv2d(c, 4, 3, 1, 1)
        self.down, self.up = nn.Conv2d(c, c, 3, 2, 1), nn.ConvTranspose2d(c, c, 4, 2, 1)
        self.first, self.middle, self.last = (ResidualUnit(c, c) for _ in range(3))
        self.join = nn.Conv2d(2 * c, c, 1)
        self.q, self.kv = nn.Linear(c, c), nn.Linear(text, 2 * c)

    def forward(self, x: Any, t: Any, words: Any) -> Any:
        x = self.first(self.enter(x), t)
        low = self.middle(self.down(x), t)
        b, c, h, w = low.shape
        q = self.q(low.flatten(2).transpose(1, 2)).view(b, h * w, 4, -1).transpose(1, 2)
        k, v = self.kv(words).view(b, words.shape[1], 2, 4, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c)
        low = low + y.transpose(1, 2).reshape(b, c, h, w)
        return self.leave(self.last(self.join(torch.cat([x, self.up(low)], dim=1)), t))


class DiT(nn.Module):
    """Blocks of a diffusion transformer: shift, scale and gate from the time step."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.attn = Attention(width, heads, causal=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Any, t: Any) -> Any:
        a, b, c, d, e, f = self.modulation(t)[:, None].chunk(6, dim=-1)
        x = x + c * self.attn(self.norm(x) * (1 + b) + a)
        return x + f * self.mlp(self.norm(x) * (1 + e) + d)


class Convolutions(nn.Module):
    """Every kind of convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv1d(16, 32, 5, 2, 2)
        self.two = nn.Conv2d(8, 16, (3, 5), (1, 2), (2, 1), dilation=(2, 1), groups=4)
        self.depthwise = nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.three = nn.Conv3d(3, 8, (3, 4, 4), (1, 4, 4), (1, 0, 0))
        self.across = nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1, groups=2)
        self.back = nn.ConvTranspose1d(32, 16, 4, 2, 1)

    def forward(self, sound: Any, image: Any, film: Any) -> Any:
        y = self.depthwise(self.two(image))
        return self.back(self.one(sound)), self.across(y), self.three(film)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(64, 128, 2, batch_first=True), nn.GRU(128, 64)

    def forward(self, x: Any) -> Any:
        y, _ = self.lstm(x)
        return self.gru(y.transpose(0, 1))[0]


def encoder_decoder() -> nn.Module:
    return nn.Transformer(128, 4, 2, 2, 512, dropout=0.0, batch_first=True)


def zoo() -> dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]]:
    """Name -> how to make the module, inputs of a call."""
    pixels = torch.zeros(2, 3, 224, 224)
    tokens = torch.zeros(2, 256, dtype=torch.int64)
    return {
        "resnet50": (ResNet, (pixels,)),
        "vit": (ViT, (pixels,)),
        "gpt2": (GPT, (tokens, tokens)),
        "unet": (UNet, (torch.zeros(2, 4, 32, 32), torch.zeros(2, 64), torch.zeros(2, 77, 128))),
        "dit": (DiT, (torch.zeros(2, 256, 256), torch.zeros(2, 256))),
        "encoder_decoder": (encoder_decoder, (torch.zeros(2, 50, 128), torch.zeros(2, 30, 128))),
        "convolutions": (
            Convolutions,
            (torch.zeros(2, 16, 100), torch.zeros(2, 8, 33, 40), torch.zeros(1, 3, 8, 32, 32)),
        ),
    }
