"""Random serving simulations with step times that cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.step_prices import RunPrice, StepPrice
from silicast.core.numerics import I64
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.event_loop import KvLink, ReplicaSpec, Simulation
from silicast.serving.simulation.replica import Role
from silicast.serving.simulation.routers import ROUTERS
from silicast.serving.simulation.scheduler import Limits, policies, scheduler_named
from silicast.serving.simulation.speculation import Acceptance
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import Requests


@dataclass(frozen=True)
class PlainPrices:
    """Step times as a straight line over tokens and cached tokens, with StepPrices' interface.

    Attributes:
        step_s: of any step; ``token_s``: per new token; ``cached_s``: per cached token read.
        work_s: of the host.
    """

    step_s: float = 5e-3
    token_s: float = 1e-5
    cached_s: float = 1e-8
    work_s: float = 1e-3
    gap_s: float = 5e-5
    asynchronous: bool = True
    stages: int = 1
    graph: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "graph", SimpleNamespace(stages=self.stages, in_flight=self.stages)
        )

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        tokens = sum(new for new, _ in prefill) + len(decode_kv) + max(elsewhere, 0)
        cached = sum(total for _, total in prefill) + int(decode_kv.sum())
        each = self._pass_s(tokens, np.array([cached]))[0] / self.stages
        return StepPrice((float(each),) * self.stages, 0.0, self.work_s, 1e9)

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        cached = int(decode_kv.sum()) + len(decode_kv) * np.arange(steps)
        each = self._pass_s(len(decode_kv) + max(elsewhere, 0), cached)
        return RunPrice([each.tolist()], [0.0] * steps, self.work_s, [1e9] * steps)

    def _pass_s(self, tokens: int, cached: I64) -> Any:
        return self.step_s + self.token_s * tokens + self.cached_s * cached


@dataclass(frozen=True)
class ServingCase:
    """One random simulation."""

    requests: Requests
    prices: PlainPrices
    limits: Limits
    policy: str = "vllm-v1"
    groups: int = 1
    replicas: int = 1
    front_ns: int = 0
    back_ns: int = 0
    decoders: int = 0
    router: str = "round_robin"
    accepted: Acceptance | None = None

    def specs(self) -> list[ReplicaSpec]:
        def spec(role: Role) -> ReplicaSpec:
            return ReplicaSpec(
                self.prices, scheduler_named(self.policy), self.limits, KvLayout.plain(16),
                groups=self.groups, front_ns=self.front_ns, back_ns=self.back_ns, role=role,
                accepted=self.accepted,
            )  # fmt: skip

        specs = [spec("prefill" if self.decoders else "")] * self.replicas
        return specs + [spec("decode")] * self.decoders

    def simulation(self) -> Simulation:
        link = KvLink(1e9, 20_000, 16_384)
        return Simulation(self.requests, self.specs(), ROUTERS[self.router], 1, link)

    def run(self) -> Records:
        return self.simulation().run()


HOLDING: dict[str, dict[str, float | str]] = {
    "trtllm": {"enable_balance": 1, "timeout_iters": 7}, "sglang": {"scheduler_recv_interval": 5},
}  # fmt: skip
"""Options with which policies hold prompts back."""
GENERATE = tuple(name for name in policies() if not scheduler_named(name).one_pass)


def random_case(seed: int, policies: Sequence[str] = GENERATE) -> ServingCase:
    """Traffic, limits and engine of one simulation."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    prompt = rng.integers(1, int(2.0 ** rng.uniform(1, 10)) + 1, count)
    output = rng.integers(1, int(2.0 ** rng.uniform(0, 8)) + 1, count)
    closed = int(rng.integers(1, 20)) if rng.random() < 0.5 else 0
    if rng.random() < 0.4:
        arrival = np.zeros(count, dtype=np.int64)
    else:
        gaps = rng.exponential(10.0 ** rng.uniform(-3, 0), count)
        arrival = np.cumsum(gaps * 1e9).astype(np.int64)
    longest = -(-int((prompt + output).max()) // 16)
    blocks = longest + int(rng.integers(0, 4 * longest + 2))
    stages = int(rng.integers(1, 4)) if rng.random() < 0.2 else 1
    case = ServingCase(
        Requests.from_arrays(arrival, prompt, output, closed),
        PlainPrices(
            work_s=float(rng.choice([0.0, 1e-3, 8e-3])),
            asynchronous=bool(rng.random() < 0.5),
            stages=stages,
        ),
        Limits(
            int(rng.integers(1, 40)),
            int(rng.integers(8, 600)),
            blocks,
            prefix_caching=bool(rng.random() < 0.5),
        ),
        policy=str(rng.choice(list(policies))),
        groups=int(rng.integers(2, 4)) if rng.random() < 0.2 else 1,
        replicas=int(rng.integers(2, 4)) if rng.random() < 0.3 else 1,
        front_ns=int(rng.choice([0, 3_000_000])),
        back_ns=int(rng.choice([0, 1_000_000])),
        decoders=int(rng.integers(1, 3)) if rng.random() < 0.2 else 0,
        router=str(rng.choice(list(ROUTERS))),
    )
    options = HOLDING.get(case.policy, {}) if rng.random() < 0.5 else {}
    return replace(case, limits=replace(case.limits, options=options))
