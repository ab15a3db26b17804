"""How certain the statistics of a simulation are.

Two things make a statistic uncertain, and they are kept apart. *Model error*: true step times are
off from predicted ones, all steps of a kind together. *Seeds*: other requests of the same traffic
would have given another value.

Model error is a joint normal error of the log pace of decode steps and of steps with prompts, by
their error factors. Where clients wait for answers and nothing has a time of its own, everything
stretches with the steps, and errors of sums are known. Where requests come by themselves, queues
grow faster than steps: the run, or its beginning where that tells as much
(:mod:`~silicast.serving.statistics.other_paces`), is repeated, with the same requests, at the two
ends of the 90 % interval of the pace of all steps together, each kind as slow as it then is in the
mean, with the host's constants as slow or quick. What a statistic errs by apart from that (a first
token hangs on prompts more than all steps do) is added as in a sum, and no interval is narrower
than if nothing queued. The host errs apart from steps: what it moves a latency by counts in
quadrature. So does what first tokens and later ones of measured runs are off by beyond all that:
launch settings and clients that nobody states (``lab/fit_serving.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from silicast.composition.prices.stepper import Pace, PacedPrices
from silicast.core.metrics import LATENCIES, METRICS
from silicast.core.numerics import I64
from silicast.core.prediction import Z90, ErrorFactors, Quantity
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.statistics.metrics import QUANTILES
from silicast.serving.statistics.other_paces import Metrics, at_paces
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.step_mix import KINDS, Kind, Spent, columns

NEAR = 0.02
"""Requests within so many ranks, of all, of a quantile are looked at for what it consists of."""
BLOCKS = 8
"""Blocks of consecutive requests from which the spread by seed is estimated."""
RESAMPLES = 100


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
        weights: share of all steps' time by kind.
        host_log_sd: of the engine's front and back.
        beyond: log sd of what ``ttft`` and ``tpot`` are off by beyond their steps and the host.
    """

    kinds: Mapping[Kind, ErrorFactors]
    weights: Mapping[Kind, float]
    host_log_sd: float = 0.0
    beyond: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> ErrorFactors:
        """Error of the time of all steps."""
        return self.factors(self.weights)

    def factors(self, shares: Mapping[Kind, float]) -> ErrorFactors:
        """Error of a time that consists of so much of each kind; the rest, up to 1, is certain."""
        terms = [(share, self.kinds[kind]) for kind, share in shares.items() if kind in self.kinds]
        remaining = max(1.0 - math.fsum(share for share, _ in terms), 0.0)
        return ErrorFactors.of_sum([*terms, (remaining, ErrorFactors())])

    def along(self, kind: Kind) -> float:
        """Log pace of a kind where all steps together are one sd slow."""
        total, kind_factors = self.total, self.kinds[kind]
        shared = math.fsum(
            x * total.loadings.get(name, 0.0) for name, x in kind_factors.loadings.items()
        )
        both = shared + self.weights[kind] * kind_factors.independent**2
        return both / total.log_sd if total.log_sd > 0.0 else 0.0

    def pace(self, deviations: float) -> Pace:
        """Paces where all steps together, and the host, are so many sd slow.

        >>> one = ErrorFactors({"device": 0.1})
        >>> PaceError({"decode": one}, {"decode": 1.0}).pace(1.0).decode
        1.1051709180756477
        """
        table = {kind: math.exp(deviations * self.along(kind)) for kind in self.kinds}
        return Pace(**table, host=math.exp(deviations * self.host_log_sd))

    def beyond_of(self, latency: str, first: float) -> float:
        """Log sd of a latency beyond its steps.

        Args:
            first: share of the first token in the end-to-end latency.
        """
        ttft, tpot = (self.beyond.get(name, 0.0) for name in ("ttft", "tpot"))
        if latency == "e2e":
            return math.hypot(first * ttft, (1.0 - first) * tpot)
        return ttft if latency == "ttft" else tpot

    def of_host(self, share: float) -> tuple[float, float]:
        """How far, in logs, a time of which so much is the host's moves down and up."""
        spread = math.exp(Z90 * self.host_log_sd)
        return -math.log1p(share * (1.0 / spread - 1.0)), math.log1p(share * (spread - 1.0))


