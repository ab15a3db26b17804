"""One workload on many devices: a static batch, or users who each want a speed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, final

import msgspec

from silicast.composition.memory.memory import static_batch_memory
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import batch_memory
from silicast.core.errors import SilicastError
from silicast.core.prediction import Quantity
from silicast.exploration.carried import (
    MOST_STAGES,
    Carried,
    UserDemand,
    fewest_devices,
    smallest_plan,
)
from silicast.exploration.prices import Price, PriceList
from silicast.hardware.catalog import device_of
from silicast.scenario.answer import Answer, Belief, Reply, refusal
from silicast.scenario.answers.inference.answerer import (
    batch_deployment,
    cached_of,
    cost_per_million,
    lengths_of,
)
from silicast.scenario.answers.serving.answerer import PreparedServing, prepared
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.resolving.deployments import description
from silicast.scenario.run import reply_to
from silicast.scenario.workloads import InferenceWorkload
from silicast.serving.statistics.metrics import statistics_ms

Tree = dict[str, Any]

NOT_FITTING: Final = "does not fit"
PER_DEVICE: Final = ("output_tokens_per_s_per_gpu", "sequences_per_s_per_gpu")
SEARCHED: Final = ("tp", "pp")
"""Degrees of which one that is stated leaves nothing to search."""
MILLI: Final = 1e3
WHOLE_FLEET: Final = 1000
"""Users up to which all replicas are simulated; of more, the fullest one alone."""
CAVEAT: Final = (
    "users are simulated and all begin at once: silicast serve --concurrency has the tails"
)


@final
@dataclass(frozen=True)
class Candidate:
    """One device under one plan.

    Attributes:
        label: what it is called among the others.
        scenario: that was answered, with the plan that was found.
        price: of a device; None = not known.
    """

    label: str
    scenario: Tree
    reply: Reply
    price: Price | None = None

    @property
    def plan(self) -> dict[str, int]:
        """The degrees that are more than one."""
        degrees = self.scenario.get("parallel") or {}
        return {name: int(degree) for name, degree in degrees.items() if degree != 1}

    @property
    def fits(self) -> bool:
        """Whether it was answered and fits in memory."""
        return isinstance(self.reply, Answer) and not self._excess

    @property
    def reason(self) -> str:
        """Why it does not fit, or was not answered; "" = it fits."""
        if isinstance(self.reply, Answer):
            return self._excess
        error = self.reply.error
        where = f"{error.field}: " if error.field not in ("", "device", "parallel") else ""
        device = self.scenario.get("device")
        message = error.message.removeprefix(f"{device}: ")  # a file, which the label names
        return f"{where}{message}{f' ({error.hint})' if error.hint else ''}"

    @property
    def _excess(self) -> str:
        assert isinstance(self.reply, Answer)
        return next((line for line in self.reply.warnings if line.startswith(NOT_FITTING)), "")


def compared(
    scenario: Mapping[str, Any],
    devices: Sequence[str],
    plans: Sequence[Mapping[str, int]] = ({},),
    prices: PriceList | None = None,
    gpus: int | Literal["node", "best"] | None = None,
) -> Iterator[Candidate]:
    """A static batch on each device under each plan; where a plan states neither tp nor pp, the
    smallest that fits is taken.

    Args:
        scenario: of task ``inference``; its device and plan are replaced.
        gpus: so many devices of each, or a node of each, under the plan that is quickest there; or
            the plan of a node at most with the most throughput a device ("best").
    """
    for device in devices:
        for plan in plans:
            tree = {**scenario, "device": device, "parallel": {**plan}}
            if not any(name in plan for name in SEARCHED):
                tree["parallel"] |= _smallest(tree) if gpus is None else _chosen(tree, gpus)
            label = _label(device, plan, tree["parallel"], named=len(plans) > 1)
            yield _priced(Candidate(label, tree, reply_to(tree)), prices)


def carrying(
    scenario: Mapping[str, Any],
    devices: Sequence[str],
    users: int,
    tokens_per_user_s: float,
    plans: Sequence[Mapping[str, int]] = ({},),
    prices: PriceList | None = None,
) -> Iterator[Candidate]:
    """The fewest devices of each kind that give users their speed.

    Args:
        scenario: of task ``inference``, whose lengths are those of every request.
        tokens_per_user_s: that each user sees on average, at least.
    """
    for device in devices:
        for plan in plans:
            tree = {**scenario, "device": device, "parallel": {**plan}}
            searches = not any(name in plan for name in SEARCHED)
            try:
                ready = decode(tree)
                deployment, warnings = _deployment(ready)
                work = ready.workload
                assert isinstance(work, InferenceWorkload)
                demand = UserDemand(
                    users, 1.0 / tokens_per_user_s, max(lengths_of(work)), work.output_len
                )
                result = fewest_devices(deployment, demand, searches=searches)
            except SilicastError as error:
                label = _label(device, plan, {}, named=len(plans) > 1)
                yield _priced(Candidate(label, tree, refusal(error)), prices)
                continue
            chosen = result.deployment.plan
            tree["parallel"] = {**plan, "tp": chosen.tp, "pp": chosen.pp}
            label = _label(device, plan, tree["parallel"], named=len(plans) > 1)
            yield _priced(Candidate(label, tree, _answer(result, demand, tree, warnings)), prices)


def _answer(carried: Carried, demand: UserDemand, tree: Tree, warnings: Sequence[str]) -> Answer:
    """The closed form's plan, with as many replicas as carry the users in a simulation."""
    deployment, devices = carried.deployment, carried.deployment.plan.gpus
    replicas, clients, served = _replicas(carried.replicas, demand, tree)
    simulated = clients
    if replicas > 1 and demand.users <= WHOLE_FLEET:
        simulated = demand.users
        served = _prepared({**tree, "pools": {"all": {"count": replicas}}}, demand, simulated)
    reply = served.answer()
    measured, share, gpus = reply.metrics, demand.users / simulated, replicas * devices
    ends = carried.gpus
    rate = Quantity(*msgspec.structs.astuple(measured["output_tokens_per_s"])).times(share)
    metrics = {
        "gpus": Belief(float(gpus), min(ends.p05, gpus), max(ends.p95, gpus)),
        "ttft_mean_ms": measured["ttft_mean_ms"],
        "tpot_mean_ms": measured["tpot_mean_ms"],
        "output_tokens_per_s": Belief.from_quantity(rate),
        "output_tokens_per_s_per_gpu": Belief.from_quantity(rate.times(1.0 / gpus)),
    }
    memory = static_batch_memory(deployment, [demand.prompt_tokens] * clients, demand.output_tokens)
    metrics["memory_gb"] = Belief.from_quantity(Quantity.exact(memory.total / 1e9))
    for name in ("power_w", "energy_per_output_token_j"):
        if name in measured:
            metrics[name] = measured[name]
    why = {
        "users": {
            "asked": demand.users,
            "a_replica": clients,
            "replicas": replicas,
            "room_of_a_replica": carried.room,
            "tpot_limit_ms": demand.tpot_s * MILLI,
        },
        "deployment": description(
            deployment.machine, deployment.model.name, gpus, deployment.precision.label
        ),
    }
    remarks = list(dict.fromkeys([*carried.loop.decode.warnings, *warnings, *reply.warnings]))
    return msgspec.structs.replace(reply, metrics=metrics, warnings=remarks, why=why)


