"""The latent-attention kernel of an engine's call, and the other work of the call.

Decode is absorbed everywhere: all heads attend to one cached vector a token. Prefill is attention
over keys and values made out of the latent, except where a call keeps to the cached vectors.
docs/explanation/attention.md explains the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import final

from silicast.core.dtypes import BITS, RECIPES
from silicast.hardware.device import Device
from silicast.kernels.engine_kernels import kernels_of
from silicast.kernels.physics.constants import load_physics
from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.catalog import absorbed_up_to, kernel_rule, latent_styles
from silicast.workload.libraries.library_file import LatentStyle, Mainloop, RuleFacts

EVERY_LENGTH = 1 << 40
CALL = "mla_prefill"
"""The op whose call is looked up in an engine's file; the call of the other one is the same."""

NEWEST: Mapping[str, Mainloop] = {"hopper": "wgmma", "blackwell": "tcgen05"}
"""Architecture -> its asynchronous matrix instruction."""


@final
@dataclass(frozen=True)
class MlaScheme:
    """One call of latent attention.

    Attributes:
        label: name of the style, as constants and corrections know it.
        style: the mechanisms of its kernel.
        mainloop: matrix instruction; see
        :data:`~silicast.workload.libraries.library_file.Mainloop`.
        engine: the call is an engine's attention layer: kernel, rotation, cache update.
        projects: it also makes keys and values out of the latent (prefill), or brings queries to
            the latent and results back (absorbed).
        absorbed_up_to: new tokens up to which a prefill attends to the latent itself; 0 = never.
        narrow: the cache holds 8-bit elements.
        math: format in which the products are formed.
    """

    label: str
    style: LatentStyle
    mainloop: Mainloop
    engine: bool
    projects: bool
    absorbed_up_to: int
    narrow: bool
    math: str


@lru_cache(maxsize=4096)
def mla_scheme(variant: Variant, device: Device) -> MlaScheme:
    """The kernel behind ``variant`` on ``device``."""
    architecture = device.architecture
    stored = variant.kv_dtype or variant.dtype
    stored = RECIPES[stored].activations if stored in RECIPES else stored
    narrow = BITS[stored] < 16
    facts = RuleFacts.from_variant(variant, architecture, narrow=narrow)
    rule = kernel_rule(CALL, facts)
    assert rule is not None, "catalog/libraries/any.toml has a rule for every kernel"
    style = latent_styles()[rule.style]
    usual = kernels_of(variant.library)
    engine = variant.flag("append", default=usual.holds(CALL, "append"))
    projects = variant.flag("project", default=usual.holds(CALL, "project"))
    absorbed = 0
    if variant.flag("absorb", default=engine):
        if projects:
            absorbed = absorbed_up_to(CALL, facts)
        elif style.absorbs:
            absorbed = EVERY_LENGTH
    return MlaScheme(
        label=rule.style,
        style=style,
        mainloop=NEWEST.get(architecture, "mma") if style.asynchronous else "mma",
        engine=engine,
        projects=projects,
        absorbed_up_to=absorbed,
        narrow=narrow,
        math=_math(variant, style, device, narrow=narrow),
    )


def _math(variant: Variant, style: LatentStyle, device: Device, *, narrow: bool) -> str:
    """Format of the products: narrow caches are widened unless the kernel multiplies them as they
    are on the architecture, which takes matrix units for them.
    """
    compute = RECIPES[variant.dtype].compute if variant.dtype in RECIPES else variant.dtype
    can = device.rate_per_core("tensor", "fp8") > 0.0
    if narrow and device.architecture in style.multiplies_narrow and can:
        return "fp8"
    return "bf16" if compute == "fp8" and not can else compute


def mla_constants(group: str, device: Device, scheme: MlaScheme) -> Mapping[str, float]:
    """Constants of an architecture, overridden by those of the style; what a further kernel of an
    engine does not state is as in its first one.
    """
    return _constants(group, device.architecture, scheme.style.constants)


@cache
def _constants(group: str, architecture: str, style: str) -> Mapping[str, float]:
    constants = load_physics(group).constants(architecture)
    plain = {k: v for k, v in constants.items() if "." not in k}
    for name in dict.fromkeys((style.partition("_")[0], style)):
        prefix = name + "."
        plain |= {k.removeprefix(prefix): v for k, v in constants.items() if k.startswith(prefix)}
    return plain
