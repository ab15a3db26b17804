"""The six tools: plain functions, which the protocol's server offers and tests call.

Every number of an answer has its unit, interval, tier and sources, or there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from silicast import __version__
from silicast.core.errors import SilicastError
from silicast.core.metrics import metric_of, words_and_unit
from silicast.core.naming import NameIndex
from silicast.core.plain_data import check_tree
from silicast.learning.artefact import shipped_hash
from silicast.scenario.answer import Answer, Belief, Reply, refusal
from silicast.scenario.reading.inline_only import refuse_paths
from silicast.scenario.run import reply_to

Tree = dict[str, Any]

ABSTAINED = (
    "outside measured ground: no number is stated; the interval would be a guess. Ask with "
    "accept_unmeasured=true for the estimate and its wide interval, or measure and calibrate"
)


def reply_of(scenario: Tree) -> Reply:
    """The answer to a scenario in which nothing names a file."""
    try:
        check_tree(scenario)
        refuse_paths(scenario)
    except SilicastError as error:
        return refusal(error)
    return reply_to(scenario)


def stated(reply: Reply, *, accept_unmeasured: bool = False) -> Tree:
    """A reply as an agent is told it.

    Returns:
        ``status``: "answered", "abstained" or "refused"; ``numbers``: a table each.
    """
    if not isinstance(reply, Answer):
        problem: Tree = msgspec.to_builtins(reply.error)
        return {"status": "refused", **problem}
    told: Tree = {
        "status": "answered",
        "tier": reply.tier,
        "domain": reply.domain,
        "warnings": list(reply.warnings),
    }
    if reply.domain == "out" and not accept_unmeasured:
        return {**told, "status": "abstained", "what_to_do": ABSTAINED}
    source = sources(reply.why)
    told["numbers"] = {
        name: number(name, belief, reply, source) for name, belief in reply.metrics.items()
    }
    return told


def number(name: str, belief: Belief, reply: Answer, source: str) -> Tree:
    """One metric with all that belongs to it."""
    metric = metric_of(name)
    return {
        "estimate": belief.estimate,
        "p05": belief.p05,
        "p95": belief.p95,
        "unit": metric.unit if metric is not None else words_and_unit(name)[1],
        "bound": reply.bound.get(name),
        "tier": reply.tier,
        "domain": reply.domain,
        "source": source,
        "meaning": metric.text if metric is not None else "",
    }


def sources(why: Mapping[str, Any]) -> str:
    """What an answer rests on, in a line: constants, calibrations and measured tables by name."""
    named = why.get("sources") or why.get("source") or ()
    words = [named] if isinstance(named, str) else [str(each) for each in named]
    words += [f"silicast {__version__}, constants {shipped_hash()}"]
    return "; ".join(words[-5:])


MOST_NAMES = 10
STATED = ("memory_gb", "room", "knee", "limits", "uncertainty", "clock_mhz")
"""What else explains an answer."""


def predict(scenario: dict[str, Any], accept_unmeasured: bool = False) -> dict[str, Any]:
    """Predict one scenario: latency, throughput, memory, energy, cost.

    Args:
        scenario: {task, device, model, workload, parallel?, engine?, precision?, limits?}.
            task "inference": workload {batch, input_len, output_len}. "serving": workload
            {arrival: {kind: "closed", concurrency} or {kind: "poisson", rate_per_s}, input_len,
            output_len}. "kernel": workload {kernel: {op: "gemm", m, n, k, dtype}}. "collective":
            workload {op: "all_reduce", bytes, gpus}. "training": cluster {gpus}, parallel {tp, pp,
            dp}, workload {seq_len, global_batch}. Models and devices are names (see
            resolve_names) or inline tables, never paths.
        accept_unmeasured: state numbers also outside measured ground.
    """
    return stated(reply_of(scenario), accept_unmeasured=accept_unmeasured)


def compare(
    model: str,
    devices: list[str],
    batch: int = 1,
    input_len: int = 1024,
    output_len: int = 128,
    users: int | None = None,
    tokens_per_user: float | None = None,
    price_per_gpu_hour: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Compare devices for one model, the best first; each gets the smallest plan that fits.

    Args:
        users: who wait for answers and ask again, in place of a batch; tokens_per_user: tokens a
            second that each of them sees.
        price_per_gpu_hour: USD for an hour of each device, for cost.
    """
    from silicast.app.api_many import compare as compared

    try:
        refuse_paths([model, *devices])
        rows = compared(
            model=model,
            device=devices,
            batch=batch,
            input_len=input_len,
            output_len=output_len,
            users=users,
            tokens_per_user=tokens_per_user,
            price=price_per_gpu_hour,
        )
    except SilicastError as error:
        return stated(refusal(error))
    candidates: list[Tree] = []
    for row in rows:
        told: Tree = {"device": row.label, "plan": dict(row.fields), "reason": row.reason}
        told["fits"] = row.predicted is not None and not row.reason
        if row.predicted is not None:
            told |= stated(row.predicted.answer)
        candidates.append(told)
    return {"status": "answered", "order": "what fits first, the best on top", "rows": candidates}


