"""Parameters of the vision encoders before a decoder.

Biases are counted as one more input of their product. A text-only step does not run an encoder,
but its weights are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from silicast.formats.fields import Fields


def encoder_parameters(kind: str, fields: Fields) -> int:
    """Parameters of the encoder that ``vision_config`` describes; 0 where there is none.

    Args:
        kind: a value of ``Family.vision``.
    """
    vision = fields.table("vision_config")
    return _COUNTS[kind](vision, fields) if vision.names() else 0


def encoder_heads(kind: str, fields: Fields) -> int:
    """Heads of the encoder's attention that servers' tensor ranks share out; 0 where their code
    runs it whole on every rank (MoonViT: vLLM 0.11.0, moonvit.py), or that is not known.
    """
    vision = fields.table("vision_config")
    names = _SHARED_HEADS.get(kind, ())
    return vision.integer(*names, default=16) if vision.names() and names else 0


_SHARED_HEADS: Mapping[str, tuple[str, ...]] = {
    "qwen3": ("num_heads",),
    "llama4": ("num_attention_heads",),
    "siglip": ("num_attention_heads",),
}
"""Fields with the heads of encoders whose layers vLLM 0.11.0 and SGLang 0.5.6 divide."""


def _moon_vit(vision: Fields, _: Fields) -> int:
    """MoonViT and its projector (Kimi-K2.5): patches, a table of positions, layers, two products
    over merged patches.
    """
    width, layers = _stack(vision)
    patch = vision.integer("patch_size", default=14)
    positions = vision.integer("init_pos_emb_height", default=64)
    positions *= vision.integer("init_pos_emb_width", default=64)
    out = vision.integer("text_hidden_size", default=7168)
    sides = vision.integers("merge_kernel_size") or (2, 2)
    merged = width * sides[0] * sides[-1]
    stem = (3 * patch * patch + 1) * width + positions * width
    return stem + layers + 4 * width + _mlp(merged, merged, out)


def _qwen3(vision: Fields, _: Fields) -> int:
    """Encoder of Qwen3-VL: patches in space and time, positions, layers, one merger at the end and
    one for each layer that also feeds the decoder's first layers.
    """
    width, layers = _stack(vision, "depth")
    patch = vision.integer("patch_size", default=16)
    pixels = vision.integer("in_channels", default=3) * patch * patch
    pixels *= vision.integer("temporal_patch_size", default=2)
    out = vision.integer("out_hidden_size", default=3584)
    merged = width * vision.integer("spatial_merge_size", default=2) ** 2
    stem = (pixels + 1) * width + vision.integer("num_position_embeddings", default=2304) * width
    taps = len(vision.integers("deepstack_visual_indexes"))
    mergers = (1 + taps) * _mlp(merged, merged, out) + 2 * width + taps * 2 * merged
    return stem + layers + mergers


def _llama4(vision: Fields, text: Fields) -> int:
    """Encoder and projector of Llama 4: patches, a class token, positions, layers, adapter."""
    width, layers = _stack(vision, width=1408, inner=5632, depth=34)
    inner = vision.integer("intermediate_size", default=5632)
    patch = vision.integer("patch_size", default=14)
    side = vision.integer("image_size", default=336) // max(patch, 1)
    into = vision.integer("projector_input_dim", default=4096)
    out = vision.integer("projector_output_dim", default=4096)
    stem = 3 * patch * patch * width + width + (side * side + 1) * width + 4 * width
    return stem + layers + inner * into + into * out + out * text.integer("hidden_size")


def _siglip(vision: Fields, text: Fields) -> int:
    """SigLIP and the projector of Gemma 3: patches, positions, layers, one product, two norms."""
    width, layers = _stack(vision)
    patch = vision.integer("patch_size", default=14)
    side = vision.integer("image_size", default=896) // max(patch, 1)
    stem = (3 * patch * patch + 1) * width + side * side * width
    return stem + layers + 3 * width + width * text.integer("hidden_size")


def _gemma4(vision: Fields, text: Fields) -> int:
    """Encoder of Gemma 4 and its projector: patches, two tables of positions, layers with a gated
    MLP, no biases, four norms and norms of queries and keys.
    """
    width = vision.integer("hidden_size", default=1152)
    inner = vision.integer("intermediate_size", default=4304)
    patch = vision.integer("patch_size", default=16)
    depth = vision.integer("num_hidden_layers", default=27)
    heads = vision.integer("num_attention_heads", default=16)
    head_dim = vision.integer("head_dim", default=72)
    tables = 2 * vision.integer("position_embedding_size", default=10240) * width
    layer = 4 * width * heads * head_dim + 3 * width * inner + 4 * width + 2 * head_dim
    projector = width * text.integer("hidden_size")
    heard = _gemma4_audio(text.table("audio_config"), text.integer("hidden_size"))
    return 3 * patch * patch * width + tables + depth * layer + projector + heard


def _gemma4_audio(audio: Fields, hidden: int) -> int:
    """Conformer of Gemma 4 E2B and E4B: two convolutions, and layers of two MLPs, attention with
    relative positions and a convolution between two products. Source: transformers 5.24.
    """
    if not audio.names():
        return 0
    width = audio.integer("hidden_size", default=1024)
    depth = audio.integer("num_hidden_layers", default=12)
    heads = audio.integer("num_attention_heads", default=8)
    first, second = audio.integers("subsampling_conv_channels") or (128, 32)
    out = audio.integer("output_proj_dims", default=1536)
    stem = 9 * first + first + 9 * first * second + second + first // 4 * second * width
    taps = audio.integer("conv_kernel_size", default=5)
    layer = 24 * width * width + (9 + taps) * width + width // heads
    return stem + depth * layer + (width + 1) * out + out * hidden


def _stack(
    vision: Fields, *depths: str, width: int = 1152, inner: int = 4304, depth: int = 27
) -> tuple[int, int]:
    """Width of the layers, and parameters of all: attention, MLP without a gate and two LayerNorms,
    with biases.

    Args:
        depths: names of the number of layers, where they are not the usual ones.
    """
    width = vision.integer("vt_hidden_size", "hidden_size", default=width)
    inner = vision.integer("vt_intermediate_size", "intermediate_size", default=inner)
    names = depths or ("vt_num_hidden_layers", "num_hidden_layers")
    depth = vision.integer(*names, default=depth)
    return width, depth * (4 * (width + 1) * width + _mlp(width, inner, width) + 4 * width)


def _mlp(width: int, inner: int, out: int) -> int:
    """Two products with biases."""
    return (width + 1) * inner + (inner + 1) * out


_COUNTS: Mapping[str, Callable[[Fields, Fields], int]] = {
    "moon_vit": _moon_vit,
    "qwen3": _qwen3,
    "llama4": _llama4,
    "siglip": _siglip,
    "gemma4": _gemma4,
}
