"""Which kernel a library runs for the experts of a layer, from the names in use.

A style stands for a way to run grouped matrix products; its constants are fitted under its name.
"""

from __future__ import annotations

import re
from functools import lru_cache

from silicast.core.dtypes import BITS, Recipe
from silicast.workload.op import Variant

STYLES = (
    "triton", "triton_sglang", "cutlass", "flashinfer_cutlass", "trtllm_gen", "min_latency",
    "deepgemm", "cutedsl", "marlin", "marlin_int4", "triton_sglang_early", "marlin_early",
    "cutlass_early", "deepep", "oai_triton", "oai_triton_trtllm", "trtllm_mxfp4",
    "megamoe", "deepep_context", "deepep_any",
)  # fmt: skip
"""Triton's fused kernel with vLLM's and with SGLang's tuned tiles; grouped CUTLASS as TensorRT-LLM
and as FlashInfer call it; the generated kernels of TensorRT-LLM for Blackwell that FlashInfer
ships; TensorRT-LLM's low-latency mode; DeepGEMM, also on tokens that DeepEP has gathered: masked
groups of a decode step, contiguous ones of a prefill, and either, where nobody says; CuTe DSL
with masked groups; Marlin, which multiplies 4-bit weights by 16-bit tokens, and vLLM's first
version of it; the Triton kernels of gpt-oss (MXFP4 weights, 16-bit tokens, on Hopper) as vLLM and
SGLang and as TensorRT-LLM call them; TensorRT-LLM's own for MXFP8 tokens; DeepGEMM's kernel that
holds dispatch and combine; ``_early``: as they were up to SGLang 0.5.11 and, on Blackwell, up to
TensorRT-LLM 1.3.0rc17."""

DISPATCHED = "dispatched"
DISPATCHED_PREFILL = "dispatched_prefill"
"""The kernel's name where a dispatch sent each rank the tokens of its experts alone."""

EXCHANGES = frozenset({"megamoe"})
"""Styles whose kernel also moves tokens between the ranks."""

_BY_WORD = (
    ("marlin_int4", "marlin_int4"),
    ("marlin", "marlin"),
    ("oaitriton", "oai_triton"),
    ("sglang_fused_moe_triton", "triton_sglang"),
    ("flashinfer_cutlass", "flashinfer_cutlass"),
    ("trtllm", "trtllm_gen"),
    ("mxfp4_moe", "trtllm_gen"),
    ("triton", "triton"),
    ("cutedsl", "cutedsl"),
    ("megamoe", "megamoe"),
    ("deepgemm", "deepgemm"),
    ("deepepmoe_context", "deepep_context"),
    ("deepepmoe_generation", "deepep"),
    ("deepep", "deepep_any"),
    ("min_latency", "min_latency"),
    ("cutlass", "cutlass"),
    ("vllm_fused_moe", "triton"),
    ("moe_torch_flow", "cutlass"),
)


@lru_cache(maxsize=1024)
def style_of(kernel: str, library: str, dtype: str, architecture: str, version: str = "") -> str:
    """The style of a kernel name, else of what the library usually runs; "" = its latest version.

    >>> style_of("vllm_fp8moe_triton_tritonexperts", "vllm", "fp8", "hopper")
    'triton'
    >>> style_of("", "trtllm", "fp8_block", "blackwell")
    'deepgemm'
    >>> style_of("", "sglang", "bf16", "hopper", "0.5.10")
    'triton_sglang_early'
    """
    name = kernel.casefold()
    found = _usual(library, dtype, architecture)
    if name.startswith(DISPATCHED) and library != "trtllm":
        masked = "cutedsl" if dtype == "nvfp4" else "deepep"
        return "deepep_context" if name == DISPATCHED_PREFILL else masked
    for word, style in _BY_WORD:
        if word in name:
            found = style
            break
    if library == "trtllm" and found == "cutlass":
        found = _of_trtllm(dtype, architecture)
    early = f"{found}_early"
    return early if early in STYLES and _is_early(library, version, architecture) else found


def _is_early(library: str, version: str, architecture: str) -> bool:
    """Whether a version is from before the library's kernels changed."""
    numbers = tuple(int(x) for x in re.findall(r"\d+", version))
    if not numbers:
        return False
    if library == "sglang":
        return numbers < (0, 5, 12)
    return library == "trtllm" and architecture == "blackwell" and numbers < (1, 3, 0, 18)


def _of_trtllm(dtype: str, architecture: str) -> str:
    """What TensorRT-LLM's layer runs under one name for all formats."""
    if dtype == "w4a8_mxfp4_mxfp8":
        return "trtllm_mxfp4"
    return "oai_triton_trtllm" if (dtype, architecture) == ("w4a16_mxfp4", "hopper") else "cutlass"


def _usual(library: str, dtype: str, architecture: str) -> str:
    blackwell = architecture == "blackwell"
    if library in ("triton", "cutlass", "deepgemm", "marlin"):
        return library
    if library == "trtllm":
        return "deepgemm" if blackwell and dtype == "fp8_block" else "cutlass"
    if blackwell:
        return "trtllm_gen"
    if dtype == "w4a16_mxfp4" and architecture == "hopper":
        return "oai_triton"
    if dtype in ("int4_wo", "nvfp4_wo", "w4a16_mxfp4"):
        return "marlin"
    if dtype in ("nvfp4", "mxfp4", "w4a8_mxfp4_mxfp8"):
        return "cutlass"
    return "triton_sglang" if library == "sglang" else "triton"


def stored(style: str, recipe: Recipe) -> tuple[float, bool]:
    """Bytes of a weight as the kernel reads it, and whether the kernel converts it.

    SGLang's Triton kernel converts MXFP4 weights to bf16 when the model is loaded.
    """
    if style.startswith("triton_sglang") and recipe.weights == "mxfp4":
        return BITS[recipe.compute] / 8.0, False
    return recipe.weight_bits / 8.0, BITS[recipe.weights] < BITS[recipe.compute]


def is_gated(variant: Variant) -> bool:
    """Whether a layer has gate, up and down matrices: the flag, unless the kernel's name denies it.

    >>> is_gated(Variant()), is_gated(Variant(kernel="moe_torch_flow_nongated"))
    (True, False)
    """
    return variant.flag("gated", True) and "nongated" not in variant.kernel
