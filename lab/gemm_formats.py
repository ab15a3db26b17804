"""Fits of the narrow formats and of batched calls, on top of bf16: stage 2 of fit_gemm.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab.fitting import Constants, Tables
from lab.gemm_problem import (
    PRIOR_SD,
    QUANTISE,
    ROWS_PER_DEVICE,
    STEPS,
    Problem,
    add_spread,
    architecture_of,
    maker,
    middle,
    solve,
    training,
)
from lab.scorecard.rows import MeasuredRows
from silicast.kernels.products.gemm_constants import BORROWS, WIDENED_BEFORE


@dataclass(frozen=True)
class Format:
    """What is fitted of one recipe, on top of the constants of bf16 (or those that it borrows).

    Attributes:
        shared: constants of all libraries and devices.
        of_library: constants that each library has of its own.
        own: constants that each architecture has of its own.
        both: constants of each library on each architecture, as its kernels differ.
        start: where some of them start; the others do at the constants they replace.
        given: constants that are stated, not fitted.
    """

    dtype: str
    shared: tuple[str, ...] = ()
    of_library: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    both: tuple[str, ...] = ()
    start: Mapping[str, float] = field(default_factory=dict)
    given: Mapping[str, float] = field(default_factory=dict)


KERNEL = ("extra_s", "operand_bytes_per_clock", "quantise_l2_share")
LOOP = ("step_s", "split_s")
STORE = ("store_bytes_per_clock",)
CHIP = ("tensor_efficiency", "launch_s", "quantisation")
PLUGIN = {"extra_s": 5e-6, "step_s": 1.4e-7, "split_s": 1e-5, "widen_ops": 1.0}
FORMATS = (
    Format("fp8", KERNEL, QUANTISE, CHIP, LOOP + STORE, start={"extra_s": 1e-6}),
    *(
        Format(d, KERNEL + STORE, QUANTISE, CHIP, LOOP, start={"extra_s": 1e-6})
        for d in ("fp8_block", "nvfp4")
    ),
    Format("fp8_static", of_library=QUANTISE, both=LOOP + STORE),
    *(
        Format(
            d, ("widen_ops", "step_s", "narrow_step_s", "narrow_share"), ("split_s", "extra_s"),
            start=PLUGIN, given={"skinny_rows": 8.0},
        )
        for d in ("int4_wo", "int8_wo")
    ),
    Format(
        "sq", ("step_s", "narrow_step_s"), ("split_s", "extra_s"), ("tensor_efficiency",),
        start={"extra_s": 5e-6, "split_s": 1e-5}, given={"skinny_rows": 4.0},
    ),
)  # fmt: skip
"""TensorRT's plugins (the integer formats) are timed as layers of an engine, which costs them some
microseconds, and do not split k as others do: those constants are of that library only."""
NOT_OF_OTHERS = ("split_s", "extra_s")
"""Of the integer formats, what an unnamed library does not take from the one that was measured."""


def fit_format(
    form: Format,
    parts: Sequence[MeasuredRows],
    common: Constants,
    tables: Tables,
    rows: int = ROWS_PER_DEVICE,
    steps: int = STEPS,
) -> tuple[Constants, Tables]:
    """One recipe's constants on top of ``common`` and ``tables``."""
    d = form.dtype
    mine = [part for part in parts if part.batch.variant.dtype == d]
    libraries = sorted({maker(p) for p in mine})
    marked = [
        (f"{d}.{n}:{x}", n)
        for x in libraries
        for n in form.of_library + form.both
        if not (n.startswith("quantise") and not _quantised(mine, x))
    ]
    shared = [(f"{d}.{n}", n) for n in form.shared]
    shared += [pair for pair in marked if pair[1] in form.of_library]
    names = [(f"{d}.{n}", n) for n in form.own]
    names += [pair for pair in marked if pair[1] in form.both]
    base = {**common, **{f"{d}.{n}": x for n, x in form.given.items()}}
    start: Tables = {a: {} for a in tables}
    before = f"{BORROWS.get(d, d)}."
    for full, plain in names + shared:
        borrowed = full.replace(f"{d}.", before)
        base[full] = form.start.get(plain, common.get(borrowed, common[plain]))
        for a in tables:
            result = tables[a].get(
                borrowed, common.get(borrowed, tables[a].get(plain, common[plain]))
            )
            start[a][full] = form.start.get(plain, result)
    free = tuple(full for full, _ in shared), tuple(full for full, _ in names)
    there = {(architecture_of(part), maker(part)) for part in mine}
    problem = Problem(training(mine, rows), *free, base, tables, start, PRIOR_SD)
    common, fitted = solve(problem, steps)
    for a, table in fitted.items():  # a library's constants where it was not measured: the others'
        for full in free[1]:
            if ":" in full and (a, full.partition(":")[2]) not in there:
                del table[full]
    tables = {a: fitted.get(a, tables[a]) for a in tables}
    common = {**common, **middle(fitted, free[1])}
    for name in form.of_library + form.both:  # of an unnamed library: those of the quickest
        values = [common[full] for full, plain in marked if plain == name]
        if values and not ("extra_s" in form.of_library and name in NOT_OF_OTHERS):
            common[f"{d}.{name}"] = min(values)
    return add_spread(training(mine, rows), common, tables, f"{d}.")


def fit_bmm(
    parts: Sequence[MeasuredRows],
    common: Constants,
    tables: Tables,
    rows: int = ROWS_PER_DEVICE,
    steps: int = STEPS,
) -> tuple[Constants, Tables]:
    """What calls of batched products add: a constant, and their own quantisation in fp8."""
    for prefix, dtype in (("", "bf16"), ("fp8.", "fp8")):
        mine = [
            part
            for part in parts
            if part.batch.variant.dtype == dtype and WIDENED_BEFORE not in part.batch.variant.kernel
        ]
        added = f"{prefix}extra_s:bmm"
        libraries = sorted({maker(part) for part in mine})
        free = [f"fp8.{n}:{x}_bmm" for x in libraries for n in QUANTISE] if prefix else []
        base = {**common, added: common[f"{prefix}extra_s"] + 1.5e-6}
        for name in free:
            base[name] = common[f"fp8.{name.partition('.')[2].partition(':')[0]}"]
        start: Tables = {a: {added: base[added]} for a in tables}
        problem = Problem(training(mine, rows), tuple(free), (added,), base, tables, start, {})
        common, fitted = solve(problem, steps)
        tables = {a: fitted.get(a, tables[a]) for a in tables}
        common = {**common, **middle(fitted, (added,))}
        for name in QUANTISE if prefix else ():
            common[f"fp8.{name}:bmm"] = min(common[f"fp8.{name}:{x}_bmm"] for x in libraries)
        common, tables = add_spread(training(mine), common, tables, prefix, "bmm")
    return common, tables


def _quantised(parts: Sequence[MeasuredRows], library: str) -> bool:
    return any(part.batch.variant.flags for part in parts if maker(part) == library)
