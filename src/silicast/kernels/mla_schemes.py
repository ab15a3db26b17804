"""Which latent-attention kernel an engine's call runs, and what else the call holds.

Decode is absorbed everywhere: all heads attend to one cached vector a token. Prefill is attention
over keys and values made out of the latent, except where a call keeps to the cached vectors: in
SGLang's tables on Hopper and with Triton, and in vLLM for the few new tokens that its decode
kernels take. Inferred from the kernel names and the times of the tables (vLLM 0.14 to 0.24, SGLang
0.5, TensorRT-LLM 1.0 to 1.3), not read in the engines' sources: docs/explanation/mla.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, final

from silicast.core.dtypes import BITS, RECIPES
from silicast.hardware.device import Device
from silicast.kernels.attention_schemes import Mainloop
from silicast.kernels.engine_kernels import kernels_of
from silicast.kernels.physics import load_physics
from silicast.workload.op import Variant

Style = Literal["trtllm", "sglang", "vllm", "vllm_late", "vllm_flashmla"]
LATE = (0, 20)
"""Version of vLLM from which its Triton kernel cuts long caches into many parts, not four."""

EVERY_LENGTH = 1 << 40
ABSORBED_UP_TO = {"flashmla": 128, "flash_attn_mla": 512}
"""vLLM decode kernel -> new tokens up to which the tables of blocks name it in prefill."""

CALL = "mla_prefill"
"""Of an engine's calls the one that is asked: prefill and decode are alike."""

_STYLES: Mapping[str, Style] = {
    "vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm",
    "flashmla": "vllm", "fa2": "vllm", "fa3": "sglang", "triton": "sglang", "flashinfer": "trtllm",
}  # fmt: skip
"""Engine or library -> whose constants: the engine measured calling it."""


@final
@dataclass(frozen=True)
class MlaScheme:
    """One call of latent attention.

    Attributes:
        style: whose constants to use.
        kernel: what multiplies: "fmha" (TensorRT-LLM's), "fa3", "flashmla", "triton".
        mainloop: see :class:`~silicast.kernels.attention_schemes.Scheme`.
        engine: the call is an engine's attention layer: kernel, rotation, cache update.
        projects: it also makes keys and values out of the latent (prefill), or brings queries to
            the latent and results back (absorbed).
        absorbed_up_to: new tokens up to which a prefill attends to the latent itself; 0 = never.
        narrow: the cache holds 8-bit elements.
        math: format in which the products are formed.
    """

    style: Style
    kernel: str
    mainloop: Mainloop
    engine: bool
    projects: bool
    absorbed_up_to: int
    narrow: bool
    math: str

    @property
    def label(self) -> str:
        """Engine and kernel."""
        return f"{self.style}/{self.kernel}"


@lru_cache(maxsize=4096)
def mla_scheme(variant: Variant, device: Device) -> MlaScheme:
    """The kernel behind ``variant`` on ``device``."""
    architecture = device.architecture
    style = _style(variant, architecture)
    stored = variant.kv_dtype or variant.dtype
    stored = RECIPES[stored].activations if stored in RECIPES else stored
    narrow = BITS[stored] < 16
    kernel = _kernel(variant, style, architecture, narrow=narrow)
    if style == "vllm" and kernel == "triton" and _is_late(variant):
        style = "vllm_late"
    if style == "vllm" and kernel == "flashmla":
        style = "vllm_flashmla"
    if style == "vllm" and architecture == "blackwell":
        style = "trtllm"  # FlashInfer brings TensorRT-LLM's kernels
    usual = kernels_of(variant.library)
    engine = variant.flag("append", default=usual.holds(CALL, "append"))
    mainloop: Mainloop = "fa2"
    if kernel != "triton":
        mainloop = {"hopper": "fa3", "blackwell": "fmha100"}.get(architecture, "fa2")  # type: ignore[assignment]
    projects = variant.flag("project", default=usual.holds(CALL, "project"))
    absorbed = 0
    if variant.flag("absorb", default=engine):
        if projects:  # vLLM's calls
            absorbed = next((v for k, v in ABSORBED_UP_TO.items() if variant.kernel.endswith(k)), 0)
        elif style == "sglang" and kernel in ("fa3", "triton"):
            absorbed = EVERY_LENGTH
    return MlaScheme(
        style=style,
        kernel=kernel,
        mainloop=mainloop,
        engine=engine,
        projects=projects,
        absorbed_up_to=absorbed,
        narrow=narrow,
        math=_math(variant, kernel, device, narrow=narrow),
    )


def _is_late(variant: Variant) -> bool:
    version = tuple(int(part) for part in re.findall(r"\d+", variant.version)[:2])
    return not version or version >= LATE


def _style(variant: Variant, architecture: str) -> Style:
    known = _STYLES.get(variant.library)
    if known:
        return known
    for name, style in _STYLES.items():
        if variant.kernel.startswith(name):
            return style
    return "trtllm" if architecture == "blackwell" else "sglang"


def _kernel(variant: Variant, style: Style, architecture: str, *, narrow: bool) -> str:
    if "triton" in variant.kernel or variant.library == "triton":
        return "triton"
    if style == "trtllm" or architecture == "blackwell":
        return "fmha"
    if architecture != "hopper":
        return "triton"
    named = "flashmla" in variant.kernel or variant.library == "flashmla"
    return "flashmla" if named or (style == "vllm" and narrow) else "fa3"


def _math(variant: Variant, kernel: str, device: Device, *, narrow: bool) -> str:
    """TensorRT-LLM's kernels multiply narrow caches as they are where tensor cores can (Hopper,
    Blackwell); all others widen them.
    """
    own = RECIPES[variant.dtype].compute if variant.dtype in RECIPES else variant.dtype
    can = device.rate_per_core("tensor", "fp8") > 0.0
    if narrow and kernel == "fmha" and device.architecture in ("hopper", "blackwell") and can:
        return "fp8"
    return "bf16" if own == "fp8" and not can else own


def mla_constants(group: str, device: Device, scheme: MlaScheme) -> Mapping[str, float]:
    """Constants of an architecture with those of the style put over them; what another kernel of an
    engine does not name is as in its first one.
    """
    return _constants(group, device.architecture, scheme.style)


@cache
def _constants(group: str, architecture: str, style: str) -> Mapping[str, float]:
    found = load_physics(group).constants(architecture)
    plain = {k: v for k, v in found.items() if "." not in k}
    for name in dict.fromkeys((style.partition("_")[0], style)):
        prefix = name + "."
        plain |= {k.removeprefix(prefix): v for k, v in found.items() if k.startswith(prefix)}
    return plain
