"""DeepSeek-V4's heavily compressed attention with its projections: every entry is attended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.csa_module import V4_FLASH, CompressedModule
from silicast.kernels.implementation import register


@register
@final
class HcaModule(CompressedModule):
    """One entry for 128 tokens, all of them attended, and a window."""

    family: ClassVar[str] = "hca_module"
    defaults: ClassVar[Mapping[str, int]] = {**V4_FLASH, "compress_ratio": 128}
    indexed: ClassVar[bool] = False
