"""Which kernel a library runs for the experts of a layer.

A style stands for a way to run grouped matrix products; its constants are fitted under its name.
"""

from __future__ import annotations

from silicast.core.dtypes import BITS, Recipe
from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.catalog import expert_styles, kernel_rule
from silicast.workload.libraries.library_file import RuleFacts

DISPATCHED = "dispatched"
DISPATCHED_PREFILL = "dispatched_prefill"
"""The kernel's name where a dispatch sent each rank the tokens of its experts alone."""


def style_of(kernel: str, library: str, dtype: str, architecture: str, version: str = "") -> str:
    """The style of a kernel name, else of what the library usually runs; "" = its latest version.

    >>> style_of("vllm_fp8moe_triton_tritonexperts", "vllm", "fp8", "hopper")
    'triton'
    >>> style_of("", "trtllm", "fp8_block", "blackwell")
    'deepgemm'
    >>> style_of("", "sglang", "bf16", "hopper", "0.5.10")
    'triton_sglang_early'
    """
    rule = kernel_rule("moe", RuleFacts(library, kernel.casefold(), version, architecture, dtype))
    assert rule is not None, "catalog/libraries/any.toml has a rule for every kernel"
    return rule.style


def stored(style: str, recipe: Recipe) -> tuple[float, bool]:
    """Bytes of a weight as the kernel reads it, and whether the kernel converts it."""
    if recipe.weights in expert_styles()[style].widens_at_load:
        return BITS[recipe.compute] / 8.0, False
    return recipe.weight_bits / 8.0, BITS[recipe.weights] < BITS[recipe.compute]


def is_gated(variant: Variant) -> bool:
    """Whether a layer has gate, up and down matrices: the flag, unless the kernel's name denies it.

    >>> is_gated(Variant()), is_gated(Variant(kernel="moe_torch_flow_nongated"))
    (True, False)
    """
    return variant.flag("gated", True) and "nongated" not in variant.kernel
