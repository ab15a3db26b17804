"""How certain the statistics of a simulation are.

Two things make a statistic uncertain, and they are kept apart. *Model error*: true step times are
off from predicted ones, all steps of a kind together. *Seeds*: other requests of the same traffic
would have given another value.

Model error is a joint normal error of the log pace of decode steps, of steps with prompts and of
the host, by their error factors. Where clients wait for answers, latencies are sums of steps that
all stretch, and errors of sums are known. Where requests come by themselves, queues grow faster
than steps: the run is repeated, with the same requests, at the two ends of the 90 % interval of
the pace of all steps together, each kind as slow as it then is in the mean. What a statistic errs
by apart from that (a first token hangs on prompts more than all steps do) is added as if linear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.composition.paced import Pace, PacedPrices
from silicast.core.numerics import F64, I64
from silicast.core.prediction import Z90, ErrorFactors, Quantity
from silicast.serving.records import Records
from silicast.serving.simulation import ReplicaSpec
from silicast.serving.step_mix import KINDS, Kind, Spent, columns

Metrics = Mapping[str, float]
LATENCIES = ("ttft", "tpot", "itl", "e2e")
HOST = "host"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
NEAR = 0.02
"""Requests within so many ranks, of all, of a quantile are looked at for what it consists of."""
BLOCKS = 20
"""Blocks of consecutive requests from which the spread by seed is estimated."""


def paced(spec: ReplicaSpec, pace: Pace) -> ReplicaSpec:
    """A replica at another pace."""
    return replace(
        spec,
        prices=PacedPrices(spec.prices, pace),
        front_ns=round(spec.front_ns * pace.host),
        front_token_ns=round(spec.front_token_ns * pace.host),
        back_ns=round(spec.back_ns * pace.host),
    )


@final
@dataclass(frozen=True)
class PaceError:
    """Error of the pace of each kind of step, and of the host.

    Attributes:
        kinds: error of its steps' time, of the kinds that occurred.
        host: of the engine's front and back.
        weights: share of all steps' time by kind.
    """

    kinds: Mapping[Kind, ErrorFactors]
    host: ErrorFactors
    weights: Mapping[Kind, float]

    @property
    def total(self) -> ErrorFactors:
        """Error of the time of all steps."""
        return self.of({**self.weights})

    def of(self, shares: Mapping[Kind, float], host: float = 0.0) -> ErrorFactors:
        """Error of a time that consists of so much of each kind and of the host; the rest, up to
        1, is certain.
        """
        terms = [(share, self.kinds[kind]) for kind, share in shares.items() if kind in self.kinds]
        rest = max(1.0 - math.fsum(share for share, _ in terms) - host, 0.0)
        return ErrorFactors.of_sum([*terms, (host, self.host), (rest, ErrorFactors())])

    def along(self, kind: Kind | None) -> float:
        """Log pace of a kind (None = the host) where all steps together are one sd slow."""
        total, sd = self.total.loadings, self.total.log_sd
        if sd <= 0.0:
            return 0.0
        own = self.host if kind is None else self.kinds[kind]
        shared = math.fsum(load * total.get(name, 0.0) for name, load in own.loadings.items())
        if kind is not None:
            shared += self.weights[kind] * own.independent**2
        return shared / sd

    def pace(self, deviations: float) -> Pace:
        """Paces where all steps together are so many sd slow.

        >>> one = ErrorFactors({"device": 0.1})
        >>> PaceError({"decode": one}, ErrorFactors(), {"decode": 1.0}).pace(1.0).decode
        1.1051709180756477
        """
        found: dict[str, float] = {
            kind: math.exp(deviations * self.along(kind)) for kind in self.kinds
        }
        return Pace(**found, host=math.exp(deviations * self.along(None)))


@final
class Consists:
    """What each statistic of a simulation consists of.

    Args:
        back_ns: of the engine, see :class:`~silicast.serving.simulation.ReplicaSpec`.
    """

    def __init__(self, records: Records, spec: ReplicaSpec) -> None:
        self._records, self._table = records, records.log.table()
        self._spent = Spent(self._table)
        rows = records.finished
        front = records.arrived_ns[rows] - records.sent_ns[rows]
        many = records.requests.output_tokens[rows] > 1
        sent, first, done = records.sent_ns[rows], records.first_ns[rows], records.done_ns[rows]
        replica = records.replica[rows]
        spans = {
            "ttft": (replica, sent, first, front + spec.back_ns),
            "tpot": (replica[many], first[many], done[many], np.zeros(int(many.sum()))),
            "e2e": (replica, sent, done, front + spec.back_ns),
        }
        self._values = {
            "ttft": (first - sent).astype(np.float64),
            "tpot": (done - first)[many]
            / np.maximum(records.requests.output_tokens[rows] - 1, 1)[many],
            "e2e": (done - sent).astype(np.float64),
        }
        self._parts = {
            name: np.concatenate(
                [self._spent.between(at, start, end), host[None, :], (end - start)[None, :]]
            )
            for name, (at, start, end, host) in spans.items()
        }

    def weights(self) -> dict[Kind, float]:
        """Share of all steps' time by kind, of those that occurred."""
        spent = self._spent.whole()
        return {
            kind: float(each / spent.sum())
            for kind, each in zip(KINDS, spent, strict=True)
            if each > 0.0
        }

    def shares(self, latency: str, statistic: str) -> tuple[dict[Kind, float], float]:
        """Shares of each kind of step and of the host in ``ttft``, ``tpot``, ``itl`` or ``e2e``.

        Args:
            statistic: "mean", "p50", ... of :data:`QUANTILES`.
        """
        if latency == "itl":
            return self._of_gaps(statistic), 0.0
        parts = self._parts[latency]
        if statistic in QUANTILES:
            parts = parts[:, _near(np.argsort(self._values[latency]), QUANTILES[statistic])]
        *spent, host, whole = parts.sum(axis=1).tolist()
        whole = max(whole, 1.0)
        return {kind: each / whole for kind, each in zip(KINDS, spent, strict=True)}, host / whole

    def of_span(self) -> dict[Kind, float]:
        """Shares of each kind of step in the time from the first request to the last token."""
        records = self._records
        span = records.end_ns - int(records.sent_ns[records.finished].min())
        spent = self._spent.whole() / max(span, 1)
        return dict(zip(KINDS, spent.tolist(), strict=True))

    def _of_gaps(self, statistic: str) -> dict[Kind, float]:
        """A gap is a step's period; sequences in decode have one each."""
        start, end, steps, decoding, prompts = columns(
            self._table, "start_ns", "end_ns", "steps", "decoding", "prompts"
        )
        values, tokens = (end - start) / steps, steps * decoding
        rows = np.argsort(values, kind="stable")
        if statistic in QUANTILES:
            running = np.cumsum(tokens[rows])
            low, high = _window(QUANTILES[statistic], int(running[-1]))
            rows = rows[np.searchsorted(running, low, "right") : np.searchsorted(running, high) + 1]
        time, filled = values[rows] * tokens[rows], prompts[rows] > 0
        prefill = float(time[filled].sum() / max(time.sum(), 1.0))
        return {"decode": 1.0 - prefill, "prefill": prefill}