@final
class Consists:
    """What each statistic of a simulation consists of.

    Args:
        front_ns, front_token_ns, back_ns: of the engine, see
            :class:`~silicast.serving.simulation.event_loop.ReplicaSpec`.
    """

    def __init__(self, records: Records, spec: ReplicaSpec) -> None:
        self._table = records.log.table()
        self._spent = Spent(self._table)
        rows = records.finished
        front = spec.front_of(records.requests.input_tokens[rows])
        many = records.requests.output_tokens[rows] > 1
        sent, first, done = records.sent_ns[rows], records.first_ns[rows], records.done_ns[rows]
        come, replica = records.arrived_ns[rows], records.replica[rows]
        spans = {
            "ttft": (replica, come, first, front + spec.back_ns),
            "tpot": (replica[many], first[many], done[many], np.zeros(int(many.sum()))),
            "e2e": (replica, come, done, front + spec.back_ns),
        }
        self._values = {
            "ttft": (first - sent).astype(np.float64),
            "tpot": (done - first)[many] / (records.requests.output_tokens[rows] - 1)[many],
            "e2e": (done - sent).astype(np.float64),
        }
        whole = {"ttft": first - sent, "tpot": (done - first)[many], "e2e": done - sent}
        self._parts = {
            name: np.concatenate(
                [self._spent.between(at, start, end), host[None, :], whole[name][None, :]]
            )
            for name, (at, start, end, host) in spans.items()
        }

    def weights(self) -> dict[Kind, float]:
        """Share of all steps' time by kind, of those that occurred."""
        spent = self._spent.whole()
        return {
            kind: float(seconds / spent.sum())
            for kind, seconds in zip(KINDS, spent, strict=True)
            if seconds > 0.0
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
        return {
            kind: seconds / whole for kind, seconds in zip(KINDS, spent, strict=True)
        }, host / whole

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
    begin: Callable[[Pace, int], Records] | None = None,
) -> dict[str, Quantity]:
    """Every metric with its 90 % interval of model error.

    Args:
        metrics_of: statistics by name; ``ttft_p99_ms`` and its like are latencies.
        again: the same requests at another pace.
        bound: metric -> its physical lower limit.
        begin: so many of the first requests at another pace, see :func:`.other_paces.at_paces`.
    """
    base = metrics_of(records)
    first = min(base["ttft_mean_ms"] / base["e2e_mean_ms"], 1.0)
    whole = math.hypot(error.total.log_sd, error.beyond_of("e2e", first))
    ends: Sequence[Metrics]
    if waits_for_answers(records):
        ends = [stretched(base, whole * deviations) for deviations in (Z90, -Z90)]
    else:
        paces = [error.pace(deviations) for deviations in (Z90, -Z90)]
        ends = at_paces(records, base, paces, metrics_of, again, begin)
    table: dict[str, Quantity] = {}
    for name, value in base.items():
        values = [value, *(bounds.get(name, value) for bounds in ends)]
        latency, statistic = METRICS[name].latency, METRICS[name].statistic
        if not latency:
            table[name] = Quantity(value, min(values), max(values))
            continue
        shares, host = consists.shares(latency, statistic)
        spent = math.fsum(shares.values())
        if waits_for_answers(records) and spent > 0.0:  # what a request waits for stretches too
            shares = {kind: share * (1.0 - host) / spent for kind, share in shares.items()}
        factors, moved = error.factors(shares), error.of_host(host)
        systematic = math.fsum(share * error.along(kind) for kind, share in shares.items() if share)
        beyond = error.beyond_of(latency, first)
        remainder = Z90 * math.hypot(
            math.sqrt(max(factors.variance - systematic * systematic, 0.0)), beyond
        )
        alone = Z90 * math.hypot(factors.log_sd, beyond)
        table[name] = _around(values, remainder, alone, moved, bound.get(name, 0.0))
    return _ordered(table)


def waits_for_answers(records: Records) -> bool:
    """Whether all requests are there from the start, or wait for others' answers alone."""
    requests = records.requests
    return not requests.arrival_ns.any() and not requests.pause_ns.any()


def stretched(metrics: Metrics, log_pace: float) -> dict[str, float]:
    """Metrics of a run that takes longer as a whole: rates and shares of what devices could do
    fall; latencies are left alone, each has an error of its own.

    >>> stretched({"requests_per_s": 2.0, "preemptions": 3.0}, math.log(2.0))
    {'requests_per_s': 1.0, 'preemptions': 3.0}
    >>> stretched({"mfu": 0.8}, math.log(0.5))
    {'mfu': 1.0}
    """
    factor = math.exp(log_pace)
    changed = {}
    for name, value in metrics.items():
        metric = METRICS[name]
        power = 0 if metric.latency else metric.per_time
        changed[name] = value / factor if power < 0 else value * factor if power > 0 else value
        if metric.kind == "use":
            changed[name] = min(changed[name], 1.0)
    return changed


