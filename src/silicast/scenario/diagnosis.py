"""One reason for a slow kernel: what a measured kernel reached, where its time goes, which
configuration is faster, and what a model gains by it.

>>> kernel = {"op": "moe", "tokens": 64, "experts": 128, "topk": 8, "hidden": 2048,
...           "intermediate": 768, "part": "w13"}
>>> found = diagnose(kernel, "H20", [420.0, 421.0, 423.0])
>>> abs(sum(found.causes_us.values()) - found.measured_us) < 1e-6
True
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, final

from silicast.core.dtypes import recipe_for
from silicast.core.errors import SilicastError, unmodelled
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.blocks import check_legal
from silicast.kernels.configuration import Configuration, of_pairs, read_configuration
from silicast.kernels.formats import with_format
from silicast.kernels.tile_times import Product, tile_constants, tile_times
from silicast.learning.configuration_ranking import (
    Ranked,
    configured_steps,
    learned_s,
    ranked,
    shipped_ranker,
)
from silicast.learning.configured import PRODUCTS
from silicast.learning.dispatch import KernelTime, times
from silicast.learning.kernel_causes import product_causes, summed
from silicast.learning.tiers import Evidence
from silicast.scenario.kernel_case import kernel_case
from silicast.scenario.resolve import find_any_device
from silicast.workload.op import Op

US = 1e6
WORTH_PCT = 5.0
"""A gain that a reader is told the chance of."""
FAR_REPEAT = 1.2
"""A repeat further than that from the median is named."""
SAME_REPEATS = 4
"""So many equal repeats are a timer's, not a kernel's."""
KEPT_SD = 0.01
"""Judged: spread of a single measurement whose repeats are not known."""


@final
@dataclass(frozen=True)
class Faster:
    """A faster configuration.

    Attributes:
        configuration: which; estimate_us, p05_us, p95_us: what it takes.
        gain_pct: of the measured time, what it saves, with 90 % interval; not below zero.
        chance: that it saves more than :data:`WORTH_PCT`.
    """

    configuration: Configuration
    estimate_us: float
    p05_us: float
    p95_us: float
    gain_pct: float
    gain_p05_pct: float
    gain_p95_pct: float
    chance: float


@final
@dataclass(frozen=True)
class Diagnosis:
    """What is known of a measured kernel.

    Attributes:
        measured_us: median of the repeats; predicted_us: of the library's own choice.
        bound_us, bound_by: physical limit; ceiling_us: what quick kernels of such sizes reach.
        achieved: share of the bound's speed.
        configuration: that ran, as stated or assumed; assumed: it was not stated.
        causes_us: shares that add up to the measured time.
        faster: the best configuration, None where none is expected to be faster.
        warnings: of the measurement and of the model.
    """

    measured_us: float
    predicted_us: float
    bound_us: float
    bound_by: str
    ceiling_us: float | None
    configuration: Configuration
    assumed: bool
    causes_us: Mapping[str, float]
    faster: Faster | None
    warnings: tuple[str, ...]

    @property
    def achieved(self) -> float:
        """Share of the bound's speed."""
        return self.bound_us / self.measured_us


