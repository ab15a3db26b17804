"""Diffusion transformers of videos whose blocks attend to the video, then to the text (Wan).

A token is a patch of the latent video, of which four frames are one. Modulation is one product for
all blocks; a block adds a table of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Graph
from silicast.workload.networks.network_nodes import NetworkNodes, size_in

CLASS = "WanTransformer3DModel"
PIXELS, FRAMES = 8, 4
"""Of a side, and of the time, that one latent pixel stands for; the first frame stands alone."""


@final
@dataclass(frozen=True)
class VideoTransformer:
    """Sizes of such a network.

    Attributes:
        layers: blocks; heads, head: of attention and their width; inner: width of the MLP.
        channels: of a latent pixel; patch: latent pixels of a token (time, height, width).
        text_width, text_tokens: of a prompt.
    """

    layers: int
    heads: int
    head: int
    inner: int
    channels: int
    patch: tuple[int, int, int]
    text_width: int
    text_tokens: int = 512

    guided: ClassVar[bool] = True
    """Each step is usually evaluated with the prompt and without."""

    @property
    def hidden(self) -> int:
        return self.heads * self.head

    def video_tokens(self, frames: int, height: int, width: int) -> int:
        """Tokens of a video.

        >>> wan_of({"architectures": [CLASS]}).video_tokens(81, 480, 832)
        32760
        """
        times = -(-(1 + -(-(frames - 1) // FRAMES)) // self.patch[0])
        high, wide = (
            -(-pixels // (PIXELS * side))
            for pixels, side in zip((height, width), self.patch[1:], strict=True)
        )
        return times * high * wide

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
        """One evaluation for so many videos of ``tokens`` tokens each, on one of its devices.

        Args:
            inputs: with guidance, twice the videos.
            fused, cached, gpus: see
                :meth:`~.diffusion_transformer.DiffusionTransformer.graph`.
        """
        nodes, wide = NetworkNodes(dtype), self.hidden
        rows, words = inputs * -(-tokens // gpus), inputs * self.text_tokens
        folded = self.channels * self.patch[0] * self.patch[1] * self.patch[2]
        nodes.linear("video_in", rows, wide, folded)
        nodes.linear("text_in", words, wide, self.text_width)
        nodes.linear("text_out", words, wide, wide)
        nodes.linear("time_in", inputs, wide, 256)
        nodes.linear("time_out", inputs, wide, wide)
        nodes.linear("modulation", inputs, 6 * wide, wide)
        blocks = [nodes.block("embedding")]
        nodes.norm("norm1", rows, wide)
        nodes.modulated("scale1", rows * wide, residual=False, fused=fused)
        for projection in "qkv":
            nodes.linear(f"{projection}1", rows, wide, wide)
        nodes.norm("qk_norm1", 2 * rows, wide, "rmsnorm")
        nodes.rope("rope", rows, self.heads, self.head)
        nodes.spread_attention("attention1", inputs, self.heads, self.head, tokens, gpus)
        nodes.linear("o1", rows, wide, wide)
        nodes.modulated("gate1", rows * wide, residual=True, fused=fused)
        nodes.norm("norm2", rows, wide)
        nodes.linear("q2", rows, wide, wide)
        nodes.norm("q_norm2", rows, wide, "rmsnorm")
        for projection in "kv":
            nodes.linear(f"{projection}2", words, wide, wide)
        nodes.norm("k_norm2", words, wide, "rmsnorm")
        of_rank = rows // inputs
        nodes.attention("attention2", inputs, self.heads, self.head, of_rank, self.text_tokens)
        nodes.linear("o2", rows, wide, wide)
        nodes.pointwise("add2", "add", rows * wide, 2)
        nodes.norm("norm3", rows, wide)
        nodes.modulated("scale3", rows * wide, residual=False, fused=fused)
        nodes.linear("up", rows, self.inner, wide)
        nodes.pointwise("gelu", "gelu", rows * self.inner)
        nodes.linear("down", rows, wide, self.inner)
        nodes.modulated("gate3", rows * wide, residual=True, fused=fused)
        blocks.append(nodes.block("block", 1 if cached else self.layers))
        nodes.norm("last_norm", rows, wide)
        nodes.modulated("last_scale", rows * wide, residual=False, fused=fused)
        nodes.linear("video_out", rows, folded, wide)
        nodes.pointwise("update", "add", rows * folded, 2)
        blocks.append(nodes.block("head"))
        return Graph("video_transformer", tuple(blocks))


def wan_of(config: Mapping[str, Any], field: str = "model") -> VideoTransformer:
    """The network that a configuration in the form of diffusers describes; what it leaves out is as
    there, which is Wan 2.1 with 14 billion parameters.

    Raises:
        SilicastError: a number that is none.
    """

    def size(name: str, usual: int) -> int:
        return size_in(config, name, usual, field)

    patch = config.get("patch_size", [1, 2, 2])
    whole = isinstance(patch, list) and all(type(side) is int and 0 < side <= 64 for side in patch)
    if not whole or len(patch) != 3:
        raise SilicastError(
            f"expected three whole numbers, found {patch!r:.40}",
            field=f"{field}.patch_size",
            hint="patch_size = [1, 2, 2]",
        )
    return VideoTransformer(
        layers=size("num_layers", 40),
        heads=size("num_attention_heads", 40),
        head=size("attention_head_dim", 128),
        inner=size("ffn_dim", 13824),
        channels=size("in_channels", 16),
        patch=(patch[0], patch[1], patch[2]),
        text_width=size("text_dim", 4096),
    )