def _replicas(start: int, demand: UserDemand, tree: Tree) -> tuple[int, int, PreparedServing]:
    """The fewest replicas whose users see their speed in a simulation, the users of the fullest,
    and its simulation, as ``serve`` makes it; looked for from a number that is nearly right.
    """
    tried: dict[int, tuple[int, PreparedServing]] = {}

    def fast_enough(replicas: int) -> bool:
        clients = math.ceil(demand.users / replicas)
        ready = _prepared(tree, demand, clients)
        tried[replicas] = clients, ready
        tpot_ms: float = statistics_ms(ready.served.simulate())["tpot_mean_ms"]
        return tpot_ms <= demand.tpot_s * MILLI

    replicas = start
    if fast_enough(replicas):
        while replicas > 1 and fast_enough(replicas - 1):
            replicas -= 1
    else:
        while math.ceil(demand.users / replicas) > 1 and not fast_enough(replicas := replicas + 1):
            pass
    return replicas, *tried[replicas]


def _prepared(tree: Tree, demand: UserDemand, clients: int) -> PreparedServing:
    """What ``serve`` makes of so many users."""
    work = {
        "arrival": {"kind": "closed", "concurrency": clients},
        "input_len": demand.prompt_tokens,
        "output_len": max(demand.output_tokens, 2),
    }
    return prepared(decode({**tree, "task": "serving", "workload": work}))


