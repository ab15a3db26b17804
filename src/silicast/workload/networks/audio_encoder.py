"""Encoders of speech (Whisper): two convolutions over a spectrogram, then layers of attention.

Audio is cut into windows of 30 s, the last one padded; each is 3,000 frames of a spectrogram, half
as many tokens, and attends to itself alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError, unmodelled
from silicast.workload.graphs.graph import Graph
from silicast.workload.networks.network_nodes import NetworkNodes, class_in, size_in

CLASSES = ("WhisperForConditionalGeneration", "WhisperModel")


@final
@dataclass(frozen=True)
class AudioEncoder:
    """Sizes of such an encoder.

    Attributes:
        layers: of attention; hidden, inner: widths; heads: of attention.
        mels: rows of the spectrogram; tokens: of a window.
    """

    layers: int
    hidden: int
    inner: int
    heads: int
    mels: int
    tokens: int

    WINDOW_S: ClassVar[float] = 30.0

    def windows(self, seconds: float) -> int:
        """Of so many seconds of audio.

        >>> encoder_of({"architectures": ["WhisperModel"]}).windows(61.0)
        3
        """
        return max(math.ceil(seconds / self.WINDOW_S), 1)

    def bytes_of(self, windows: int, element_bytes: int = 2) -> int:
        """What goes to the model behind it."""
        return windows * self.tokens * self.hidden * element_bytes

    def graph(self, windows: int, dtype: str) -> Graph:
        """The pass over so many windows."""
        nodes, wide, rows = NetworkNodes(dtype), self.hidden, windows * self.tokens
        taps = 3
        for name, out, inputs in (("in", 2 * rows, self.mels), ("half", rows, wide)):
            nodes.linear(f"conv_{name}", out, wide, taps * inputs)
            nodes.pointwise(f"gelu_{name}", "gelu", out * wide)
        nodes.pointwise("positions", "add", rows * wide, 2)
        blocks = [nodes.block("stem")]
        nodes.norm("norm1", rows, wide)
        for projection in "qkv":
            nodes.linear(projection, rows, wide, wide)
        nodes.attention(
            "attention", windows, self.heads, wide // self.heads, self.tokens, self.tokens
        )
        nodes.linear("o", rows, wide, wide)
        nodes.pointwise("residual1", "add", rows * wide, 2)
        nodes.norm("norm2", rows, wide)
        nodes.linear("up", rows, self.inner, wide)
        nodes.pointwise("gelu", "gelu", rows * self.inner)
        nodes.linear("down", rows, wide, self.inner)
        nodes.pointwise("residual2", "add", rows * wide, 2)
        blocks.append(nodes.block("layer", self.layers))
        nodes.norm("last_norm", rows, wide)
        blocks.append(nodes.block("head"))
        return Graph("audio_encoder", tuple(blocks))


def encoder_of(config: Mapping[str, Any], field: str = "model") -> AudioEncoder:
    """The encoder that a configuration in the form of transformers describes; what it leaves out is
    that of Whisper large v3.

    Raises:
        SilicastError: another class, or sizes that are none or do not fit each other.
    """
    kind = class_in(config)
    if kind not in CLASSES:
        raise unmodelled(
            f"no model of the audio encoder {kind!r:.60}",
            field,
            f"architectures: one of {', '.join(CLASSES)}",
        )

    def size(name: str, usual: int) -> int:
        return size_in(config, name, usual, field)

    hidden, heads = size("d_model", 1280), size("encoder_attention_heads", 20)
    if hidden % heads:
        raise SilicastError(
            f"{heads} heads do not divide a width of {hidden}",
            field=f"{field}.encoder_attention_heads",
        )
    return AudioEncoder(
        size("encoder_layers", 32),
        hidden,
        size("encoder_ffn_dim", 5120),
        heads,
        size("num_mel_bins", 128),
        size("max_source_positions", 1500),
    )
