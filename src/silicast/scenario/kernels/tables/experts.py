"""Layers of experts and the exchange of tokens between them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from silicast.core.errors import require
from silicast.core.plain_data import shown
from silicast.scenario.kernels.tables._spec import DEGREE, TOKENS, WIDTH, Lowering, OpSpec

ACTIVATIONS = ("silu", "gelu", "relu", "swiglu", "geglu", "relu2", "swiglu_oai")
DISTRIBUTIONS = r"balanced|uniform|power_law_\d+(\.\d+)?(_eplb)?|power_law_sampled_\d+(\.\d+)?"


def _exchange(case: Lowering) -> None:
    """Ranks may hold copies of experts beside their own, so that ``ep`` divides no number of them.

    ``sms`` = 0: the number of SMs that carry out the exchange is not known.
    """
    experts, topk = case.whole("experts"), case.whole("topk")
    require(topk <= experts, f"topk = {topk} of {experts} experts", "topk")


def _agree(case: Lowering) -> None:
    _exchange(case)
    experts, ep = case.whole("experts"), case.whole("ep")
    require(experts % ep == 0, f"ep = {ep} does not divide {experts} experts", "ep")


def _experts(case: Lowering) -> None:
    """Part and distribution become flags of the op.

    The activation itself costs next to nothing, but squared ReLU has no gate beside it.
    """
    from silicast.kernels.experts.moe import moe_flags

    _agree(case)
    activation = case.words.pop("activation", "")
    gated = case.flags["gated"] if "gated" in case.table else activation != "relu2"
    shares = _distribution(case.words.pop("distribution", "balanced"), case.whole("experts"))
    distribution = shares if isinstance(shares, str) else list(cast("tuple[float]", shares))
    part = str(case.words.pop("part", "full"))
    case.flags.clear()
    case.flags.update(moe_flags(part, gated=gated, distribution=distribution))


def _distribution(value: object, experts: int) -> object:
    if isinstance(value, (list, tuple)):
        require(
            len(value) == experts,
            f"a histogram of {len(value)} for {experts} experts",
            "distribution",
        )
        for i, share in enumerate(value):
            sound = isinstance(share, (int, float)) and not isinstance(share, bool) and share >= 0
            require(sound, f"expected a share, found {shown(share)}", f"distribution[{i}]")
        require(sum(value) > 0, "the histogram is empty", "distribution")
        return tuple(value)
    sound = isinstance(value, str) and re.fullmatch(DISTRIBUTIONS, value) is not None
    require(
        sound,
        f"unknown distribution {shown(value)}",
        "distribution",
        "balanced, uniform, power_law_1.01, power_law_1.2, ... or one share an expert",
    )
    return value


_SIZES = {"tokens": TOKENS, "experts": (1, 65_536), "topk": (1, 4096), "hidden": WIDTH}
_EXCHANGE = OpSpec(
    "expert-parallel exchange of the tokens of a group",
    {**_SIZES, "ep": (2, DEGREE[1])},
    {"nodes": (DEGREE, None), "sms": ((0, 1024), None)},
    dtype_names={"default": "bf16"},
    lower=_exchange,
)

OPS: Mapping[str, OpSpec] = {
    "moe": OpSpec(
        "experts of a layer over its group; whole-model sizes; the busiest rank's time",
        {**_SIZES, "intermediate": WIDTH},
        {"ep": (DEGREE, 1), "tp": (DEGREE, 1)},
        flags={"gated": True},
        words={"part": ("full", "w13", "w2"), "activation": ACTIVATIONS, "distribution": ()},
        lower=_experts,
    ),
    "dispatch": _EXCHANGE,
    "combine": _EXCHANGE,
}
