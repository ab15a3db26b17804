"""One reason for a slow kernel: what a measured kernel reached, where its time goes, which
configuration is faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, final

from silicast.core.dtypes import recipe_for
from silicast.core.errors import SilicastError, unmodelled
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.configuration import Configuration
from silicast.kernels.experts.moe import distribution_of
from silicast.kernels.physics.formats import with_format
from silicast.kernels.products.blocks import check_legal
from silicast.kernels.products.tile_times import Product, tile_constants, tile_times
from silicast.learning.configuration_ranking import (
    Ranked,
    configured_steps,
    learned_s,
    ranked,
    shipped_ranker,
)
from silicast.learning.configured import PRODUCTS
from silicast.learning.dispatch import times
from silicast.learning.kernel_time import KernelTime
from silicast.learning.tiers import Evidence
from silicast.tuning.files import is_swept
from silicast.tuning.gain import NONE, GainBelief, gain_belief, product_causes, shared_error, summed
from silicast.workload.graphs.op import Op

US = 1e6
WORTH_PCT = 5.0
"""A gain that a reader is told the chance of."""
FAR_REPEAT = 1.2
"""A repeat further than that from the median is named."""
SAME_REPEATS = 4
"""So many equal repeats are a timer's, not a kernel's."""
KEPT_SD = 0.01
"""Judged: spread of a single measurement whose repeats are not known."""
GROUP = 8
"""Kernels alike, from which on they tell what predictions are off by on their device."""


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
        measured_us: median of the repeats.
        predicted_us: what such a kernel usually takes, as ``silicast kernel`` predicts it.
        bound_us, bound_by: physical limit; bound_state: where operands are for it, in words.
        ceiling_us: what quick kernels of such sizes reach, the usual and the faster one among them.
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
    bound_state: str
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


@final
@dataclass(frozen=True)
class Measured:
    """A kernel and what it took.

    Attributes:
        op: without a configuration of its own; configuration: that ran, None = not known.
        device: where; values_us: repeats.
    """

    op: Op
    configuration: Configuration | None
    device: Device
    values_us: tuple[float, ...]


@final
@dataclass(frozen=True)
class Limit:
    """What no kernel of these sizes beats.

    Attributes:
        seconds, by: how long, and the resource; state: where operands are, in words.
    """

    seconds: float
    by: str
    state: str


@final
@dataclass(frozen=True)
class Usual:
    """Seconds of the usual kernel, and of the best configuration before anything is measured.

    The usual time is that of ``silicast kernel``. The best one is faster by what defaults of swept
    devices usually lost, but not faster than measured kernels of such sizes; where sweeps timed
    such kernels on the device itself, the ranking has it.

    Attributes:
        estimate_s, p05_s, p95_s: of the usual kernel.
        best_s: of the best configuration; best_log_sd: of the error of its log.
    """

    estimate_s: float
    p05_s: float
    p95_s: float
    best_s: float
    best_log_sd: float

    @staticmethod
    def from_kernel(kernel: KernelTime, every: Sequence[Ranked]) -> Usual:
        """Of a predicted kernel with the rankings of its products."""
        card, device = shipped_ranker().card, every[0].steps.device
        best = sum(product.estimate_s for product in every)
        if is_swept(kernel.op, device):
            usual, low, high = (
                max(x, best) for x in (kernel.estimate_s, kernel.p05_s, kernel.p95_s)
            )
            return Usual(usual, low, high, best, card.log_sd)
        usual, low, high = kernel.estimate_s, kernel.p05_s, kernel.p95_s
        best = min(max(usual * math.exp(-card.usual_gain), kernel.ceiling_s or 0.0), usual)
        sd_of_usual = math.log(high / low) / (2.0 * Z90)
        sd_beside = card.device_log_sd * math.sqrt(1.0 - card.device_shared**2)
        return Usual(usual, low, high, best, math.hypot(sd_of_usual, sd_beside))


@final
@dataclass(frozen=True)
class GroupError:
    """What predicted best times of kernels alike are off by, as the log that they are too slow.

    Attributes:
        log, sd: of what all share; own_sd: of each beside that.
        kernels: it was seen on.
    """

    log: float
    sd: float
    own_sd: float
    kernels: int


def diagnose_measured(kernel_measured: Measured, error: GroupError | None = None) -> Diagnosis:
    """Diagnoses one measured kernel.

    Args:
        error: what kernels like it are off by on this device; see :func:`group_errors`.

    Raises:
        SilicastError: no such kernel, no measurement, one that is faster than its bound, or a
            configuration that the device cannot run.
    """
    every = _ranked(kernel_measured)
    kernel, usual, measured, warnings = _checked(kernel_measured, every)
    is_stated = kernel_measured.configuration is not None
    ran = kernel_measured.configuration or _likeliest(every, measured)
    check_legal(ran, every[0].steps.device, every[0].steps.recipe)
    parts = [_part(item.product, item, ran) for item in every]
    predicted = sum(seconds for seconds, _ in parts)
    causes = summed([causes for _, causes in parts])
    causes["unexplained"] = measured - predicted
    if is_stated:
        belief = _beside(every, predicted, measured, _spread(kernel_measured.values_us))
    else:
        belief = _alone(usual, measured, _spread(kernel_measured.values_us), error)
    limit = _limit(kernel_measured, kernel, measured)
    if limit.state.startswith(CACHED):
        warnings.append(COUNTED)
    most = measured if is_stated else usual.estimate_s
    faster = _faster(every, kernel_measured.configuration, belief, measured, (limit.seconds, most))
    return Diagnosis(
        measured_us=US * measured,
        predicted_us=US * usual.estimate_s,
        bound_us=US * limit.seconds,
        bound_by=limit.by,
        bound_state=limit.state,
        configuration=ran,
        assumed=not is_stated,
        ceiling_us=_ceiling_us(kernel.ceiling_s, usual.estimate_s, faster, limit),
        causes_us={name: US * value for name, value in causes.items()},
        faster=faster,
        warnings=(
            *warnings,
            *kernel.warnings,
            *_doubts(kernel_measured, error),
            *_quicker(usual, measured),
        ),
    )


CACHED = "operands in the cache"
FROM_MEMORY = "operands from memory"
COUNTED = (
    "this time is quicker than memory brings the operands: the bound is that of cached ones, while "
    "causes and configurations count them from memory"
)
SURELY = "only experts that are surely hit"


def _limit(one: Measured, kernel: KernelTime, measured: float) -> Limit:
    """The bound with every operand from memory, as causes count them, unless the measurement beats
    that, or the kernel's table says that they are cached.
    """
    cache = one.op.variant.cache
    is_even = one.op.family != "moe" or distribution_of(one.op.variant) == "balanced"
    few = "" if is_even else f", {SURELY}"
    if cache in ("", "cold"):
        cold = replace(one.op, variant=replace(one.op.variant, cache="cold"))
        (fetched,) = times([cold], one.device)
        if cache or fetched.bound_s <= measured:
            return Limit(fetched.bound_s, fetched.bound_by, FROM_MEMORY + few)
    return Limit(kernel.bound_s, kernel.bound_by, CACHED + few)


def _ceiling_us(
    ceiling_s: float | None, usual_s: float, faster: Faster | None, limit: Limit
) -> float | None:
    """What quick kernels reach: a kernel that is expected to be quicker is one of them."""
    if ceiling_s is None:
        return None
    least = min(ceiling_s, usual_s)
    if faster is not None:
        least = min(least, faster.estimate_us / US)
    return US * max(least, limit.seconds)


def group_errors(kernels: Sequence[Measured]) -> list[GroupError | None]:
    """What predicted best times of each kernel are off by, as far as the others give it away.

    None where the device was swept, the configuration is known (which says more), the kernel cannot
    be diagnosed, or fewer than :data:`GROUP` kernels are alike: on one device, in one format, their
    products in one regime.
    """
    positions: dict[tuple[object, ...], list[int]] = {}
    logs: dict[int, float] = {}
    card = shipped_ranker().card
    for index, kernel in enumerate(kernels):
        if kernel.configuration is not None or is_swept(kernel.op, kernel.device):
            continue
        try:
            every = _ranked(kernel)
            _, usual, measured, _ = _checked(kernel, every)
        except SilicastError:  # named where it is diagnosed
            continue
        logs[index] = math.log(measured / usual.best_s)
        group = kernel.device, kernel.op.variant.dtype, every[0].regime
        positions.setdefault(group, []).append(index)
    errors: list[GroupError | None] = [None] * len(kernels)
    for members in positions.values():
        if len(members) < GROUP:
            continue
        group_logs = [logs[index] for index in members]
        log, sd = shared_error(group_logs, card.device_log_sd, card.group_sd, card.usual_gain)
        for index in members:
            errors[index] = GroupError(log, sd, card.group_sd, len(members))
    return errors


def _checked(one: Measured, every: Sequence[Ranked]) -> tuple[KernelTime, Usual, float, list[str]]:
    """The kernel with its bound and ceiling, its usual time, the measured time in seconds, and what
    is odd about it.
    """
    (kernel,) = times([one.op], one.device, Evidence(ceilings=True))
    usual = Usual.from_kernel(kernel, every)
    measured, warnings = _measured(one.values_us, kernel, usual, one.op.variant.cache)
    return kernel, usual, measured, warnings


def _ranked(one: Measured) -> list[Ranked]:
    board, _ = with_format(one.device.in_state("boost"), one.op.variant.dtype)
    recipe = recipe_for(one.op.variant.dtype)
    return [ranked(product, board, recipe) for product in _products(one.op, one.device)]


def _products(op: Op, device: Device) -> tuple[Product, ...]:
    product = PRODUCTS.get(op.family)
    if product is None or device.execution_model != "simt":
        raise unmodelled(
            f"{op.family} on {device.execution_model} devices cannot be diagnosed",
            "kernel.op",
            f"families with configurations: {', '.join(PRODUCTS)}, on GPUs",
        )
    flags = dict(op.variant.flags)
    if op.family == "moe" and not (flags.get("w13") or flags.get("w2")):
        raise SilicastError(
            "a whole layer is several kernels",
            field="kernel.part",
            hint='diagnose part = "w13" (before the activation) or "w2" (after it)',
        )
    sizes = {name: size for name, size in op.dims if isinstance(size, int)}
    return product(sizes, op.variant)


def _measured(
    values: Sequence[float], kernel: KernelTime, usual: Usual, cache: str
) -> tuple[float, list[str]]:
    """Median in seconds, and what is odd about the repeats.

    Args:
        cache: state that the kernel's table says; "" = operands may be cached.
    """
    if not values or not all(math.isfinite(x) and x > 0.0 for x in values):
        raise SilicastError(
            "expected microseconds above zero", field="measured_us", hint="for example 412.5"
        )
    middle = median(values)
    if middle / US < kernel.bound_s:
        raise SilicastError(
            f"{middle:g} us is faster than its bound of {US * kernel.bound_s:.4g} us "
            f"({kernel.bound_by}, {FROM_MEMORY if cache == 'cold' else CACHED})",
            field="measured_us",
            hint=_other_unit(middle, usual, kernel.bound_s)
            or "is it the time of this kernel on this device?",
        )
    return middle / US, list(_odd(values, middle))


def _other_unit(middle: float, usual: Usual, bound_s: float = 0.0) -> str:
    """The unit that makes a time a usual one, as a question; "" where there is none."""
    for unit, factor in (("nanoseconds", 1e-3), ("milliseconds", 1e3), ("seconds", 1e6)):
        if max(bound_s, usual.p05_s / 2.0) <= factor * middle / US <= 2.0 * usual.p95_s:
            return f"are these {unit}? microseconds are expected"
    return ""


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
    indices: list[int] = every[0].order[:LIKELY].tolist()
    seconds = {
        position: sum(float(item.time_s[position]) for item in every) for position in indices
    }
    nearest: int = min(indices, key=lambda index: abs(math.log(seconds[index] / measured)))
    return every[0].grid[nearest]


LIKELY = 40
"""Configurations that a tuned table may have held."""


def _part(
    product: Product, result: Ranked, configuration: Configuration
) -> tuple[float, dict[str, float]]:
    """Predicted seconds of a product and their causes."""
    steps = configured_steps(configuration, result)
    analytic = tile_times(product, steps, tile_constants())
    seconds = learned_s(product, steps, result)
    return seconds, product_causes(analytic, 0, seconds)


def _beside(
    every: Sequence[Ranked], predicted: float, measured: float, repeats_sd: float
) -> GainBelief:
    """The gain where what ran is known: what the model was off for that, it is off in part for all
    others.
    """
    ranker, device = shipped_ranker(), every[0].steps.device
    shared = ranker.shared(device)
    seconds = sum(item.estimate_s for item in every) * (measured / predicted) ** shared
    sd = math.sqrt(ranker.log_sd(device) ** 2 * (1.0 - shared * shared) + repeats_sd**2)
    return gain_belief(math.log(measured / seconds), sd, ranker.card.usual_gain)


def _alone(
    usual: Usual, measured: float, repeats_sd: float, error: GroupError | None
) -> GainBelief:
    """The gain where what ran is not known."""
    log, sd = math.log(measured / usual.best_s), usual.best_log_sd
    if error is not None:
        log, sd = log + error.log, math.hypot(error.own_sd, error.sd)
    return gain_belief(log, math.hypot(sd, repeats_sd), shipped_ranker().card.usual_gain)


def _faster(
    every: Sequence[Ranked],
    ran: Configuration | None,
    belief: GainBelief,
    measured: float,
    limits_s: tuple[float, float],
) -> Faster | None:
    """The best configuration and its gain over the measured time.

    Args:
        ran: None = not known: then a slow time says that it was not the best one.
        limits_s: the bound, and what the best configuration takes at most.
    """
    best = every[0].grid[int(every[0].order[0])]
    bound_s, most_s = limits_s
    middle = max(min(measured * math.exp(-belief.middle), most_s), bound_s)
    if best == ran or measured < middle * math.exp(NONE):  # as likely as not to be none
        return None
    least, most = belief.ends
    low = min(max(measured * math.exp(-most), bound_s), middle)
    high = max(measured * math.exp(-least), middle)

    def gain(time: float) -> float:
        return 100.0 * max(1.0 - time / measured, 0.0)

    return Faster(
        best,
        US * middle,
        US * low,
        US * high,
        gain(middle),
        gain(high),
        gain(low),
        belief.chance(-math.log1p(-WORTH_PCT / 100.0)),
    )


def _doubts(one: Measured, error: GroupError | None) -> Iterator[str]:
    card, device = shipped_ranker().card, one.device
    if is_swept(one.op, device):
        return
    yield (
        f"{one.op.family} in {one.op.variant.dtype} was not swept on {device.name}: configurations "
        f"are ranked by physics and by sweeps of experts in 16 bits on {', '.join(card.devices)}, "
        "against the usual time that `silicast kernel` predicts"
    )
    if error is None:
        return
    size = 100.0 * abs(math.expm1(-error.log))
    alike = f"{error.kernels} kernels alike on {device.name}"
    if error.log < 0.0:
        yield (
            f"{alike} are all slower than their predicted best: as far as is likely ({size:.0f} %) "
            "that is taken for an error of the predictions, and intervals hold both that and slow "
            "kernels alone; name files of all that ran"
        )
    else:
        yield (
            f"{alike} tell that best times are {size:.0f} % below what is predicted, which is "
            "taken out"
        )


def _quicker(usual: Usual, measured: float) -> Iterator[str]:
    """Where the usual choice was expected to be far quicker than what ran."""
    if usual.p95_s < measured:
        yield (
            f"{US * usual.estimate_s:.4g} us are expected of the usual kernel, at most "
            f"{US * usual.p95_s:.4g}: "
            f"{_other_unit(US * measured, usual) or 'did another kernel, format or library run?'}"
        )


def diagnosis_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """As plain tables, for JSON."""
    data: dict[str, Any] = {
        "measured_us": diagnosis.measured_us,
        "predicted_us": diagnosis.predicted_us,
        "bound_us": diagnosis.bound_us,
        "bound_by": diagnosis.bound_by,
        "bound_state": diagnosis.bound_state,
        "ceiling_us": diagnosis.ceiling_us,
        "achieved": diagnosis.achieved,
        "configuration": {**dict(diagnosis.configuration.pairs), "assumed": diagnosis.assumed},
        "causes_us": dict(diagnosis.causes_us),
        "faster": None,
        "warnings": list(diagnosis.warnings),
    }
    best = diagnosis.faster
    if best is not None:
        data["faster"] = {
            "configuration": dict(best.configuration.pairs),
            "latency_us": {"estimate": best.estimate_us, "p05": best.p05_us, "p95": best.p95_us},
            "gain_pct": {
                "estimate": best.gain_pct,
                "p05": best.gain_p05_pct,
                "p95": best.gain_p95_pct,
            },
            "chance_above_5_pct": best.chance,
        }
    return data


def saved_us(diagnosis: Diagnosis) -> float:
    """What the faster configuration saves of one run; 0 where there is none."""
    return 0.0 if diagnosis.faster is None else diagnosis.measured_us - diagnosis.faster.estimate_us
