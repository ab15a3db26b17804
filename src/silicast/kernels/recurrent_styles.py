"""Which kernels run a recurrent mixer: styles that share constants, found by name or by engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, final

from silicast.workload.op import Variant

Phase = Literal["context", "generation", "verify"]
Kind = Literal["conv", "scan"]


@final
@dataclass(frozen=True, slots=True)
class Style:
    """Kernels that are timed by the same constants.

    Attributes:
        name: as in the constants file.
        kind: "conv" (the causal convolution) or "scan" (the recurrence).
        chunk: tokens that a block takes at once, 0 = what the op says.
        align: lengths that are no multiple of it take a slower path, 0 = as ``chunk``.
        states: how states move; see :func:`silicast.kernels.recurrent_work.recurrence_work`.
        keys_only: the campaign's convolution has the keys' channels only; see :data:`KEYS_ONLY`.
    """

    name: str
    kind: Kind
    chunk: int
    states: str = "step"
    keys_only: bool = False
    align: int = 1


def _named(*styles: Style) -> dict[str, Style]:
    return {style.name: style for style in styles}


STYLES = _named(
    # convolution of a prefill
    Style("conv_cuda", "conv", 512, align=8),
    Style("conv_cuda_early", "conv", 1024, align=8),
    Style("conv_triton", "conv", 8),
    Style("conv_triton_early", "conv", 8),
    Style("conv_three_vllm", "conv", 8),
    Style("conv_three_sglang", "conv", 8),
    # convolution of a step
    Style("conv_step_cuda", "conv", 1),
    Style("conv_step_cuda_early", "conv", 1),
    Style("conv_step_triton", "conv", 1),
    Style("conv_step_sglang", "conv", 1),
    Style("conv_step_three_vllm", "conv", 1),
    Style("conv_step_three_sglang", "conv", 1, "every"),
    # recurrence of a prefill
    Style("delta_trtllm", "scan", 64, "scan"),
    Style("delta_sglang", "scan", 64, "scan"),
    Style("delta_vllm", "scan", 64, "scan"),
    Style("delta_flashinfer", "scan", 64, "scan"),
    Style("kda_triton", "scan", 64, "scan"),
    Style("kda_flash", "scan", 64, "scan"),
    Style("ssm_chunks", "scan", 0, "scan", align=0),
    # recurrence of a step
    Style("delta_step_once", "scan", 1, "once"),
    Style("delta_step_once_early", "scan", 1, "once"),
    Style("delta_step_once_sglang", "scan", 1, "once"),
    Style("delta_step", "scan", 1),
    Style("kda_step_vllm", "scan", 1),
    Style("kda_step_sglang", "scan", 1),
    Style("kda_step_fused", "scan", 1),
    Style("kda_verify", "scan", 1, "every"),
    Style("kda_verify_fused", "scan", 1),
    Style("ssm_step", "scan", 1),
)

KEYS_ONLY = ("conv_cuda", "conv_cuda_early", "conv_triton_early", "conv_step_cuda",
             "conv_step_cuda_early")  # fmt: skip
"""Styles whose campaigns of gated delta networks timed the keys' channels alone: their times do not
depend on the number of value heads, and are those of 2,048 channels of other campaigns."""

_NAMES = {
    "chunk_gated_delta_rule_flashinfer": "delta_flashinfer",
    "chunk_gated_delta_rule_triton": "delta_vllm",
    "fused_recurrent_gated_delta_rule_packed_decode": "delta_step",
    "chunk_kda": "kda_triton",
    "chunk_kda_with_fused_gate": "kda_triton",
    "flashkda_fwd": "kda_flash",
    "kda_fused_decode": "kda_step_fused",
    "fused_kda_decode": "kda_step_fused",
    "fused_kda_decode_mtp_dspark": "kda_verify_fused",
    "fused_recurrent_kda": "kda_verify",
    "fused_sigmoid_gating_delta_rule_update": "kda_verify",
    "mamba_chunk_scan_combined": "ssm_chunks",
    "selective_state_update": "ssm_step",
}
"""Kernel names of the tables that say by themselves which style they are."""

_FUSED_SCANS = ("hopper", "blackwell")
"""Architectures that the fused prefill kernels (FlashInfer, FlashKDA) are written for."""


def kind_of(kernel: str) -> Kind | None:
    """Which of a mixer's two kernels a name means; None = both (no name).

    >>> kind_of("causal_conv1d_update"), kind_of("chunk_kda"), kind_of("")
    ('conv', 'scan', None)
    """
    if not kernel:
        return None
    return "conv" if "conv" in kernel else "scan"


@lru_cache(maxsize=1024)
def style_of(family: str, kind: Kind, phase: Phase, variant: Variant, architecture: str) -> Style:
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
    name = _NAMES.get(variant.kernel)
    if kind == "conv":
        name = _conv(family, phase, variant)
    elif name is None or phase not in _phases(name):
        name = _scan(family, phase, variant, architecture)
    style = STYLES[name]
    campaign = bool(variant.kernel or variant.version)
    return replace(style, keys_only=family == "gdn" and campaign and name in KEYS_ONLY)


def is_known(variant: Variant) -> bool:
    """Whether the kernel's name, if there is one, is one that was measured."""
    name = variant.kernel
    return (
        not name
        or name in _NAMES
        or name.startswith("causal_conv1d")
        or name in ("chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule")
    )


