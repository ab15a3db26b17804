"""Diffusion transformers of the MMDiT kind: text and image in streams that attend jointly.

FLUX has double blocks, in which text and image have weights of their own, and single blocks for
both together; Stable Diffusion 3 has double blocks alone. Modulation of a block follows from the
time and is computed once an image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from silicast.core.errors import SilicastError, unmodelled
from silicast.workload.graphs.graph import Graph
from silicast.workload.networks.network_nodes import NetworkNodes, class_in

CLASSES = ("FluxTransformer2DModel", "SD3Transformer2DModel")


@final
@dataclass(frozen=True)
class DiffusionTransformer:
    """Sizes of such a network.

    Attributes:
        double, single: blocks of each kind; heads, head: of attention and their width.
        channels: of a latent pixel as the network sees it, a patch of the latent image folded in.
        text_width: of a token of the text encoder; text_tokens: of a prompt.
        pixels: of the image a side that one token stands for.
        rotates: positions are rotations of queries and keys, which are normed.
        guided: each step is usually evaluated with the prompt and without; not where guidance is
            distilled into the network.
    """

    double: int
    single: int
    heads: int
    head: int
    channels: int
    text_width: int
    text_tokens: int
    pixels: int = 16
    rotates: bool = True
    guided: bool = False

    @property
    def hidden(self) -> int:
        return self.heads * self.head

    def image_tokens(self, height: int, width: int) -> int:
        """Tokens of an image of so many pixels.

        >>> flux = DiffusionTransformer(19, 38, 24, 128, 64, 4096, 512)
        >>> flux.image_tokens(1024, 1024)
        4096
        """
        return -(-height // self.pixels) * -(-width // self.pixels)

    def graph(
        self,
        inputs: int,
        tokens: int,
        dtype: str,
        *,
        fused: bool = True,
        cached: bool = False,
        gpus: int = 1,
    ) -> Graph:
        """One evaluation of so many latent images of ``tokens`` tokens each, on one of its devices.

        Args:
            inputs: with guidance, twice the images.
            fused: a compiler joins pointwise operations.
            cached: only the first block is run; the others reuse what the step before has left.
            gpus: that share the tokens out (heads in attention).
        """
        both = tokens + self.text_tokens
        text = -(-self.text_tokens // gpus)
        tokens = -(-tokens // gpus)
        nodes, wide = NetworkNodes(dtype), self.hidden
        nodes.linear("image_in", inputs * tokens, wide, self.channels)
        nodes.linear("text_in", inputs * text, wide, self.text_width)
        nodes.linear("time_in", inputs, wide, 256)
        nodes.linear("time_out", inputs, wide, wide)
        blocks = [nodes.block("embedding")]
        self._stream(nodes, "image", inputs, tokens, fused=fused)
        self._stream(nodes, "text", inputs, text, fused=fused)
        nodes.pointwise("join", "copy", 3 * inputs * (tokens + text) * wide)
        nodes.spread_attention("attention", inputs, self.heads, self.head, both, gpus)
        self._after(nodes, "image", inputs * tokens, fused=fused)
        self._after(nodes, "text", inputs * text, fused=fused)
        blocks.append(nodes.block("double", 1 if cached else self.double))
        if self.single and not cached:
            self._together(nodes, inputs, both, gpus, fused=fused)
            blocks.append(nodes.block("single", self.single))
        rows = inputs * tokens
        nodes.linear("last_modulation", inputs, 2 * wide, wide)
        nodes.norm("last_norm", rows, wide)
        nodes.modulated("last_scale", rows * wide, residual=False, fused=fused)
        nodes.linear("image_out", rows, self.channels, wide)
        nodes.pointwise("update", "add", rows * self.channels, 2)
        blocks.append(nodes.block("head"))
        return Graph("diffusion_transformer", tuple(blocks))

    def _stream(
        self, nodes: NetworkNodes, name: str, images: int, tokens: int, *, fused: bool
    ) -> None:
        """Of one stream, until attention."""
        rows, wide = images * tokens, self.hidden
        nodes.linear(f"{name}_modulation", images, 6 * wide, wide)
        nodes.norm(f"{name}_norm1", rows, wide)
        nodes.modulated(f"{name}_scale1", rows * wide, residual=False, fused=fused)
        nodes.linear(f"{name}_qkv", rows, 3 * wide, wide)
        self._positions(nodes, name, rows)

    def _positions(self, nodes: NetworkNodes, name: str, rows: int) -> None:
        if self.rotates:
            nodes.norm(f"{name}_qk_norm", 2 * rows * self.heads, self.head, "rmsnorm")
            nodes.rope(f"{name}_rope", rows, self.heads, self.head)

    def _after(self, nodes: NetworkNodes, name: str, rows: int, *, fused: bool) -> None:
        """Of one stream, behind attention."""
        wide = self.hidden
        nodes.linear(f"{name}_o", rows, wide, wide)
        nodes.modulated(f"{name}_gate1", rows * wide, residual=True, fused=fused)
        nodes.norm(f"{name}_norm2", rows, wide)
        nodes.modulated(f"{name}_scale2", rows * wide, residual=False, fused=fused)
        nodes.linear(f"{name}_up", rows, 4 * wide, wide)
        nodes.pointwise(f"{name}_gelu", "gelu", rows * 4 * wide)
        nodes.linear(f"{name}_down", rows, wide, 4 * wide)
        nodes.modulated(f"{name}_gate2", rows * wide, residual=True, fused=fused)

    def _together(
        self, nodes: NetworkNodes, images: int, tokens: int, gpus: int, *, fused: bool
    ) -> None:
        """A single block: attention and MLP side by side, joined by one product."""
        rows, wide = images * -(-tokens // gpus), self.hidden
        nodes.linear("modulation", images, 3 * wide, wide)
        nodes.norm("norm", rows, wide)
        nodes.modulated("scale", rows * wide, residual=False, fused=fused)
        nodes.linear("qkv", rows, 3 * wide, wide)
        self._positions(nodes, "both", rows)
        nodes.linear("up", rows, 4 * wide, wide)
        nodes.pointwise("gelu", "gelu", rows * 4 * wide)
        nodes.spread_attention("attention", images, self.heads, self.head, tokens, gpus)
        nodes.pointwise("join", "copy", rows * 5 * wide)
        nodes.linear("o_down", rows, wide, 5 * wide)
        nodes.modulated("gate", rows * wide, residual=True, fused=fused)


def transformer_of(config: Mapping[str, Any], field: str = "model") -> DiffusionTransformer:
    """The network that a configuration in the form of diffusers describes.

    Raises:
        SilicastError: another class, or a number that is missing or none.
    """
    kind = class_in(config)
    if kind not in CLASSES:
        raise unmodelled(
            f"no model of the network {kind or config.get('model_type', '')!r:.60}",
            field,
            f"architectures: one of {', '.join(CLASSES)}",
        )
    flux = kind == CLASSES[0]

    def number(name: str, usual: int | None = None) -> int:
        value = config.get(name, usual)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise SilicastError(
                f"expected a whole number, found {value!r:.40}", field=f"{field}.{name}"
            )
        return value

    patch = number("patch_size", 1 if flux else 2)
    return DiffusionTransformer(
        double=number("num_layers"),
        single=number("num_single_layers", 0),
        heads=number("num_attention_heads"),
        head=number("attention_head_dim"),
        channels=number("in_channels") * patch * patch,
        text_width=number("joint_attention_dim", 4096),
        text_tokens=512 if flux else 333,
        pixels=16 if flux else 8 * patch,
        rotates=flux,
        guided=not flux,
    )