def _around(
    values: list[float], remainder: float, alone: float, host: tuple[float, float], least: float
) -> Quantity:
    """An interval around the first of ``values``, which the others, at both ends, are in.

    Args:
        remainder: what is added in quadrature, in logs; ``alone``: the least width if nothing
        queued.
        host: what the host moves below and above, in ``values`` already but not in quadrature.
        least: physical limit.
    """
    value, low, high = max(values[0], least), min(values), max(values)
    if low <= 0.0:
        return Quantity(value, max(low, least), max(high, value))
    steps = (abs(math.log(bound / value)) for bound in (min(low, value), high))
    below, above = (
        math.hypot(max(math.hypot(max(moved - item, 0.0), remainder), alone), item)
        for moved, item in zip(steps, host, strict=True)
    )
    return Quantity(value, max(value * math.exp(-below), least), value * math.exp(above))


def _ordered(table: dict[str, Quantity]) -> dict[str, Quantity]:
    """A higher quantile of a latency lies nowhere below a lower one."""
    for latency in LATENCIES:
        low, high = 0.0, 0.0
        for statistic in QUANTILES:
            name = f"{latency}_{statistic}_ms"
            if name in table:
                quantity = table[name]
                low, high = max(low, quantity.p05), max(high, quantity.p95)
                table[name] = Quantity(quantity.estimate, min(low, quantity.estimate), high)
    return table


def seed_spread(records: Records) -> dict[str, float]:
    """Log sd of each statistic over seeds: another draw of the same traffic.

    A block bootstrap: blocks of consecutive requests, which keep what neighbours have in common,
    are drawn with replacement; the burst with which clients start stays. Near saturation it sees
    about half of what longer waves of load do. ITL is left out: gaps are not kept by request.
    Nothing where nothing is drawn (clients whose requests are all alike) or too little was run.
    """
    rows, requests = records.finished, records.requests
    lengths = (requests.input_tokens, requests.output_tokens)
    alike = all(int(row.min()) == int(row.max()) for row in lengths)
    if len(rows) < 2 * BLOCKS or (requests.concurrency and alike):
        return {}
    rng = np.random.Generator(np.random.PCG64(0))
    times = max(min(RESAMPLES, 4_000_000 // len(rows)), 20)
    draws = [rng.integers(0, BLOCKS, BLOCKS) for _ in range(times)]
    rows = rows[np.argsort(records.sent_ns[rows], kind="stable")]
    tokens = records.requests.output_tokens[rows]
    first = records.first_ns[rows] - records.sent_ns[rows]
    whole = records.done_ns[rows] - records.sent_ns[rows]
    many = tokens > 1
    later = (whole - first)[many] / (tokens[many] - 1)
    table: dict[str, float] = {}
    for name, values in (("ttft", first), ("tpot", later), ("e2e", whole)):
        start = min(records.requests.concurrency, len(values) // 2)
        if len(values) < 2 * BLOCKS:
            continue
        cut = np.array_split(values[start:].astype(np.float64), BLOCKS)
        burst = values[:start].astype(np.float64)
        drawn = [np.concatenate([burst, *(cut[block] for block in draw)]) for draw in draws]
        table[f"{name}_mean_ms"] = _log_sd([float(latencies.mean()) for latencies in drawn])
        at = np.array([np.quantile(latencies, list(QUANTILES.values())) for latencies in drawn])
        for statistic, column in zip(QUANTILES, at.T, strict=True):
            table[f"{name}_{statistic}_ms"] = _log_sd(column.tolist())
    return table | _rates_spread(records, draws, table["e2e_mean_ms"])


def _rates_spread(records: Records, draws: list[I64], e2e: float) -> dict[str, float]:
    """The same of requests and tokens a second: of what arrived in a time, or where clients wait
    for answers, of how long they did.
    """
    names = ("requests_per_s", "output_tokens_per_s", "total_tokens_per_s")
    if records.requests.concurrency:
        return dict.fromkeys(names, e2e)
    rows = np.argsort(records.sent_ns, kind="stable")
    times = np.array_split(records.sent_ns[rows], BLOCKS)
    spans = np.diff(np.array([arrivals[-1] for arrivals in times]), prepend=int(times[0][0]))
    prompts, outputs = records.requests.input_tokens[rows], records.requests.output_tokens[rows]
    rates_spread = {}
    for name, values in zip(names, (np.ones(len(rows)), outputs, prompts + outputs), strict=True):
        sums = np.array([block.sum() for block in np.array_split(values, BLOCKS)])
        rates_spread[name] = _log_sd([float(sums[d].sum() / max(spans[d].sum(), 1)) for d in draws])
    return rates_spread


def _log_sd(values: list[float]) -> float:
    """Sd of the logs; 0 where values are not above 0."""
    return float(np.std(np.log(values), ddof=1)) if min(values) > 0.0 else 0.0