def _phases(name: str) -> tuple[Phase, ...]:
    if "verify" in name:
        return ("verify",)
    return ("generation", "verify") if "step" in name else ("context",)


def _conv(family: str, phase: Phase, variant: Variant) -> str:
    library = variant.library
    if family == "kda":
        engine = "vllm" if library == "vllm" else "sglang"
        return f"conv_three_{engine}" if phase == "context" else f"conv_step_three_{engine}"
    old = _before(variant)
    if library == "trtllm" or (library == "sglang" and old):
        early = library == "sglang" or _release_candidate(variant.version) < 15
        if phase != "context":
            return "conv_step_cuda_early" if early else "conv_step_cuda"
        return "conv_cuda_early" if early else "conv_cuda"
    if library == "vllm" and old:
        return "conv_triton_early" if phase == "context" else "conv_step_cuda"
    if phase == "context":
        return "conv_triton"
    return "conv_step_sglang" if library == "sglang" else "conv_step_triton"


def _scan(family: str, phase: Phase, variant: Variant, architecture: str) -> str:
    library = variant.library
    fused = architecture in _FUSED_SCANS
    if family == "mamba2":
        return "ssm_chunks" if phase == "context" else "ssm_step"
    if family == "kda":
        if phase == "context":
            return "kda_flash" if fused and library != "sglang" else "kda_triton"
        if phase == "verify":
            return "kda_verify"
        return "kda_step_sglang" if library == "sglang" else "kda_step_vllm"
    if phase != "context":
        return _delta_step(variant)
    if library in ("trtllm", "sglang"):
        return f"delta_{library}"
    if variant.kernel or not fused:
        return "delta_vllm"
    return "delta_flashinfer"


def _delta_step(variant: Variant) -> str:
    """The delta rule of a step: in older campaigns it moves half the bytes, be it that states are
    in 16 bits or that they are not written back. A model's own layers do both.
    """
    if variant.library == "trtllm" and (variant.kernel or variant.version):
        early = _release_candidate(variant.version) < 20
        return "delta_step_once_early" if early else "delta_step_once"
    old = variant.kernel == "fused_recurrent_gated_delta_rule"
    return "delta_step_once_sglang" if old or _before(variant) else "delta_step"


def _before(variant: Variant) -> bool:
    """Whether the engine is older than the one whose kernels are the usual ones today."""
    since = {"sglang": (0, 5, 14), "vllm": (0, 24)}.get(variant.library)
    return since is not None and bool(variant.version) and _numbers(variant.version) < since


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; a development build counts as newest.

    >>> _numbers("0.5.10"), _numbers("0.1.dev19262")
    ((0, 5, 10), (9999,))
    """
    if "dev" in version:
        return (9999,)
    digits = []
    for part in version.split("."):
        number = ""
        for letter in part:
            if not letter.isdigit():
                break
            number += letter
        if not number:
            break
        digits.append(int(number))
    return tuple(digits)


def _release_candidate(version: str) -> int:
    """The number after "rc"; a large one for anything else.

    >>> _release_candidate("1.3.0rc10"), _release_candidate("1.3.0")
    (10, 9999)
    """
    _, found, tail = version.partition("rc")
    return int(tail) if found and tail.isdigit() else 9999
