"""Parameters of the vision encoders that stand before a decoder; 0 where none is configured.

Biases are counted as one more input of their product. A text-only step does not run an encoder,
but its weights are in memory.
"""

from __future__ import annotations

from silicast.workload.families._family import Fields


def moon_vit(fields: Fields) -> int:
    """MoonViT and its projector (Kimi-K2.5): patches, a table of positions, layers, two products
    over merged patches.
    """
    vision = fields.table("vision_config")
    if not vision.names():
        return 0
    width = vision.integer("vt_hidden_size", "hidden_size", default=1152)
    inner = vision.integer("vt_intermediate_size", "intermediate_size", default=4304)
    patch = vision.integer("patch_size", default=14)
    places = vision.integer("init_pos_emb_height", default=64)
    places *= vision.integer("init_pos_emb_width", default=64)
    out = vision.integer("text_hidden_size", default=7168)
    depth = vision.integer("vt_num_hidden_layers", "num_hidden_layers", default=27)
    sides = vision.integers("merge_kernel_size") or (2, 2)
    merged = width * sides[0] * sides[-1]
    stem = (3 * patch * patch + 1) * width + places * width
    projector = 2 * width + (merged + 1) * merged + (merged + 1) * out
    return stem + depth * _layer(width, inner) + 2 * width + projector


def qwen3_vision(fields: Fields) -> int:
    """Encoder of Qwen3-VL: patches in space and time, positions, layers, one merger at the end and
    one for each layer that also feeds the decoder's first layers.
    """
    vision = fields.table("vision_config")
    if not vision.names():
        return 0
    width = vision.integer("hidden_size", default=1152)
    inner = vision.integer("intermediate_size", default=4304)
    patch = vision.integer("patch_size", default=16)
    pixels = vision.integer("in_channels", default=3) * patch * patch
    pixels *= vision.integer("temporal_patch_size", default=2)
    out = vision.integer("out_hidden_size", default=3584)
    depth = vision.integer("depth", default=27)
    merged = width * vision.integer("spatial_merge_size", default=2) ** 2
    stem = (pixels + 1) * width + vision.integer("num_position_embeddings", default=2304) * width
    merger = (merged + 1) * merged + (merged + 1) * out
    taps = len(vision.integers("deepstack_visual_indexes"))
    mergers = (1 + taps) * merger + 2 * width + taps * 2 * merged
    return stem + depth * _layer(width, inner) + mergers


def llama4_vision(fields: Fields) -> int:
    """Encoder and projector of Llama 4: patches, a class token, positions, layers, adapter."""
    vision = fields.table("vision_config")
    if not vision.names():
        return 0
    width = vision.integer("hidden_size", default=1408)
    inner = vision.integer("intermediate_size", default=5632)
    patch = vision.integer("patch_size", default=14)
    side = vision.integer("image_size", default=336) // max(patch, 1)
    depth = vision.integer("num_hidden_layers", default=34)
    into = vision.integer("projector_input_dim", default=4096)
    out = vision.integer("projector_output_dim", default=4096)
    text = fields.integer("hidden_size")
    stem = 3 * patch * patch * width + width + (side * side + 1) * width + 4 * width
    adapter = inner * into + into * out + out * text
    return stem + depth * _layer(width, inner) + adapter


def siglip(fields: Fields) -> int:
    """SigLIP and the projector of Gemma 3: patches, positions, layers, one product, two norms."""
    vision = fields.table("vision_config")
    if not vision.names():
        return 0
    width = vision.integer("hidden_size", default=1152)
    inner = vision.integer("intermediate_size", default=4304)
    patch = vision.integer("patch_size", default=14)
    side = vision.integer("image_size", default=896) // max(patch, 1)
    depth = vision.integer("num_hidden_layers", default=27)
    stem = (3 * patch * patch + 1) * width + side * side * width
    projector = width * fields.integer("hidden_size") + width
    return stem + depth * _layer(width, inner) + 2 * width + projector


def gemma4_vision(fields: Fields) -> int:
    """Encoder of Gemma 4 and its projector: patches, two tables of positions, layers with a gated
    MLP, no biases, four norms and norms of queries and keys.
    """
    vision = fields.table("vision_config")
    if not vision.names():
        return 0
    width = vision.integer("hidden_size", default=1152)
    inner = vision.integer("intermediate_size", default=4304)
    patch = vision.integer("patch_size", default=16)
    depth = vision.integer("num_hidden_layers", default=27)
    heads = vision.integer("num_attention_heads", default=16)
    head_dim = vision.integer("head_dim", default=72)
    tables = 2 * vision.integer("position_embedding_size", default=10240) * width
    layer = 4 * width * heads * head_dim + 3 * width * inner + 4 * width + 2 * head_dim
    projector = width * fields.integer("hidden_size")
    return 3 * patch * patch * width + tables + depth * layer + projector


def _layer(width: int, inner: int) -> int:
    """Attention, MLP without a gate and two LayerNorms, all with biases."""
    return 4 * (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 4 * width
