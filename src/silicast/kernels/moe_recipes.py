"""Which kernel a library runs for the experts of a layer, from the names in use.

A style stands for a way to run grouped matrix products; its constants are fitted under its name.
"""

from __future__ import annotations

from functools import lru_cache

from silicast.core.dtypes import BITS, Recipe

STYLES = ("triton", "cutlass", "trtllm_gen", "min_latency", "deepgemm", "cutedsl", "marlin")
"""Triton's fused kernel; grouped CUTLASS (TensorRT-LLM's default, FlashInfer's); the generated
kernels of TensorRT-LLM for Blackwell that FlashInfer ships; TensorRT-LLM's low-latency mode;
DeepGEMM; CuTe DSL with masked groups; Marlin, which multiplies 4-bit weights by 16-bit tokens."""

_BY_WORD = (
    ("marlin", "marlin"),
    ("trtllm", "trtllm_gen"),
    ("mxfp4_moe", "trtllm_gen"),
    ("triton", "triton"),
    ("cutedsl", "cutedsl"),
    ("deepgemm", "deepgemm"),
    ("min_latency", "min_latency"),
    ("cutlass", "cutlass"),
    ("moe_torch_flow", "cutlass"),
)


@lru_cache(maxsize=1024)
def style_of(kernel: str, library: str, dtype: str, architecture: str) -> str:
    """The style of a kernel name, else of what the library usually runs.

    >>> style_of("vllm_fp8moe_triton_tritonexperts", "vllm", "fp8", "hopper")
    'triton'
    >>> style_of("", "trtllm", "fp8_block", "blackwell")
    'deepgemm'
    """
    name = kernel.casefold()
    for word, style in _BY_WORD:
        if word in name:
            return style
    return _usual(library, dtype, architecture)


def _usual(library: str, dtype: str, architecture: str) -> str:
    blackwell = architecture == "blackwell"
    if library in ("triton", "cutlass", "deepgemm", "marlin"):
        return library
    if library == "trtllm":
        return "deepgemm" if blackwell and dtype == "fp8_block" else "cutlass"
    if blackwell:
        return "trtllm_gen"
    if dtype in ("int4_wo", "nvfp4_wo", "w4a16_mxfp4"):
        return "marlin"
    return "cutlass" if dtype in ("nvfp4", "mxfp4", "w4a8_mxfp4_mxfp8") else "triton"


def unpacks(recipe: Recipe) -> bool:
    """Whether weights are converted to the compute format on their way to the matrix pipe."""
    return BITS[recipe.weights] < BITS[recipe.compute]
