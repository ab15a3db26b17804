"""Intervals of serving statistics against joint draws of the errors of steps.

    python benchmarks/serving_uncertainty.py [draws] [requests] [seeds] [WORD] [WHERE ...]

Each draw takes a normal number for every error factor, moves each step by its own loadings on them
and runs the same requests. Step prices are a surface of least squares through the real ones, since
what is tested is how errors propagate, not what steps take. Printed are 5th and 95th percentiles of
the draws over the estimate, and those of the interval. WORD: only cases with it in their names.
WHERE: deployments as MODEL:DEVICE:ENGINE:TP, by default Llama-3.1-8B:H100:vllm:1; of others the
rates of arrivals are as many times those of it as a mixed step is quicker.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.step_prices import RunPrice, StepPrice, StepPrices
from silicast.composition.step.step import step_model
from silicast.core.numerics import I64
from silicast.core.prediction import ErrorFactors
from silicast.hardware.catalog import find_device
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.serving.simulation.deploy import replica_spec
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.simulation.fleet import Fleet
from silicast.serving.statistics.metrics import rates, statistics_ms
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.uncertainty import seed_spread
from silicast.serving.traffic.requests import Requests
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

SHOWN = (
    "ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p99_ms", "itl_p99_ms",
    "e2e_p99_ms", "requests_per_s",
)  # fmt: skip
NONE: I64 = np.zeros(0, dtype=np.int64)
FIRST_WHERE = "Llama-3.1-8B:H100:vllm:1"


class Fitted:
    """Prices from a fit through real ones, moved by a draw of errors.

    Args:
        draw: factor -> its normal number; of a kind's own error under the kind's name.
    """

    def __init__(self, prices: StepPrices) -> None:
        self.real, self.graph = prices, prices.graph
        self.asynchronous, self.gap_s = prices.asynchronous, prices.gap_s
        self.draw: dict[str, float] = {}
        self.rng = np.random.default_rng(0)
        rng = np.random.default_rng(1)
        rows, times = [], []
        for _ in range(120):
            count, new = int(2 ** rng.uniform(0, 8)), int(2 ** rng.uniform(3, 12.5))
            cached = rng.integers(100, 4000, count)
            for prefill, decode in (([], cached), ([(new, new)], cached), ([(new, new)], NONE)):
                rows.append(self._features(prefill, decode))
                times.append(prices.price(prefill, decode).pass_s)
        scale = 1.0 / np.array(times)
        self.weights = np.linalg.lstsq(np.array(rows) * scale[:, None], np.ones(len(rows)))[0]
        self.work_s = prices.price((), np.array([1000])).work_s
        self.errors: dict[tuple[int, ...], ErrorFactors] = {}

    @staticmethod
    def _features(prefill: Sequence[tuple[int, int]], decode: Lengths) -> list[float]:
        new = sum(pair[0] for pair in prefill)
        pairs = sum(a * b for a, b in prefill) * 1e-6
        return [1.0, len(decode), float(decode.sum()), new, pairs, float(new > 0), max(256.0, new)]

    def factor(self, prefill: Sequence[tuple[int, int]], decode: Lengths) -> float:
        """What a draw does to a step."""
        if not self.draw:
            return 1.0
        new, seen = (sum(pair[i] for pair in prefill) for i in (0, 1))
        key = tuple(n.bit_length() for n in (new, seen, len(decode), int(decode.sum())))
        if key not in self.errors:
            self.errors[key] = self.real.error(prefill, decode)
        error, kind = self.errors[key], "prefill" if prefill else "decode"
        for name in (*error.loadings, kind):
            if name not in self.draw:
                self.draw[name] = float(self.rng.normal())
        shared = sum(load * self.draw[name] for name, load in error.loadings.items())
        return math.exp(shared + error.independent * self.draw[kind])

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        """See StepPrices."""
        del elsewhere
        by = self.factor(prefill, decode_kv)
        seconds = max(float(np.dot(self.weights, self._features(prefill, decode_kv))), 1e-4)
        return StepPrice((seconds * by,), 0.0, self.work_s * by, 1.0)

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        """See StepPrices."""
        first, last = (self.price((), decode_kv + each, elsewhere) for each in (0, steps - 1))
        times = np.linspace(first.pass_s, last.pass_s, steps)
        return RunPrice([times.tolist()], [0.0] * steps, first.work_s, [1.0] * steps)


def metrics_of(records: Records) -> dict[str, float]:
    """All statistics."""
    return {**statistics_ms(records), **rates(records)}


def traffic(seed: int, count: int, rate: float = 0.0, clients: int = 0, low: int = 0) -> Requests:
    """Requests of about 1000 tokens in and 200 out."""
    rng = np.random.default_rng(seed)
    lengths = [rng.integers(low and most // low, most + 1, count) if low else np.full(count, most)
               for most in (1000, 200)]  # fmt: skip
    at = np.zeros(count, dtype=np.int64)
    if rate:
        at = np.cumsum(rng.exponential(1e9 / rate, count)).astype(np.int64)
    return Requests.from_arrays(at, lengths[0], lengths[1], clients)


def deployed(where: str) -> Deployment:
    """The deployment of MODEL:DEVICE:ENGINE:TP."""
    model, device, engine, tp = where.split(":")
    return Deployment.from_model(
        find_model(model), find_device(device), find_engine(engine), Plan(tp=int(tp))
    )


def mixed_s(prices: StepPrices) -> float:
    """A step of one prompt and 32 sequences in decode."""
    return prices.price([(1000, 1000)], np.full(32, 1100, dtype=np.int64)).pass_s


def main(draws: int, count: int, seed_count: int, word: str, where: str = FIRST_WHERE) -> None:
    """Prints a table."""
    deployment = deployed(where)
    real = StepPrices(step_model(deployment))
    prices, scale = Fitted(real), 1.0
    if where != FIRST_WHERE:
        scale = mixed_s(StepPrices(step_model(deployed(FIRST_WHERE)))) / mixed_s(real)
    spec = replace(replica_spec(deployment), prices=prices)
    cases: dict[str, dict[str, Any]] = {
        "closed, 32 clients": {"clients": 32},
        "closed, 256 clients, mixed lengths": {"clients": 256, "low": 4},
        **{f"poisson, {rate:g}/s": {"rate": rate} for rate in (4.0, 12.0, 16.0, 20.0)},
        "poisson, 26/s, mixed lengths": {"rate": 26.0, "low": 4},
    }
    for name, fields in cases.items():
        if word not in name:
            continue
        case = {**fields, "rate": scale * fields.get("rate", 0.0)}
        requests = traffic(0, count, **case)

        def simulate(specs: Sequence[ReplicaSpec], requests: Requests = requests) -> Records:
            return Simulation(requests, specs).run()

        def begin(
            specs: Sequence[ReplicaSpec], first: int, requests: Requests = requests
        ) -> Records:
            return Simulation(requests.first(first), specs).run()

        prices.draw = {}
        simulated = Simulated(Fleet.from_deployment(deployment, spec), simulate, begin=begin)
        intervals = simulated.metrics(metrics_of)
        drawn: dict[str, list[float]] = {each: [] for each in SHOWN}
        host = deployment.engine.host.log_sd
        for number in range(draws):
            prices.rng = np.random.default_rng(number + 100)
            prices.draw = {"host": float(prices.rng.normal())}
            slow = math.exp(host * prices.draw["host"])
            slow_spec = replace(
                spec, front_ns=round(spec.front_ns * slow), back_ns=round(spec.back_ns * slow),
                front_token_ns=round(spec.front_token_ns * slow),
            )  # fmt: skip
            for each, value in metrics_of(simulate([slow_spec])).items():
                if each in drawn:
                    drawn[each].append(value)
        prices.draw = {}
        seeds = [
            metrics_of(simulate([spec], traffic(seed, count, **case)))
            for seed in range(1, seed_count + 1)
        ]
        spread = seed_spread(simulated.records)
        rate, rows = case["rate"], len(simulated.records.log)
        print(f"{where} {name} ({rate:.3g}/s here): {rows} rows of the log", flush=True)
        for each in SHOWN:
            base = intervals[each].estimate
            low, high = (float(np.quantile(drawn[each], q)) / base for q in (0.05, 0.95))
            ours = intervals[each].p05 / base, intervals[each].p95 / base
            inside = np.mean([intervals[each].p05 <= v <= intervals[each].p95 for v in drawn[each]])
            seen = float(np.std(np.log([slow_spec[each] for slow_spec in seeds]), ddof=1))
            blocks = spread.get(each, 0.0)
            print(
                f"  {each:15s} draws {low:.3f} {high:.3f}  interval {ours[0]:.3f} {ours[1]:.3f}"
                f"  inside {inside:.2f}  by {seed_count} seeds {seen:.4f} blocks {blocks:.4f}"
            )


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:4]]
    draws, requests, seeds = numbers + [200, 400, 15][len(numbers) :]
    for deployment in sys.argv[5:] or [FIRST_WHERE]:
        main(draws, requests, seeds, "".join(sys.argv[4:5]), deployment)