def _window(quantile: float, count: int) -> tuple[int, int]:
    """Ranks around a quantile, the last one excluded."""
    middle, half = quantile * (count - 1), max(NEAR * count, 0.5)
    return max(math.floor(middle - half), 0), min(math.ceil(middle + half) + 1, count)


def _near(order: I64, quantile: float) -> I64:
    low, high = _window(quantile, len(order))
    return order[low:high]


def intervals(
    records: Records,
    consists: Consists,
    error: PaceError,
    metrics_of: Callable[[Records], Metrics],
    again: Callable[[Pace], Records],
    bound: Mapping[str, float],
) -> dict[str, Quantity]:
    """Every metric with its 90 % interval of model error.

    Args:
        metrics_of: statistics by name; ``ttft_p99_ms`` and its like are latencies.
        again: the same requests at another pace.
        bound: metric -> its physical lower limit.
    """
    base = metrics_of(records)
    clients_wait = records.requests.concurrency > 0 and not records.requests.arrival_ns.any()
    if clients_wait:
        spread = math.exp(Z90 * error.total.log_sd)
        ends = [metrics_of(records.stretched(factor)) for factor in (spread, 1.0 / spread)]
    else:
        ends = [metrics_of(again(error.pace(deviations))) for deviations in (Z90, -Z90)]
    found: dict[str, Quantity] = {}
    for name, value in base.items():
        values = [value, *(each.get(name, value) for each in ends)]
        least = bound.get(name, 0.0)
        latency, statistic = _parsed(name)
        if latency:
            shares, host = consists.shares(latency, statistic)
            own = error.of(shares, host)
            if clients_wait:
                found[name] = Quantity.around(value, own.log_sd, bound=least)
                continue
            known = math.fsum(share * error.along(kind) for kind, share in shares.items() if share)
            known += host * error.along(None)
            rest = Z90 * math.sqrt(max(own.variance - known * known, 0.0))
            found[name] = _around(values, rest, least)
        elif clients_wait and name.endswith("_per_s"):
            spread = math.exp(Z90 * error.of(consists.of_span()).log_sd)
            found[name] = Quantity(
                value, min(value / spread, *values), max(value * spread, *values)
            )
        else:
            found[name] = Quantity(value, min(values), max(values))
    return _ordered(found)


