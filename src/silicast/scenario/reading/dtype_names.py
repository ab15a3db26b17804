"""Names of number formats as published tables write them, into those of ``core.dtypes``."""

from __future__ import annotations

import re

from silicast.core.dtypes import recipe_for
from silicast.core.errors import SilicastError

SPELLINGS: dict[str, str] = {
    # tuned kernel configurations of vLLM and SGLang
    "fp8_w8a8": "fp8", "fp8_w8a8_channelwise": "fp8", "float8": "fp8", "int8_w8a8": "int8",
    "int8_w8a16": "int8_wo", "int4_w4a16": "int4_wo",
    # recipes of training reports: current, delayed and micro scaling
    "fp8-cs": "fp8", "fp8-ds": "fp8", "fp8-mx": "mxfp8", "fp8-cs (fp8-mx)": "fp8",
    # XLA's element types
    "f16": "fp16", "f32": "fp32", "f64": "fp64", "s8": "int8", "f8e4m3fn": "fp8", "f8e5m2": "fp8",
    "f8e4m3fnuz": "fp8", "f8e5m2fnuz": "fp8",
}  # fmt: skip
_SUFFIX = re.compile(r"_down|/(default|pure|fp16)|x[a-z0-9]+->[a-z0-9]+")
"""What tables append to a format: a projection, a policy, the other operand and the result."""


def dtype_name(name: str, field: str) -> str:
    """The canonical name of a number format or recipe.

    Raises:
        SilicastError: unknown; the nearest names are offered.

    >>> dtype_name("bfloat16", "dtype"), dtype_name("bf16xbf16->f32", "dtype")
    ('bf16', 'bf16')
    """
    plain = name.strip().casefold()
    suffix = _SUFFIX.search(plain)
    if suffix and suffix.end() == len(plain):
        plain = plain[: suffix.start()]
    try:
        return recipe_for(SPELLINGS.get(plain, plain)).name
    except SilicastError as error:
        raise error.located(field) from None
