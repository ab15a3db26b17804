"""Denoising U-Nets of Stable Diffusion 1, 2 and XL (UNet2DConditionModel of diffusers).

Levels of residual blocks, most with transformers behind them that attend to the image and to the
text; half the pixels a side from one level to the next, then back up, where every block also reads
what the way down has left. Modulation by the time is a product in every residual block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError, unmodelled
from silicast.workload.graphs.graph import Graph
from silicast.workload.networks.network_nodes import NetworkNodes

CLASS = "UNet2DConditionModel"
_DOWN = {"DownBlock2D": False, "CrossAttnDownBlock2D": True}
_UP = {"UpBlock2D": False, "CrossAttnUpBlock2D": True}
_USUAL_DOWN = ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",)
_USUAL_UP = ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3


@final
@dataclass(frozen=True)
class DenoisingUNet:
    """Sizes of such a network, levels from the image inwards.

    Attributes:
        channels: of a latent pixel; widths: of the levels; layers: residual blocks of a level on
            the way down, one less than on the way up.
        down, up: transformer layers behind each residual block of a level; 0 = none. ``up`` is in
            the order in which the levels run: from the innermost.
        middle: transformer layers between both ways.
        heads: of attention, by level.
        text_width, text_tokens: of a prompt.
        added_width: of what sizes and pooled text add to the time; 0 = nothing.
    """

    channels: int
    widths: tuple[int, ...]
    layers: int
    down: tuple[int, ...]
    up: tuple[int, ...]
    middle: int
    heads: tuple[int, ...]
    text_width: int
    text_tokens: int = 77
    added_width: int = 0

    guided: ClassVar[bool] = True
    """Each step is usually evaluated with the prompt and without."""
    PIXELS: ClassVar[int] = 8
    """Of the image a side that a latent pixel stands for."""

    def latent(self, height: int, width: int) -> tuple[int, int]:
        """Sides in latent pixels, rounded up so that every level halves them.

        >>> unet_of({"architectures": ["UNet2DConditionModel"]}).latent(512, 760)
        (64, 96)
        """
        least = 1 << (len(self.widths) - 1)
        high, wide = (-(-side // (self.PIXELS * least)) * least for side in (height, width))
        return high, wide

    def graph(
        self, inputs: int, side: tuple[int, int], dtype: str, *, cached: bool = False
    ) -> Graph:
        """One evaluation of so many latent images of ``side``.

        Args:
            inputs: with guidance, twice the images.
            cached: levels below the outermost reuse what the step before has left (DeepCache): the
                first residual block of the way down and the last of the way up are run.
        """
        run = _UNetPass(self, NetworkNodes(dtype), inputs)
        return Graph("denoising_unet", tuple(run.cached(side) if cached else run.whole(side)))


@final
class _UNetPass:
    """Makes the nodes of one evaluation."""

    def __init__(self, unet: DenoisingUNet, nodes: NetworkNodes, inputs: int) -> None:
        self._unet, self._nodes, self._inputs = unet, nodes, inputs
        self._time = 4 * unet.widths[0]

    def whole(self, side: tuple[int, int]) -> list[Any]:
        unet, nodes = self._unet, self._nodes
        blocks = [self._first(side)]
        wide, left = unet.widths[0], [unet.widths[0]]
        last = len(unet.widths) - 1
        for level, outer in enumerate(unet.widths):
            for layer in range(unet.layers):
                self._layer(f"down_{level}_{layer}", wide, outer, side, unet.down[level], level)
                wide = outer
                left.append(wide)
            if level < last:
                nodes.convolution(f"halve_{level}", self._inputs, (wide, wide), side, stride=2)
                side = (side[0] // 2, side[1] // 2)
                left.append(wide)
            blocks.append(nodes.block(f"down_{level}"))
        self._residual("middle_1", wide, wide, side)
        self._transformer("middle", wide, side, unet.middle, last)
        self._residual("middle_2", wide, wide, side)
        blocks.append(nodes.block("middle"))
        for number, depth in enumerate(unet.up):
            level = last - number
            outer = unet.widths[level]
            for layer in range(unet.layers + 1):
                self._join(f"join_{level}_{layer}", wide + left[-1], side)
                self._layer(f"up_{level}_{layer}", wide + left.pop(), outer, side, depth, level)
                wide = outer
            if level:
                side = (2 * side[0], 2 * side[1])
                area = self._inputs * side[0] * side[1]
                nodes.pointwise(f"repeat_{level}", "copy", area * wide)
                nodes.convolution(f"smooth_{level}", self._inputs, (wide, wide), side)
            blocks.append(nodes.block(f"up_{level}"))
        return [*blocks, self._last(side)]

    def cached(self, side: tuple[int, int]) -> list[Any]:
        unet, nodes = self._unet, self._nodes
        wide = unet.widths[0]
        blocks = [self._first(side)]
        self._layer("down_0_0", wide, wide, side, unet.down[0], 0)
        self._join("join", 2 * wide, side)
        self._layer("up_0", 2 * wide, wide, side, unet.up[-1], 0)
        return [*blocks, nodes.block("outermost"), self._last(side)]

    def _first(self, side: tuple[int, int]) -> Any:
        unet, nodes, time = self._unet, self._nodes, self._time
        nodes.linear("time_in", self._inputs, time, unet.widths[0])
        nodes.linear("time_out", self._inputs, time, time)
        if unet.added_width:
            nodes.linear("added_in", self._inputs, time, unet.added_width)
            nodes.linear("added_out", self._inputs, time, time)
        nodes.convolution("latent_in", self._inputs, (unet.channels, unet.widths[0]), side)
        return nodes.block("embedding")

    def _last(self, side: tuple[int, int]) -> Any:
        unet, nodes = self._unet, self._nodes
        elements = self._inputs * side[0] * side[1] * unet.widths[0]
        nodes.group_norm("last_norm", elements)
        nodes.pointwise("last_silu", "silu", elements)
        nodes.convolution("latent_out", self._inputs, (unet.widths[0], unet.channels), side)
        latent = self._inputs * side[0] * side[1] * unet.channels
        nodes.pointwise("update", "add", latent, 2)
        return nodes.block("head")

    def _join(self, name: str, wide: int, side: tuple[int, int]) -> None:
        self._nodes.pointwise(name, "copy", self._inputs * side[0] * side[1] * wide)

    def _layer(
        self, name: str, inner: int, outer: int, side: tuple[int, int], depth: int, level: int
    ) -> None:
        self._residual(name, inner, outer, side)
        if depth:
            self._transformer(name, outer, side, depth, level)

    def _residual(self, name: str, inner: int, outer: int, side: tuple[int, int]) -> None:
        """Norm, activation and convolution twice, the time between, beside the input."""
        nodes, inputs, area = self._nodes, self._inputs, self._inputs * side[0] * side[1]
        nodes.group_norm(f"{name}_norm1", area * inner)
        nodes.pointwise(f"{name}_silu1", "silu", area * inner)
        nodes.convolution(f"{name}_conv1", inputs, (inner, outer), side)
        nodes.linear(f"{name}_time", inputs, outer, self._time)
        nodes.pointwise(f"{name}_shift", "add", area * outer)
        nodes.group_norm(f"{name}_norm2", area * outer)
        nodes.pointwise(f"{name}_silu2", "silu", area * outer)
        nodes.convolution(f"{name}_conv2", inputs, (outer, outer), side)
        if inner != outer:
            nodes.convolution(f"{name}_skip", inputs, (inner, outer), side, kernel=1)
        nodes.pointwise(f"{name}_add", "add", area * outer, 2)

    def _transformer(
        self, name: str, wide: int, side: tuple[int, int], depth: int, level: int
    ) -> None:
        """Layers that attend to the image, then to the text, then a gated MLP."""
        nodes, unet, inputs = self._nodes, self._unet, self._inputs
        pixels, heads = side[0] * side[1], unet.heads[level]
        rows, words = inputs * pixels, inputs * unet.text_tokens
        head = wide // heads
        nodes.group_norm(f"{name}_norm", rows * wide)
        nodes.linear(f"{name}_in", rows, wide, wide)
        for layer in range(depth):
            at = f"{name}_{layer}"
            nodes.norm(f"{at}_norm1", rows, wide)
            for projection in "qkv":
                nodes.linear(f"{at}_{projection}1", rows, wide, wide)
            nodes.attention(f"{at}_attention1", inputs, heads, head, pixels, pixels)
            nodes.linear(f"{at}_o1", rows, wide, wide)
            nodes.pointwise(f"{at}_add1", "add", rows * wide, 2)
            nodes.norm(f"{at}_norm2", rows, wide)
            nodes.linear(f"{at}_q2", rows, wide, wide)
            for projection in "kv":
                nodes.linear(f"{at}_{projection}2", words, wide, unet.text_width)
            nodes.attention(f"{at}_attention2", inputs, heads, head, pixels, unet.text_tokens)
            nodes.linear(f"{at}_o2", rows, wide, wide)
            nodes.pointwise(f"{at}_add2", "add", rows * wide, 2)
            nodes.norm(f"{at}_norm3", rows, wide)
            nodes.linear(f"{at}_up", rows, 8 * wide, wide)
            nodes.pointwise(f"{at}_gelu", "gelu", rows * 4 * wide)
            nodes.pointwise(f"{at}_gate", "mul", rows * 4 * wide, 2)
            nodes.linear(f"{at}_down", rows, wide, 4 * wide)
            nodes.pointwise(f"{at}_add3", "add", rows * wide, 2)
        nodes.linear(f"{name}_out", rows, wide, wide)
        nodes.pointwise(f"{name}_back", "add", rows * wide, 2)


def unet_of(config: Mapping[str, Any], field: str = "model") -> DenoisingUNet:
    """The network that a configuration in the form of diffusers describes; what it leaves out is as
    there, which is Stable Diffusion 1.5 but for the width of its text (768).

    Raises:
        SilicastError: blocks of other kinds, or numbers that are none or do not fit each other.
    """
    widths = _whole(config, "block_out_channels", [320, 640, 1280, 1280], field)
    levels = len(widths)
    layers = _whole(config, "layers_per_block", 2, field, levels)
    heads = config.get("num_attention_heads")
    # diffusers takes attention_head_dim for the number of heads where that is not stated
    heads_config = config if heads is None else {"attention_head_dim": heads}
    heads = _whole(heads_config, "attention_head_dim", 8, field, levels)
    depths = _whole(config, "transformer_layers_per_block", 1, field, levels)
    down = _attends(config, "down_block_types", _USUAL_DOWN, _DOWN, field, levels)
    up = _attends(config, "up_block_types", _USUAL_UP, _UP, field, levels)
    middle = config.get("mid_block_type", "UNetMidBlock2DCrossAttn")
    if middle != "UNetMidBlock2DCrossAttn" or len(set(layers)) > 1:
        raise unmodelled(
            f"no model of a middle block {middle!r:.40} or of unequal levels",
            f"{field}.mid_block_type",
            "UNetMidBlock2DCrossAttn, and one layers_per_block",
        )
    added = config.get("addition_embed_type") == "text_time"
    for wide, count in zip(widths, heads, strict=True):
        if wide % count:
            raise SilicastError(
                f"{count} heads do not divide a level of {wide}",
                field=f"{field}.attention_head_dim",
            )
    return DenoisingUNet(
        channels=_whole(config, "in_channels", 4, field)[0],
        widths=widths,
        layers=layers[0],
        down=tuple(d * a for d, a in zip(depths, down, strict=True)),
        up=tuple(d * a for d, a in zip(reversed(depths), up, strict=True)),
        middle=depths[-1],
        heads=heads,
        text_width=_whole(config, "cross_attention_dim", 1280, field)[0],
        added_width=_whole(config, "projection_class_embeddings_input_dim", 2816, field)[0]
        if added
        else 0,
    )


def _whole(
    config: Mapping[str, Any], name: str, usual: int | list[int], field: str, count: int = 0
) -> tuple[int, ...]:
    """Whole numbers, one for all levels or one for each."""
    value = config.get(name, usual)
    numbers = value if isinstance(value, list) else [value] * max(count, 1)
    good = 0 < len(numbers) <= 16 and (not count or len(numbers) == count)
    for number in numbers:
        whole = isinstance(number, int) and not isinstance(number, bool)
        good = good and whole and 0 < number <= 65536
    if not good:
        wanted = f"{count} of them" if count else "one, or a list"
        raise SilicastError(
            f"expected whole numbers from 1 to 65536 ({wanted}), found {value!r:.60}",
            field=f"{field}.{name}",
            hint="as unet/config.json has them",
        )
    return tuple(numbers)


def _attends(
    config: Mapping[str, Any],
    name: str,
    usual: tuple[str, ...],
    kinds: Mapping[str, bool],
    field: str,
    levels: int,
) -> tuple[bool, ...]:
    """Whether each level has transformers."""
    block_types = config.get(name, list(usual))
    good = (
        isinstance(block_types, list)
        and len(block_types) == levels
        and set(map(str, block_types)) <= set(kinds)
    )
    if not good:
        raise unmodelled(
            f"expected {levels} of {', '.join(kinds)}, found {block_types!r:.80}",
            f"{field}.{name}",
            "as unet/config.json has them",
        )
    return tuple(kinds[str(block_type)] for block_type in block_types)