def diagnose(
    kernel: Mapping[str, Any],
    device: str,
    measured_us: Sequence[float],
    *,
    configuration: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Diagnoses one measured kernel.

    Args:
        kernel: as a scenario's ``kernel`` table: moe (w13 or w2) or gemm.
        device: catalog name, or path to a device file.
        measured_us: repeats.
        configuration: that ran; None = what the kernel's table states, else the likeliest.

    Raises:
        SilicastError: no such kernel or device, no measurement, one that is faster than its bound,
            or a configuration that the device cannot run.
    """
    op, board = kernel_case(kernel).op, find_any_device(device, Path())
    stated = op.variant.config
    op = replace(op, variant=replace(op.variant, config=()))
    one = read_configuration(configuration) if configuration else None
    if one is None and stated:
        one = of_pairs(stated)
    return diagnose_op(op, board, measured_us, one)


def diagnose_op(
    op: Op, device: Device, measured_us: Sequence[float], one: Configuration | None = None
) -> Diagnosis:
    """:func:`diagnose` of an op without a configuration of its own."""
    products = _products(op, device)
    (usual,) = times([op], device, Evidence(ceilings=True))
    measured, said = _measured(measured_us, usual)
    board, _ = with_format(device.in_state("boost"), op.variant.dtype)
    recipe = recipe_for(op.variant.dtype, field="dtype")
    every = [ranked(product, board, recipe) for product in products]
    assumed = one is None
    if one is None:
        one = _likeliest(every, measured)
    check_legal(one, board, recipe)
    parts = [_part(product, found, one) for product, found in zip(products, every, strict=True)]
    predicted = sum(seconds for seconds, _ in parts)
    causes = summed([causes for _, causes in parts])
    causes["unexplained"] = measured - predicted
    found = _faster(every, one, predicted, measured, _spread(measured_us), assumed=assumed)
    return Diagnosis(
        measured_us=US * measured, predicted_us=US * usual.estimate_s, bound_us=US * usual.bound_s,
        bound_by=usual.bound_by, configuration=one, assumed=assumed,
        ceiling_us=None if usual.ceiling_s is None else US * usual.ceiling_s,
        causes_us={name: US * value for name, value in causes.items()}, faster=found,
        warnings=(*said, *usual.warnings, *_doubts(board)),
    )  # fmt: skip


def _products(op: Op, device: Device) -> tuple[Product, ...]:
    of = PRODUCTS.get(op.family)
    if of is None or device.execution_model != "simt":
        raise unmodelled(
            f"{op.family} on {device.execution_model} devices cannot be diagnosed", "kernel.op",
            f"families with configurations: {', '.join(PRODUCTS)}",
        )  # fmt: skip
    flags = dict(op.variant.flags)
    if op.family == "moe" and not (flags.get("w13") or flags.get("w2")):
        raise SilicastError(
            "a whole layer is several kernels", field="kernel.part",
            hint='diagnose part = "w13" (before the activation) or "w2" (after it)',
        )  # fmt: skip
    sizes = {name: size for name, size in op.dims if isinstance(size, int)}
    return of(sizes, op.variant)


def _measured(values: Sequence[float], usual: KernelTime) -> tuple[float, list[str]]:
    """Median in seconds, and what is odd about the repeats."""
    if not values or not all(math.isfinite(x) and x > 0.0 for x in values):
        raise SilicastError(
            "expected microseconds above zero", field="measured_us", hint="for example 412.5"
        )
    middle = median(values)
    if middle / US < usual.bound_s:
        raise SilicastError(
            f"{middle:g} us is faster than its bound of {US * usual.bound_s:.4g} us "
            f"({usual.bound_by})", field="measured_us",
            hint="is it the time of this kernel on this device, operands not cached before?",
        )  # fmt: skip
    return middle / US, list(_odd(values, middle))


def _odd(values: Sequence[float], middle: float) -> Iterator[str]:
    far = [x for x in values if max(x / middle, middle / x) > FAR_REPEAT]
    if far:
        yield (
            f"{len(far)} of {len(values)} repeats are more than "
            f"{100.0 * (FAR_REPEAT - 1.0):.0f} % from the median, such as {far[0]:g} us"
        )
    if max(values) / min(values) > FAR_REPEAT * FAR_REPEAT:
        yield f"repeats contradict each other: {min(values):g} to {max(values):g} us"
    if len(values) >= SAME_REPEATS and len(set(values)) == 1:
        yield f"all {len(values)} repeats are {values[0]:g} us: is that the timer's step?"


def _spread(values: Sequence[float]) -> float:
    """Log sd of the median of repeats."""
    if len(values) < 2:
        return KEPT_SD
    logs = [math.log(x) for x in values]
    mean = math.fsum(logs) / len(logs)
    variance = math.fsum((x - mean) ** 2 for x in logs) / (len(logs) - 1)
    return math.sqrt(variance / len(logs))


def _likeliest(every: Sequence[Ranked], measured: float) -> Configuration:
    """Of the configurations that rank first, the one whose time comes nearest: what ran is not
    known, and tuned tables hold what came near the best.
    """
    places: list[int] = every[0].order[:LIKELY].tolist()
    seconds = {place: sum(float(found.time_s[place]) for found in every) for place in places}
    nearest: int = min(places, key=lambda place: abs(math.log(seconds[place] / measured)))
    return every[0].grid[nearest]


LIKELY = 40
"""Configurations that a tuned table may have held."""


def _part(product: Product, found: Ranked, one: Configuration) -> tuple[float, dict[str, float]]:
    """Predicted seconds of a product and their causes."""
    steps = configured_steps(one, found)
    analytic = tile_times(product, steps, tile_constants())
    seconds = learned_s(product, steps, found)
    return seconds, product_causes(analytic, 0, seconds)


def _faster(
    every: Sequence[Ranked], one: Configuration, predicted: float, measured: float,
    repeats_sd: float, *, assumed: bool,
) -> Faster | None:  # fmt: skip
    """The best configuration and its gain over the measured time."""
    ranker = shipped_ranker()
    device = every[0].steps.device
    order = every[0].order
    best = every[0].grid[int(order[0])]
    seconds = sum(found.estimate_s for found in every)
    shared = 0.0 if assumed else ranker.shared(device)
    # what the model was off for the configuration that ran, it is off in part for all others
    seconds *= math.exp(shared * math.log(measured / predicted))
    sd = math.sqrt(ranker.log_sd(device) ** 2 * (1.0 - shared * shared) + repeats_sd**2)
    if best == one or seconds >= measured:
        return None
    spread = math.exp(Z90 * sd)

    def gain(time: float) -> float:
        return 100.0 * max(1.0 - time / measured, 0.0)

    worth = math.log(measured * (1.0 - WORTH_PCT / 100.0) / seconds)
    return Faster(
        best, US * seconds, US * seconds / spread, US * seconds * spread, gain(seconds),
        gain(seconds * spread), gain(seconds / spread),
        0.5 * (1.0 + math.erf(worth / (sd * math.sqrt(2.0)))),
    )  # fmt: skip


def _doubts(device: Device) -> Iterator[str]:
    card = shipped_ranker().card
    if device.name not in card.devices:
        yield (
            f"{device.name} was not swept: configurations are ranked by physics and by sweeps of "
            f"{', '.join(card.devices)}, and the interval is that of such devices"
        )


def diagnosis_data(found: Diagnosis) -> dict[str, Any]:
    """As plain tables, for JSON."""
    data: dict[str, Any] = {
        "measured_us": found.measured_us, "predicted_us": found.predicted_us,
        "bound_us": found.bound_us, "bound_by": found.bound_by, "ceiling_us": found.ceiling_us,
        "achieved": found.achieved,
        "configuration": {**dict(found.configuration.pairs), "assumed": found.assumed},
        "causes_us": dict(found.causes_us), "faster": None, "warnings": list(found.warnings),
    }  # fmt: skip
    best = found.faster
    if best is not None:
        data["faster"] = {
            "configuration": dict(best.configuration.pairs),
            "latency_us": {"estimate": best.estimate_us, "p05": best.p05_us, "p95": best.p95_us},
            "gain_pct": {
                "estimate": best.gain_pct, "p05": best.gain_p05_pct, "p95": best.gain_p95_pct
            },
            "chance_above_5_pct": best.chance,
        }  # fmt: skip
    return data


def saved_us(found: Diagnosis) -> float:
    """What the faster configuration saves of one run; 0 where there is none."""
    return 0.0 if found.faster is None else found.measured_us - found.faster.estimate_us
