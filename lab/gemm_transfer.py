"""Constants of every architecture as if it were unmeasured: fits without its rows.

What suite ``unseen`` rests on; see lab/fit_gemm.py. Fewer rows and steps than the shipped fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lab.fit_gemm import (
    MONOLITHIC,
    MONOLITHIC_L2,
    STAND_IN,
    Groups,
    body,
    fit_bf16,
    fit_fp32,
    fit_ga10x,
    with_stand_in,
)
from lab.fitter import Body
from lab.fitting import Constants, Tables
from lab.gemm_formats import FORMATS, fit_bmm, fit_format
from lab.gemm_problem import architecture_of, label, log_ratio, maker
from lab.scorecard.rows import MeasuredRows, least_hashed
from silicast.core.dtypes import recipe_for
from silicast.core.prediction import Z90
from silicast.kernels.products.candidates import fetches_in_bulk
from silicast.kernels.products.gemm_constants import SIXTEEN_BITS, selected

ROWS, STEPS = 250, 40
SCORED = 800


def without(groups: Groups, held: str) -> Groups:
    """The rows of all other architectures."""
    return {
        name: [part for part in parts if architecture_of(part) != held]
        for name, parts in groups.items()
    }


def fit_tensor(groups: Groups, held: str) -> tuple[Constants, Tables]:
    """All stages but fp32, on ``groups``."""
    common, architectures = fit_bf16(groups["bf16"], ROWS, STEPS)
    if held != "ampere-ga10x":
        common, architectures = fit_ga10x(groups["another laboratory, fp16"], common, architectures)
    for form in FORMATS:
        if any(part.batch.variant.dtype == form.dtype for part in groups["narrow formats"]):
            common, architectures = fit_format(
                form, groups["narrow formats"], common, architectures, ROWS, STEPS
            )
    return fit_bmm(groups["batched calls"], common, architectures, ROWS, STEPS)


def report_held(parts: Sequence[MeasuredRows], entries: Mapping[str, Any], stand_in: str) -> Tables:
    """Mean error, bias and coverage of the interval on all rows of an architecture, in percent."""
    scores = {}
    for part in parts:
        table = {**entries["default"], **entries["architectures"][stand_in]}
        logs = log_ratio(least_hashed(part, SCORED), table)
        variant = part.batch.variant
        recipe = recipe_for(variant.dtype)
        constants = selected(table, recipe, maker(part), variant.kernel)
        has_format = any(
            f"{recipe.name}.tensor_efficiency" in t for t in entries["architectures"].values()
        )
        sds = [
            constants["independent_log_sd"],
            constants["unmeasured_device_log_sd"],
            constants["family_log_sd"],
        ]
        if recipe.name not in SIXTEEN_BITS and not has_format:
            sds.append(constants["unmeasured_format_log_sd"])
        width = Z90 * math.sqrt(sum(sd * sd for sd in sds))
        scores[label(part)] = {
            "mape": round(100 * float(np.abs(np.exp(logs) - 1).mean()), 2),
            "bias": round(100 * float(np.exp(np.median(logs)) - 1), 2),
            "coverage90": round(100 * float(np.mean(np.abs(logs) <= width)), 1),
        }
        print(f"{label(part):44s}", scores[label(part)], flush=True)
    return scores


def hold_out(groups: Groups, held: str, tensor: tuple[Constants, Tables] | None) -> Body:
    """The constants of an architecture without its rows.

    Args:
        tensor: those of tensor cores, for an architecture that has none and moves none of them.
    """
    print(f"== {held} held out whole", flush=True)
    kept_groups = without(groups, held)
    common, architectures = fit_tensor(kept_groups, held) if tensor is None else tensor
    common, architectures = fit_fp32(kept_groups["fp32"], common, architectures, ROWS)
    architectures = with_stand_in(
        common, architectures, kept_groups["bf16"] + kept_groups["another laboratory, fp16"]
    )
    stand_in = STAND_IN[fetches_in_bulk(held)]
    if held in (*MONOLITHIC, "ampere-ga10x"):  # a fact of the chip, not fitted
        architectures[stand_in]["resident_share"] = MONOLITHIC_L2
    hold_out = body(common, architectures, {held: stand_in})
    mine = [p for parts in groups.values() for p in parts if architecture_of(p) == held]
    report_held(mine, hold_out, stand_in)
    return hold_out