def capacity(
    model: str,
    device: str,
    slo: dict[str, float],
    input_len: int = 1024,
    output_len: int = 128,
    rate_per_s: float | None = None,
    tp: int = 1,
    engine: str = "vllm",
    max_gpus: int = 16,
) -> dict[str, Any]:
    """How much load a deployment carries under an objective, or how many devices carry a load.

    Args:
        slo: limits in ms, such as {"ttft_p99_ms": 1000, "tpot_p99_ms": 50}.
        rate_per_s: requests a second that must be carried: the fewest devices are searched; left
            out, the most requests a second of one deployment.
        tp: tensor-parallel degree of one deployment.
    """
    traffic = {
        "arrival": {"kind": "poisson", "rate_per_s": 1.0 if rate_per_s is None else rate_per_s},
        "input_len": input_len,
        "output_len": output_len,
    }
    objective = "max_rate" if rate_per_s is None else "min_gpus"
    workload: Tree = {"objective": objective, "slo": slo, "traffic": traffic}
    if rate_per_s is not None:
        workload["search"] = {"max_gpus": max_gpus}
    scenario: Tree = {
        "task": "capacity",
        "model": model,
        "device": device,
        "engine": engine,
        "workload": workload,
    }
    if tp != 1:
        scenario["parallel"] = {"tp": tp}
    return stated(reply_of(scenario))


def train_plan(
    model: str,
    device: str,
    gpus: int,
    seq_len: int = 4096,
    global_batch: int = 256,
    dtype: str = "bf16",
) -> dict[str, Any]:
    """The best parallel plan of a training step on so many devices, with its time and memory.

    Args:
        global_batch: sequences of one optimizer step; dtype: format of the products (bf16, fp8).
    """
    from silicast.app.train_flags import TrainDegrees, TrainFlags, training_scenario

    flags = TrainFlags(
        model=model,
        device=device,
        gpus=gpus,
        seq_len=seq_len,
        global_batch=global_batch,
        dtype=None if dtype == "bf16" else dtype,
    )
    scenario = training_scenario(flags, TrainDegrees())
    reply = reply_of(scenario)
    told = stated(reply)
    if isinstance(reply, Answer):
        told["plan"] = reply.why.get("plan") or reply.why.get("deployment", {})
    return told


def explain(scenario: dict[str, Any]) -> dict[str, Any]:
    """Why a scenario takes as long as it does: where time goes, and what bounds each part.

    Args:
        scenario: as of predict.
    """
    from silicast.report.reasons.why import largest_parts

    reply = reply_of(scenario)
    told = stated(reply)
    if isinstance(reply, Answer):
        why = reply.why
        told["time"] = [largest_parts(part) for part in why.get("parts", ())] or [
            largest_parts(why)
        ]
        told |= {name: why[name] for name in STATED if name in why}
    return told


def resolve_names(text: str, kind: str = "any") -> dict[str, Any]:
    """The names of the catalog that a text means: devices, models or engines.

    Args:
        text: as people write it ("h100 sxm", "llama 3.1 8b").
        kind: device, model, engine, or any.
    """
    from silicast.app.agents.tools import known_names

    if len(text) > 200:
        return stated(refusal(SilicastError("is too long", field="text")))
    try:
        return {"status": "answered", **known_names(text, kind, MOST_NAMES)}
    except SilicastError as error:
        return stated(refusal(error))


TOOLS = (predict, compare, capacity, train_plan, explain, resolve_names)


def known_names(text: str, kind: str, most: int) -> dict[str, Any]:
    """Of each kind the name that a text is, or the nearest ones.

    Args:
        kind: device, model, engine, or any; most: names of each kind.

    Raises:
        SilicastError: there is no such kind.
    """
    kinds = _indexes()
    if kind != "any" and kind not in kinds:
        raise SilicastError(
            f"no kind {kind[:40]!r}", field="kind", hint=f"{', '.join(kinds)} or any"
        )
    table: dict[str, Any] = {}
    for name, index in kinds.items():
        if kind in ("any", name):
            table[name] = _of_kind(name, text, index(), most)
    return table


def _of_kind(kind: str, text: str, index: NameIndex[Any], most: int) -> dict[str, Any]:
    from silicast.workload.models.lookup import find_model, names_model

    if text in index:
        return {"is": index.canonical(text)}
    if kind == "model" and names_model(text):
        model = find_model(text)
        return {"is": model.name, "means": model.implied}
    containing = list(index.containing(text))[:most]
    try:
        index.canonical(text)
    except SilicastError as error:
        return {"is": None, "containing": containing, "hint": error.hint}
    return {"is": None, "containing": containing}


def _indexes() -> dict[str, Callable[[], NameIndex[Any]]]:
    from silicast.composition.engines.engine import engine_names
    from silicast.hardware.index import device_names
    from silicast.workload.models.lookup import model_index

    return {"device": device_names, "model": model_index, "engine": engine_names}