def _deployment(scenario: Scenario) -> tuple[Deployment, list[str]]:
    """Of a scenario whose engine serves.

    Raises:
        SilicastError: it does not, or the model generates nothing.
    """
    deployment, framework, warnings = batch_deployment(scenario)
    if framework is not None or not deployment.model.causal or deployment.model.encoder is not None:
        raise SilicastError(
            f"users of {deployment.model.name} under {deployment.engine.name} have no closed form",
            field="--users",
            hint="silicast serve simulates them, compare --batch takes a batch",
        )
    return deployment, warnings


def _smallest(tree: Tree) -> dict[str, int]:
    """The degrees of the smallest plan that fits; {} where none does, or nothing can be asked."""
    try:
        scenario = decode(tree)
        deployment, framework, _ = batch_deployment(scenario)
    except SilicastError:
        return {}
    work = scenario.workload
    assert isinstance(work, InferenceWorkload)
    lengths, cached = lengths_of(work), cached_of(work, deployment.model, framework)

    def fits(each: Deployment) -> bool:
        return not batch_memory(each, lengths, work.output_len, framework, cached).excess

    plan = smallest_plan(deployment, fits)
    return {} if plan is None else {"tp": plan.tp, "pp": plan.pp}


def _chosen(tree: Tree, gpus: int | Literal["node", "best"]) -> dict[str, int]:
    """The degrees of the best plan of so many devices; {} where nothing can be asked.

    Raises:
        SilicastError: no plan has so many devices.
    """
    try:
        deployment = batch_deployment(decode(tree))[0]
    except SilicastError:
        return {}
    node = max(deployment.machine.links.gpus_per_node, 1)
    counts = [node] if gpus == "node" else [gpus] if isinstance(gpus, int) else range(1, node + 1)
    degrees = [
        {"tp": tp, "pp": count // tp}
        for count in counts
        for tp in (1 << power for power in range(node.bit_length()))
        if tp <= node and count % tp == 0 and count // tp <= MOST_STAGES and not count & (count - 1)
    ]
    if not degrees:
        raise SilicastError(
            f"no plan has {counts[0]} devices", field="--gpus", hint=f"{node}, or a power of two"
        )
    trees = [{**tree, "parallel": {**tree["parallel"], **each}} for each in degrees]
    tried = [Candidate("", each, reply_to(each)) for each in trees]
    ranked = sorted(range(len(tried)), key=lambda i: _order(tried[i], each=gpus == "best"))
    return degrees[ranked[0]]


def _order(candidate: Candidate, *, each: bool) -> tuple[int, float]:
    """What fits comes first, the quickest of it or the most throughput a device."""
    if not isinstance(candidate.reply, Answer):
        return 2, 0.0
    metrics = candidate.reply.metrics
    rates = (metrics[name] for name in PER_DEVICE if name in metrics)
    best = -next(rates).estimate if each else metrics["total_ms"].estimate
    return int(not candidate.fits), best


def _label(device: str, stated: Mapping[str, int], plan: Mapping[str, int], *, named: bool) -> str:
    """The device with what was found for it, and what was stated where plans are compared."""
    degrees = {**stated} if named else {}
    degrees |= {name: n for name, n in plan.items() if n != 1 and (named or name not in stated)}
    return " ".join((device, *(f"{name}={degree}" for name, degree in degrees.items())))


def _priced(candidate: Candidate, prices: PriceList | None) -> Candidate:
    """With what it costs, where its price is known."""
    if prices is None:
        return candidate
    try:
        price = prices.price(device_of(candidate.scenario["device"]).name)
    except SilicastError:
        return candidate
    reply = candidate.reply
    if price is None or not isinstance(reply, Answer):
        return replace(candidate, price=price)
    metrics = dict(reply.metrics)
    gpus = metrics.get("gpus")
    count = int(reply.why["deployment"]["devices"])
    if gpus is not None:
        metrics["cost_per_hour"] = Belief(
            *(n * price.per_hour for n in msgspec.structs.astuple(gpus))
        )
    for unit in ("output_tokens", "sequences"):
        if (rate := metrics.get(f"{unit}_per_s")) is not None:
            cost = cost_per_million(rate, count, price.per_hour)
            metrics[f"cost_per_million_{unit}"] = Belief.from_quantity(cost)
    return replace(candidate, reply=msgspec.structs.replace(reply, metrics=metrics), price=price)
