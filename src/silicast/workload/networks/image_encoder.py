"""Image encoders in front of language models: patches, layers of attention, mergers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import final

from silicast.core.catalog import catalog_files
from silicast.core.decode import Strict, read_table
from silicast.core.errors import unmodelled
from silicast.core.naming import normalise
from silicast.workload.graphs.graph import Graph
from silicast.workload.networks.network_nodes import NetworkNodes
from silicast.workload.transformers.plan import encoder_ranks

PAGE = "docs/how-to/add-a-model.md"


class EncoderTable(Strict, frozen=True):
    """A file of the catalog; ``out``: model that it stands before -> width of a token there."""

    out: dict[str, int]
    depth: int
    hidden: int
    intermediate: int
    heads: int
    patch: int
    merge: int
    positions: int
    source: str
    temporal: int = 1
    taps: int = 0


@final
@dataclass(frozen=True)
class ImageEncoder:
    """The encoder of a model, as its configuration states it.

    Attributes:
        depth: layers; hidden, intermediate: widths; heads: of attention.
        patch: side of a patch in pixels; temporal: images that a patch spans.
        merge: patches a side that make one token of the language model.
        taps: mergers beside the last one, whose results feed the language model too.
        out: width of a token.
    """

    depth: int
    hidden: int
    intermediate: int
    heads: int
    patch: int
    merge: int
    out: int
    positions: int
    temporal: int = 1
    taps: int = 0

    @property
    def parameters(self) -> int:
        """With biases; as the language model's card counts them."""
        width, inner, merged = self.hidden, self.intermediate, self.hidden * self.merge**2
        layer = 4 * (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 4 * width
        stem = (3 * self.patch**2 * self.temporal + 1) * width + self.positions * width
        merger = (merged + 1) * merged + (merged + 1) * self.out
        norms = 2 * width + self.taps * 2 * merged
        return stem + self.depth * layer + (1 + self.taps) * merger + norms

    def tokens(self, height: int, width: int) -> int:
        """Tokens of the language model for an image of so many pixels; sides are rounded up to
        whole tokens.

        >>> encoder_of("Qwen3-VL-30B-A3B").tokens(1024, 1024)
        1024
        """
        side = self.patch * self.merge
        return -(-height // side) * -(-width // side)

    def bytes_of(self, tokens: int, element_bytes: int = 2) -> int:
        """What goes to the language model for so many tokens, the taps' results included."""
        return tokens * self.out * (1 + self.taps) * element_bytes

    def ranks(self, tp: int) -> int:
        """Of ``tp`` ranks, those that share its heads and the width of its MLP; 1 = they hold it
        whole, as heads or width are no multiple.

        >>> [encoder_of("Qwen3-VL-8B").ranks(tp) for tp in (1, 2, 3, 8)]
        [1, 2, 1, 8]
        """
        return encoder_ranks(self.heads, tp) if self.intermediate % tp == 0 else 1

    def graph(
        self,
        images: int,
        tokens: int,
        dtype: str,
        *,
        ranks: int = 1,
        gathers: tuple[int, int] = (0, 1),
    ) -> Graph:
        """The pass of one device over so many images of ``tokens`` tokens each.

        Args:
            ranks: tensor ranks that share heads, MLP and mergers (:meth:`ranks`).
            gathers: images of all devices, and how many devices share them out: each gets the
                tokens of all at the end.
        """
        nodes, width, inner = NetworkNodes(dtype), self.hidden, self.intermediate // ranks
        patches = tokens * self.merge**2
        rows, head, heads = images * patches, width // self.heads, self.heads // ranks
        nodes.linear("patches", rows, width, 3 * self.patch**2 * self.temporal)
        nodes.pointwise("positions", "add", rows * width, 2)
        blocks = [nodes.block("stem")]
        nodes.norm("norm1", rows, width)
        nodes.linear("qkv", rows, 3 * heads * head, width)
        nodes.rope("rope", rows, heads, head)
        nodes.attention("attention", images, heads, head, patches, patches)
        nodes.linear("o", rows, width, heads * head)
        nodes.all_reduce("o_sum", rows * width, ranks)
        nodes.pointwise("residual1", "add", rows * width, 2)
        nodes.norm("norm2", rows, width)
        nodes.linear("up", rows, inner, width)
        nodes.pointwise("gelu", "gelu", rows * inner)
        nodes.linear("down", rows, width, inner)
        nodes.all_reduce("down_sum", rows * width, ranks)
        nodes.pointwise("residual2", "add", rows * width, 2)
        blocks.append(nodes.block("layer", self.depth))
        merged, out_rows = width * self.merge**2, images * tokens
        shared = merged // ranks
        nodes.norm("merger_norm", out_rows, merged)
        nodes.linear("merger_up", out_rows, shared, merged)
        nodes.pointwise("merger_gelu", "gelu", out_rows * shared)
        nodes.linear("merger_down", out_rows, self.out, shared)
        nodes.all_reduce("merger_sum", out_rows * self.out, ranks)
        blocks.append(nodes.block("merger", 1 + self.taps))
        if gathers[1] > 1:
            nodes.all_gather("tokens", gathers[0] * tokens * self.out * (1 + self.taps), gathers[1])
            blocks.append(nodes.block("results"))
        return Graph("image_encoder", tuple(blocks))


@cache
def _encoders() -> dict[str, tuple[str, ImageEncoder]]:
    """Encoders by the plain names of the models behind them, with the names as written."""
    table: dict[str, tuple[str, ImageEncoder]] = {}
    for path in catalog_files("encoders", ".toml"):
        stated = read_table(path, EncoderTable, PAGE)
        for model, out in stated.out.items():
            encoder = ImageEncoder(
                stated.depth,
                stated.hidden,
                stated.intermediate,
                stated.heads,
                stated.patch,
                stated.merge,
                out,
                stated.positions,
                stated.temporal,
                stated.taps,
            )
            table[normalise(model)] = model, encoder
    return table


def encoder_of(model: str) -> ImageEncoder:
    """The image encoder of a model of the catalog.

    Raises:
        SilicastError: none is known; those that are known are named.
    """
    entry = _encoders().get(normalise(model))
    if entry is None:
        known_names = sorted(name for name, _ in _encoders().values())
        raise unmodelled(
            f"the image encoder of {model} is not known",
            "model",
            f"known: {', '.join(known_names)}; or a stage of a stated duration_ms",
        )
    return entry[1]
