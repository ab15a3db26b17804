"""Decoders of latent images: the second half of a variational autoencoder (AutoencoderKL).

A convolution, two residual blocks around attention over all latent pixels, then levels of residual
blocks from the widest to the narrowest, with twice the pixels a side after all but the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError, unmodelled
from silicast.workload.graphs.graph import Graph
from silicast.workload.networks.network_nodes import NetworkNodes, class_in

CLASS = "AutoencoderKL"


@final
@dataclass(frozen=True)
class ImageDecoder:
    """Sizes of a decoder.

    Attributes:
        channels: of a latent pixel; widths: of the levels, from the image inwards.
        layers: residual blocks of an encoder's level; a decoder's has one more.
    """

    channels: int
    widths: tuple[int, ...]
    layers: int

    COLOURS: ClassVar[int] = 3

    @property
    def pixels(self) -> int:
        """Of the image a side that one latent pixel stands for."""
        return 1 << (len(self.widths) - 1)

    def graph(self, images: int, height: int, width: int, dtype: str) -> Graph:
        """One pass for so many images of ``height`` x ``width`` pixels."""
        nodes, wide = NetworkNodes(dtype), self.widths[-1]
        side = (-(-height // self.pixels), -(-width // self.pixels))
        nodes.convolution("latent_in", images, (self.channels, wide), side)
        _residual(nodes, "middle_1", images, (wide, wide), side)
        _attention(nodes, images, wide, side[0] * side[1])
        _residual(nodes, "middle_2", images, (wide, wide), side)
        inner = wide
        for level, outer in enumerate(reversed(self.widths)):
            for layer in range(self.layers + 1):
                _residual(nodes, f"up_{level}_{layer}", images, (inner, outer), side)
                inner = outer
            if level < len(self.widths) - 1:
                side = (2 * side[0], 2 * side[1])
                nodes.pointwise(f"repeat_{level}", "copy", images * inner * side[0] * side[1])
                nodes.convolution(f"smooth_{level}", images, (inner, inner), side)
        nodes.group_norm("last_norm", images * inner * side[0] * side[1])
        nodes.pointwise("last_silu", "silu", images * inner * side[0] * side[1])
        nodes.convolution("image_out", images, (inner, self.COLOURS), side)
        return Graph("image_decoder", (nodes.block("decoder"),))


def _residual(
    nodes: NetworkNodes, name: str, images: int, channels: tuple[int, int], side: tuple[int, int]
) -> None:
    """Norm, activation and convolution twice, beside the input or a convolution of it."""
    (inner, outer), area = channels, images * side[0] * side[1]
    for step, width in ((1, inner), (2, outer)):
        nodes.group_norm(f"{name}_norm{step}", area * width)
        nodes.pointwise(f"{name}_silu{step}", "silu", area * width)
        nodes.convolution(f"{name}_conv{step}", images, (width, outer), side)
    if inner != outer:
        nodes.convolution(f"{name}_skip", images, (inner, outer), side, kernel=1)
    nodes.pointwise(f"{name}_add", "add", area * outer, 2)


def _attention(nodes: NetworkNodes, images: int, wide: int, pixels: int) -> None:
    nodes.group_norm("middle_norm", images * pixels * wide)
    for name in ("q", "k", "v"):
        nodes.linear(f"middle_{name}", images * pixels, wide, wide)
    nodes.attention("middle_attention", images, 1, wide, pixels, pixels)
    nodes.linear("middle_o", images * pixels, wide, wide)
    nodes.pointwise("middle_add", "add", images * pixels * wide, 2)


def decoder_of(config: Mapping[str, Any], field: str = "model") -> ImageDecoder:
    """The decoder that a configuration in the form of diffusers describes; what it leaves out is as
    there.

    Raises:
        SilicastError: another class, or sizes that are none.
    """
    kind = class_in(config)
    if kind != CLASS:
        raise unmodelled(
            f"no model of the image decoder {kind!r:.60}",
            field,
            f"architectures = ['{CLASS}'], block_out_channels, layers_per_block",
        )
    widths = config.get("block_out_channels", [64])
    numbers = (config.get("latent_channels", 4), config.get("layers_per_block", 1))
    whole = isinstance(widths, list) and 0 < len(widths) <= 16
    for number in (*numbers, *(widths if whole else ("",))):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= 65536:
            raise SilicastError(
                f"expected whole numbers from 1 to 65536, found {number!r:.40}",
                field=field,
                hint="latent_channels = 16, layers_per_block = 2, "
                "block_out_channels = [128, 256, 512, 512]",
            )
    return ImageDecoder(numbers[0], tuple(widths), numbers[1])
