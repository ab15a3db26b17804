"""Formats that store weights in blocks: GGUF's types, MLX's groups and EXL3's tiles.

A block of so many weights along a row takes so many bytes, as ``ggml-common.h`` lays the types of
GGUF out: a 16-bit scale (and for some a minimum) of 32 weights, or super-blocks of 256 with scales
of 4 to 8 bits inside; MLX keeps a 16-bit scale and bias for each group of 32 or 64; EXL3 codes
tiles of 16 x 16 weights as trellises, with scales of rows and columns, which count nothing here.
"""

from __future__ import annotations

GGUF_BLOCKS: dict[str, tuple[int, int]] = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "iq1_s": (256, 50),
    "iq1_m": (256, 56),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq2_s": (256, 82),
    "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
    "mxfp4_gguf": (32, 17),
}
"""Type -> weights of a block and its bytes (llama.cpp, ggml/src/ggml-common.h)."""

AFFINE_BLOCKS: dict[str, tuple[int, int]] = {
    f"affine_{bits}bit{suffix}": (group, group * bits // 8 + 4)
    for group, suffix in ((64, ""), (32, "_g32"))
    for bits in (2, 3, 4, 5, 6, 8)
}
"""Groups of ``bits`` a weight with a 16-bit scale and bias (mlx.core.quantize, affine)."""

TRELLIS_BLOCKS: dict[str, tuple[int, int]] = {
    f"exl3_{bits}bit": (256, 32 * bits) for bits in range(1, 9)
}
"""Tiles of 256 weights of ``bits`` each (exllamav3 1.6, modules/quant/exl3.py)."""

BLOCKS: dict[str, tuple[int, int]] = {**GGUF_BLOCKS, **AFFINE_BLOCKS, **TRELLIS_BLOCKS}


def block_bits(name: str) -> float:
    """Bits a weight, scales included.

    >>> block_bits("q4_k"), block_bits("q6_k"), block_bits("affine_4bit")
    (4.5, 6.5625, 4.5)
    """
    weights, size = BLOCKS[name]
    return 8.0 * size / weights
