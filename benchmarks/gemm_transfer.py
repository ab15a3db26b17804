"""What every architecture would get if nobody had measured it: fits without its rows.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.fit_gemm --transfer

Writes validation/held_out/gemm.json, one set of constants an architecture, which the suites of
whole architectures held out rest on, and prints how far they are off on all of its rows. Fewer
rows and steps than the shipped fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fit_gemm import (
    DATA,
    FMA_ONLY,
    HOST_SPREAD,
    MONOLITHIC_L2,
    STAND_IN,
    fit_bf16,
    fit_fp32,
    fit_ga10x,
    with_stand_in,
)
from benchmarks.gemm_formats import FORMATS, fit_bmm, fit_format
from benchmarks.gemm_problem import (
    SPREAD,
    Constants,
    architecture_of,
    label,
    predict,
    rounded,
)
from silicast.core.dtypes import recipe_for
from silicast.core.prediction import Z90
from silicast.kernels.gemm_constants import SIXTEEN_BITS, selected
from silicast.validation.gemm_rows import (
    Rows,
    bf16_rows,
    bmm_rows,
    fp32_rows,
    pipeweave_rows,
    quantised_rows,
    sample,
    vidur_rows,
)

OUT = Path(__file__).resolve().parents[1] / "src/silicast/validation/held_out/gemm.json"
ROWS, STEPS = 250, 40
SCORED = 800
MONOLITHIC = ("ada", "ampere-ga10x")

Groups = dict[str, list[Rows]]


def read_all() -> Groups:
    """Rows of every stage of the fit."""
    return {
        "bf16": bf16_rows(DATA),
        "vidur": vidur_rows(DATA),
        "narrow": quantised_rows(DATA, tuple(form.dtype for form in FORMATS))
        + pipeweave_rows(DATA),
        "bmm": bmm_rows(DATA),
        "fp32": fp32_rows(DATA),
    }


def without(groups: Groups, held: str) -> Groups:
    """The rows of all other architectures."""
    return {
        name: [part for part in parts if architecture_of(part) != held]
        for name, parts in groups.items()
    }


def fit_tensor(rest: Groups, held: str) -> tuple[dict[str, float], Constants]:
    """All stages but fp32, on ``rest``; Ampere's workstation chips need Ada's constants."""
    common, own = fit_bf16(rest["bf16"], ROWS, STEPS)
    if held not in MONOLITHIC:
        common, own = fit_ga10x(rest["vidur"], common, own)
    for form in FORMATS:
        if any(part.variant.dtype == form.dtype for part in rest["narrow"]):
            common, own = fit_format(form, rest["narrow"], common, own, ROWS, STEPS)
    return fit_bmm(rest["bmm"], common, own, ROWS, STEPS)


def body(common: Mapping[str, float], own: Constants, held: str) -> dict[str, Any]:
    """Default, architectures and fallback of a constants file."""
    return {
        "default": rounded({**common, **SPREAD, **HOST_SPREAD}),
        "architectures": {a: rounded(table) for a, table in sorted(own.items())},
        "fallback": {held: STAND_IN},
    }


def report_held(parts: Sequence[Rows], found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Mean error, bias and coverage of the interval on all rows of an architecture, in percent."""
    scores = {}
    for part in parts:
        rows = sample(part, SCORED)
        table = {**found["default"], **found["architectures"][STAND_IN]}
        logs = np.log(predict(rows, table) / rows.seconds)
        recipe = recipe_for(part.variant.dtype)
        own = selected(table, recipe, part.variant.library, part.variant.kernel)
        known = any(
            f"{recipe.name}.tensor_efficiency" in t for t in found["architectures"].values()
        )
        sds = [own["independent_log_sd"], own["unmeasured_device_log_sd"], own["family_log_sd"]]
        if recipe.name not in SIXTEEN_BITS and not known:
            sds.append(own["unmeasured_format_log_sd"])
        width = Z90 * math.sqrt(sum(sd * sd for sd in sds))
        scores[label(part)] = {
            "mape": round(100 * float(np.abs(np.exp(logs) - 1).mean()), 2),
            "bias": round(100 * float(np.exp(np.median(logs)) - 1), 2),
            "coverage90": round(100 * float(np.mean(np.abs(logs) <= width)), 1),
        }
        print(f"{label(part):44s}", scores[label(part)], flush=True)
    return scores


def hold_out_all() -> None:
    """Every architecture that was measured, in turn."""
    groups = read_all()
    found = {}
    known = fit_tensor(groups, "")
    for held in (*MONOLITHIC, "ampere", "blackwell", "hopper", *FMA_ONLY):
        print(f"== {held} held out whole", flush=True)
        rest = without(groups, held)
        common, own = known if held in FMA_ONLY else fit_tensor(rest, held)
        common, own = fit_fp32(rest["fp32"], common, own, ROWS)
        own = with_stand_in(common, own, rest["bf16"])
        if held in MONOLITHIC:  # a fact of the chip, not fitted
            own[STAND_IN]["resident_share"] = MONOLITHIC_L2
        found[held] = body(common, own, held)
        mine = [p for parts in groups.values() for p in parts if architecture_of(p) == held]
        report_held(mine, found[held])
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    hold_out_all()