def _parsed(name: str) -> tuple[str, str]:
    """("ttft", "p99") of ``ttft_p99_ms``; ("", "") of what is no latency."""
    latency, _, rest = name.partition("_")
    statistic, _, unit = rest.partition("_")
    return (latency, statistic) if latency in LATENCIES and unit == "ms" else ("", "")


def _around(values: list[float], rest: float, least: float) -> Quantity:
    """An interval from the values at the two ends, and what is left in logs."""
    value, low, high = max(values[0], least), min(values), max(values)
    if value <= 0.0 or low <= 0.0:
        return Quantity(value, max(low, least), max(high, value))
    below, above = (math.hypot(math.log(each / value), rest) for each in (min(low, value), high))
    return Quantity(value, max(value * math.exp(-below), least), value * math.exp(above))


def _ordered(found: dict[str, Quantity]) -> dict[str, Quantity]:
    """A higher quantile of a latency lies nowhere below a lower one."""
    for latency in LATENCIES:
        low, high = 0.0, 0.0
        for statistic in QUANTILES:
            name = f"{latency}_{statistic}_ms"
            if name in found:
                one = found[name]
                low, high = max(low, one.p05), max(high, one.p95)
                found[name] = Quantity(one.estimate, min(low, one.estimate), high)
    return found


def seed_spread(records: Records) -> dict[str, float]:
    """Log sd of each statistic over seeds: another draw of the same traffic.

    Blocks of consecutive requests, left out one at a time (a jackknife, which keeps what neighbours
    have in common). ITL is left out: its gaps are not kept by request.
    """
    rows = records.finished
    rows = rows[np.argsort(records.sent_ns[rows], kind="stable")]
    blocks = min(BLOCKS, len(rows) // 2)
    if blocks < 2:
        return {}
    tokens = records.requests.output_tokens[rows]
    first = records.first_ns[rows] - records.sent_ns[rows]
    whole = records.done_ns[rows] - records.sent_ns[rows]
    later = (whole - first) / np.maximum(tokens - 1, 1)
    of = np.arange(len(rows)) * blocks // len(rows)
    found: dict[str, float] = {}
    for name, values, kept in (
        ("ttft", first, tokens > 0), ("tpot", later, tokens > 1), ("e2e", whole, tokens > 0),
    ):  # fmt: skip
        if not kept.any():
            continue
        left = [values[kept & (of != block)] for block in range(blocks)]
        if all(len(each) for each in left):
            found[f"{name}_mean_ms"] = _jackknife(np.array([each.mean() for each in left]))
            at = np.array([np.quantile(each, list(QUANTILES.values())) for each in left])
            for statistic, column in zip(QUANTILES, at.T, strict=True):
                found[f"{name}_{statistic}_ms"] = _jackknife(column)
    return found


def _jackknife(left_out: F64) -> float:
    """Log sd from statistics without a block each."""
    mean, count = float(left_out.mean()), len(left_out)
    squares = float(((left_out - mean) ** 2).sum())
    return math.sqrt(squares * (count - 1) / count) / mean if mean > 0.0 else 0.0
