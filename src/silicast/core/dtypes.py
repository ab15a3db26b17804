"""Number formats: what one element costs to store, and what each compound name means for
weights, activations, scales and accumulation (docs/reference/dtypes.md).

Some formats store weights in blocks. A block of so many weights along a row takes so many bytes, as
``ggml-common.h`` lays the types of GGUF out: a 16-bit scale (and for some a minimum) of 32 weights,
or super-blocks of 256 with scales of 4 to 8 bits inside; MLX keeps a 16-bit scale and bias for each
group of 32 or 64; EXL3 codes tiles of 16 x 16 weights as trellises, with scales of rows and
columns, which count nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

from silicast.core.errors import SilicastError
from silicast.core.naming import NameIndex

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

CACHE_BLOCKS: dict[str, tuple[int, int]] = {
    "fp16": (32, 64),
    "bf16": (32, 64),
    **{name: GGUF_BLOCKS[name] for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")},
}
"""Formats that keys and values may be cached in apart (llama.cpp, --cache-type-k and -v)."""

MIXED_CACHES: dict[str, tuple[int, int]] = {
    f"{keys}/{values}": (64, of_keys + of_values)
    for keys, (_, of_keys) in CACHE_BLOCKS.items()
    for values, (_, of_values) in CACHE_BLOCKS.items()
    if keys != values
}
"""Caches whose keys and values differ: of as many keys as values."""

BLOCKS: dict[str, tuple[int, int]] = {
    **GGUF_BLOCKS,
    **AFFINE_BLOCKS,
    **TRELLIS_BLOCKS,
    **MIXED_CACHES,
}


def key_format(cache: str) -> str:
    """Format of the keys of a cache.

    >>> key_format("q8_0/fp16"), value_format("q8_0/fp16"), value_format("q4_0")
    ('q8_0', 'fp16', 'q4_0')
    """
    return cache.split("/", maxsplit=1)[0]


def value_format(cache: str) -> str:
    """Format of the values of a cache; see :func:`key_format`."""
    return cache.rsplit("/", maxsplit=1)[-1]


def block_bits(name: str) -> float:
    """Bits a weight, scales included.

    >>> block_bits("q4_k"), block_bits("q6_k"), block_bits("affine_4bit")
    (4.5, 6.5625, 4.5)
    """
    weights, size = BLOCKS[name]
    return 8.0 * size / weights


BITS: dict[str, float] = {
    "fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4,
    "nvfp4": 4, "mxfp4": 4, "mxfp8": 8, "int16": 16, "int32": 32, "int64": 64, "bool": 8,
    **{name: block_bits(name) for name in BLOCKS},
}  # fmt: skip


BLOCK_SCALES: dict[str, tuple[int, int]] = {"mxfp8": (32, 8), "mxfp4": (32, 8), "nvfp4": (16, 8)}
"""Storage formats that carry their scales with them: elements that share one, and its bits (OCP
microscaling: e8m0 over 32; NVIDIA: e4m3 over 16)."""


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """How a matrix product is stored and computed.

    Attributes:
        name: the canonical name ("bf16", "fp8", "fp8_block", "int4_wo", ...).
        weights, activations, output: storage formats (keys of :data:`BITS`).
        compute: the pipe format in which products are formed.
        scale_group: weights along the inputs that share one scale (0 = none, -1 = per row).
        scale_bits: bits of one scale.
        quantizes: activations arrive in ``output`` format and are quantised by the call.
        scale_rows: outputs that share one scale: 128 where blocks are squares.
        zero_bits: bits of the zero point beside each scale.
        tensor_bits: bits of what a whole weight tensor has besides: nvfp4's second, global scale.
    """

    name: str
    weights: str
    activations: str
    output: str
    compute: str
    scale_group: int = 0
    scale_bits: int = 0
    quantizes: bool = False
    scale_rows: int = 1
    zero_bits: int = 0
    tensor_bits: int = 0

    @property
    def weight_bits(self) -> float:
        """Stored bits per weight with its share of the scales and zero points."""
        if self.scale_group <= 0:
            return BITS[self.weights]
        block = self.scale_group * self.scale_rows
        return BITS[self.weights] + (self.scale_bits + self.zero_bits) / block

    @property
    def activation_bits(self) -> float:
        """Stored bits per activation as the multiplication reads it, with its share of the scales.

        Block formats carry theirs with them; fp8_block has one for each group of a row.
        """
        group, bits = BLOCK_SCALES.get(self.activations, (0, 0))
        if self.scale_rows > 1 and self.activations == self.weights:
            group, bits = self.scale_group, self.scale_bits
        return BITS[self.activations] + (bits / group if group else 0.0)

    @property
    def widens(self) -> bool:
        """Whether the kernel converts weights in registers before it multiplies them.

        >>> [RECIPES[x].widens for x in ("int4_wo", "fp8_wo", "fp8", "mxfp8", "mxfp4", "tf32")]
        [True, True, False, False, False, False]
        """
        return BITS[self.weights] < BITS[self.compute]

    def weight_only(self, compute: str) -> Recipe:
        """The same weights, multiplied in a format of 16 bits and more by unquantised activations:
        what runs where a device has no unit for :attr:`compute`.

        >>> RECIPES["nvfp4"].weight_only("bf16").activations
        'bf16'
        """
        name = f"{self.name}_wo"
        return replace(self, name=name, activations=self.output, compute=compute, quantizes=False)


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("fp64", "fp64", "fp64", "fp64", "fp64"),
        Recipe("fp32", "fp32", "fp32", "fp32", "fp32"),
        Recipe("tf32", "fp32", "fp32", "fp32", "tf32"),
        Recipe("bf16", "bf16", "bf16", "bf16", "bf16"),
        Recipe("fp16", "fp16", "fp16", "fp16", "fp16"),
        Recipe("fp8", "fp8", "fp8", "bf16", "fp8", -1, 32, quantizes=True),
        Recipe("fp8_static", "fp8", "fp8", "bf16", "fp8", -1, 32, quantizes=True),
        Recipe("fp8_block", "fp8", "fp8", "bf16", "fp8", 128, 32, quantizes=True, scale_rows=128),
        Recipe("fp8_wo", "fp8", "bf16", "bf16", "bf16", -1, 32),
        Recipe("mxfp8", "mxfp8", "mxfp8", "bf16", "fp8", 32, 8, quantizes=True),
        Recipe("int8", "int8", "int8", "bf16", "int8", -1, 32, quantizes=True),
        Recipe("sq", "int8", "int8", "bf16", "int8", -1, 32),
        Recipe("int8_wo", "int8", "bf16", "bf16", "bf16", -1, 16),
        Recipe("w8a16_int16", "int8", "int16", "int16", "int16", -1, 32),
        Recipe("int4_wo", "int4", "bf16", "bf16", "bf16", 128, 16, zero_bits=4),
        Recipe("nf4", "int4", "bf16", "bf16", "bf16", 64, 8),
        Recipe("nvfp4", "nvfp4", "nvfp4", "bf16", "nvfp4", 16, 8, quantizes=True, tensor_bits=32),
        Recipe("nvfp4_wo", "nvfp4", "bf16", "bf16", "bf16", 16, 8, tensor_bits=32),
        Recipe("mxfp4", "mxfp4", "mxfp4", "bf16", "mxfp4", 32, 8, quantizes=True),
        Recipe("w4a16_mxfp4", "mxfp4", "bf16", "bf16", "bf16", 32, 8),
        Recipe("w4a8_mxfp4_mxfp8", "mxfp4", "mxfp8", "bf16", "fp8", 32, 8, quantizes=True),
        Recipe("w4afp8", "int4", "fp8", "bf16", "fp8", 128, 16, quantizes=True),
        Recipe("fp8_fp4", "nvfp4", "fp8", "bf16", "fp8", 16, 8, quantizes=True, tensor_bits=32),
        *(Recipe(name, name, "fp16", "fp16", "int8") for name in GGUF_BLOCKS),
        *(Recipe(name, name, "fp16", "fp16", "fp16") for name in (*AFFINE_BLOCKS, *TRELLIS_BLOCKS)),
    )
}
"""Kernels for GGUF's types multiply integers of 8 bits, activations being quantised on the way;
those of MLX and ExLlamaV3 widen weights to 16 bits."""

ALIASES: dict[str, tuple[str, ...]] = {
    "fp64": ("float64", "double"),
    "fp32": ("float32", "float"),
    "bf16": ("bfloat16",),
    "fp16": ("float16", "half"),
    "fp8": ("fp8_e4m3", "w8a8_fp8", "fp8_e5m2", "e4m3", "float8_e4m3fn"),
    "int8": ("w8a8", "w8a8_int8"),
    "fp8_wo": ("w8a16_fp8", "fp8_w8a16"),
    "sq": ("smoothquant", "smooth_quant"),
    "int8_wo": ("w8a16", "w8a16_int8"),
    "int4_wo": ("w4a16", "int4", "w4a16_int4", "awq", "gptq", "awq_marlin", "gptq_marlin"),
    "w4afp8": ("w4a8", "w4a8_fp8"),
    "mxfp8": ("w8a8_mxfp8",),
    "mxfp4": ("w4a4_mxfp4",),
    "nvfp4": ("fp4", "w4a4_nvfp4"),
    "nvfp4_wo": ("w4a16_nvfp4",),
}
"""Canonical recipe name -> other names in use."""

_INDEX = NameIndex(
    "dtype",
    {name: (recipe, ALIASES.get(name, ())) for name, recipe in RECIPES.items()},
    listed="docs/reference/dtypes.md",
)


def stored_bytes(name: str, elements: int) -> int:
    """Bytes of so many elements of a storage format; of block formats whole blocks.

    >>> stored_bytes("bf16", 3), stored_bytes("int4", 3), stored_bytes("q4_k", 512)
    (6, 2, 288)
    """
    if name in BLOCKS:
        count, size = BLOCKS[name]
        return -(-elements // count) * size
    return -(-elements * int(BITS[name]) // 8)


def recipe_for(name: str, *, field: str = "", also: Iterable[str] = ()) -> Recipe:
    """The recipe of a canonical or alternative name; case and a "torch." prefix do not count.

    Args:
        also: words that the field takes in a name's stead, which an error may offer.

    Raises:
        SilicastError: no such recipe; the nearest names are offered.

    >>> recipe_for("torch.bfloat16").name
    'bf16'
    """
    try:
        return _INDEX.get(name.strip().casefold().removeprefix("torch."), also=also)
    except SilicastError as error:
        raise (error.at(field) if field else error) from None
