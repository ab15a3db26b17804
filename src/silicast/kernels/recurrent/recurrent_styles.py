"""Which kernels run a recurrent mixer: styles that share constants, found by name or by engine."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

import msgspec

from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.catalog import ANY, kernel_rule, library, recurrent_styles
from silicast.workload.libraries.library_file import RecurrentStyle, RuleFacts

Phase = Literal["context", "generation", "verify"]
Kind = Literal["conv", "scan"]


def kind_of(kernel: str) -> Kind | None:
    """Which of a mixer's two kernels a name means; None = both (no name).

    >>> kind_of("causal_conv1d_update"), kind_of("chunk_kda"), kind_of("")
    ('conv', 'scan', None)
    """
    if not kernel:
        return None
    return "conv" if "conv" in kernel else "scan"


@lru_cache(maxsize=1024)
def style_of(
    family: str, kind: Kind, phase: Phase, variant: Variant, architecture: str
) -> RecurrentStyle:
    """The style of one of a mixer's kernels.

    Args:
        family: "gdn", "kda" or "mamba2".
        kind: which of its two kernels.
        phase: of the step.
        variant: names the kernel, or the library and its version; neither = what serving engines
            run today.
        architecture: of the device.

    >>> style_of("gdn", "scan", "context", Variant(), "hopper").name
    'delta_flashinfer'
    """
    rule = kernel_rule(family, RuleFacts.from_variant(variant, architecture, phase=phase), kind)
    assert rule is not None, "catalog/libraries/any.toml has a rule for every kernel"
    style = recurrent_styles()[rule.style]
    campaign = family == "gdn" and bool(variant.kernel or variant.version)
    return msgspec.structs.replace(style, keys_only=style.keys_only and campaign)


def is_known(family: str, kernel: str) -> bool:
    """Whether a kernel's name, if there is one, is one that was measured."""
    known = library(ANY).kernel_names.get(family, [])
    return not kernel or any(fnmatchcase(kernel, each) for each in known)
