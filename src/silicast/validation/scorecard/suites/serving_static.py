"""Static graphs behind a server: BERT by batch, ResNet-50 against concurrency, A100 and V100.

BERT's rows are one client that sends whole batches, so that nothing queues. ResNet-50's are
clients in a closed loop, one image each, whose requests the server joins into batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.machine import Machine
from silicast.composition.pass_prices import PassPrices
from silicast.composition.program import ProgramPass, predict_program
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.learning.tiers import Evidence
from silicast.serving.deploy import replica_spec
from silicast.serving.requests import Requests
from silicast.serving.simulation import ReplicaSpec, Simulation
from silicast.validation.scorecard.model_suite import Believed, Case, score_cases
from silicast.validation.scorecard.rows import subsample
from silicast.validation.scorecard.suite import EVIDENCE, Scored, Suite
from silicast.validation.scorecard.tables import read_records
from silicast.workload.graph import Block, Graph, Node
from silicast.workload.models import find_model
from silicast.workload.op import Op, Variant
from silicast.workload.precision import Precision

TABLE = "vision/triton_server_a100_v100.parquet"
ENGINE = "triton-server"
QUANTILES = ("p50", "p99")
_DEVICES = {"A100": "A100", "V100": "V100-SXM2-32GB"}
_BERT = {
    "LanguageModeling/BERT/large": ("bert_large", 0),
    "LanguageModeling/BERT/dist6l": ("bert_base", 6),
}
_RESNET = ("Classification/ConvNets/resnet50", "Classification/ConvNets/")
_TOKENS = 384
"""Of a question with its passage; the source does not state it for these rows."""
_MOST = 64
"""Largest batch of ResNet-50, which the source does not state."""
_ROUNDS = 40
"""Requests of each client."""


def cases(data: Path) -> list[Case]:
    """One case a row whose columns agree with each other, sorted."""
    rows = [row for row in read_records(data / TABLE) if row["consistent"]]
    kept = [row for row in rows if row["model"] in _BERT or _online(row)]
    return sorted(map(_case, kept), key=lambda case: repr(sorted(case.scenario.items())))


def _online(row: Mapping[str, Any]) -> bool:
    return row["model"] in _RESNET and row["scenario"] == "online"


def _case(row: Mapping[str, Any]) -> Case:
    device = next(name for name in _DEVICES if name in row["gpu"])
    section = row["section"].split("), ")[-1]
    batch = int(row["batch"] or 0)
    measured = {
        f"latency_{name}_ms": float(value)
        for name in QUANTILES
        if (value := row[f"latency_{name}_ms"]) is not None
    }
    return Case(
        scenario={
            "model": row["model"], "device": device, "batch": batch,
            "concurrency": int(row["concurrency"]), "backend": section,
        },
        measured=measured,
        labels={
            "device": device,
            "model": "ResNet-50" if _online(row) else row["model"].split("/")[-1],
            "back end": section,
            "load": f"batch {batch}" if batch else f"{_power(int(row['concurrency']))} clients",
        },
    )  # fmt: skip


def _power(clients: int) -> str:
    low = 1 << (clients.bit_length() - 1)
    return f"{low} to {2 * low - 1}"


def answer(case: Case) -> dict[str, Believed]:
    """Latency quantiles; empty where something has no model."""
    run = case.scenario
    try:
        if run["batch"]:
            return _alone(run["model"], run["device"], run["batch"])
        return _queued(run["device"], run["concurrency"])
    except SilicastError as error:
        if error.kind == "internal":
            raise
        return {}


def _alone(model: str, device: str, batch: int) -> dict[str, Believed]:
    """One client with a batch a request."""
    spec = _bert(model, device)
    assert isinstance(spec.prices, PassPrices)
    once = spec.front_ns + spec.back_ns
    found = _believed(spec.prices.of(batch, _TOKENS), once * 1e-6)
    return {f"latency_{name}_ms": found for name in QUANTILES}


def _bert(model: str, device: str) -> ReplicaSpec:
    name, layers = _BERT[model]
    config = find_model(name)
    if layers:
        config = replace(config, layers=layers)
    where = find_device(_DEVICES[device])
    deployment = Deployment.of(
        config, where, find_engine(ENGINE), precision=Precision.of(weights="fp16"),
        evidence=EVIDENCE.get(),
    )  # fmt: skip
    return replica_spec(deployment)


def _queued(device: str, concurrency: int) -> dict[str, Believed]:
    """Clients in a closed loop, one image each."""
    like = _bert("LanguageModeling/BERT/large", device)
    prices = _resnet_prices(device, EVIDENCE.get())
    spec = replace(like, prices=prices, limits=replace(like.limits, sequences=_MOST))
    count = concurrency * _ROUNDS
    ones = np.ones(count, dtype=np.int64)
    records = Simulation(Requests.of(0 * ones, ones, ones, concurrency), [spec]).run()
    late = records.e2e_s()[2 * concurrency :] * 1e3
    usual = prices.of(min(concurrency, _MOST), 1)
    pass_ms, low, high, bound = _believed(usual, 0.0)
    return {
        f"latency_{name}_ms": (value, value * low / pass_ms, value * high / pass_ms, bound)
        for name, value in (
            (name, float(np.quantile(late, float(name[1:]) / 100.0))) for name in QUANTILES
        )
    }


def _believed(found: ProgramPass, beside_ms: float) -> Believed:
    known, bound = found.total.latency_s.times(1e3), found.total.bound_seconds * 1e3
    return known.estimate + beside_ms, known.p05 + beside_ms, known.p95 + beside_ms, bound


@cache
def _resnet_prices(device: str, evidence: Evidence) -> PassPrices:
    machine = Machine(find_device(_DEVICES[device]), find_engine(ENGINE), evidence=evidence)
    return PassPrices(lambda batch, _: predict_program(machine, resnet50(batch)))


def resnet50(batch: int) -> Graph:
    """ResNet-50 as a compiler leaves it: convolutions with all that follows them, channels last.

    He et al. 2016, the stride in the 3 x 3 convolutions.

    >>> len(resnet50(1).blocks[0].nodes)
    55
    """
    nodes: list[Node] = []

    def conv(c_in: int, c_out: int, size: int, kernel: int, stride: int = 1) -> None:
        pad = kernel // 2
        op = Op.make(
            "conv2d", Variant("fp16", library="cudnn"), batch=batch, in_channels=c_in,
            out_channels=c_out, height=size, width=size, kernel_h=kernel, kernel_w=kernel,
            stride_h=stride, stride_w=stride, padding_h=pad, padding_w=pad,
        )  # fmt: skip
        before = (nodes[-1].name,) if nodes else ()
        nodes.append(Node(f"conv_{len(nodes)}", op, before))

    conv(3, 64, 224, 7, 2)
    pool = Op.make(
        "elementwise",
        Variant("fp16", flags=(("copy", True),)),
        elements=batch * 64 * 112 * 112,
        inputs=1,
    )
    nodes.append(Node("max_pool", pool, (nodes[-1].name,)))
    channels, size = 64, 56
    for stage, depth in enumerate((3, 4, 6, 3)):
        middle = 64 << stage
        for number in range(depth):
            stride = 2 if stage and not number else 1
            conv(channels, middle, size, 1)
            conv(middle, middle, size, 3, stride)
            conv(middle, 4 * middle, size // stride, 1)
            if not number:
                conv(channels, 4 * middle, size, 1, stride)
            channels, size = 4 * middle, size // stride
    head = Op.make("gemm", Variant("fp16"), m=batch, n=1000, k=channels)
    nodes.append(Node("head", head, (nodes[-1].name,)))
    return Graph(f"resnet50 x {batch}", (Block("network", tuple(nodes)),))


def _score(data: Path, limit: int | None) -> Iterator[Scored]:
    every = cases(data)
    chosen: Sequence[Case] = [every[i] for i in subsample(len(every), limit)]
    answers = [answer(case) for case in chosen]
    for name in QUANTILES:
        metric = f"latency_{name}_ms"
        if any(metric in case.measured for case in chosen):
            yield score_cases(metric, chosen, answers)
    compiled = [i for i, case in enumerate(chosen) if "TensorRT" in case.labels["back end"]]
    if compiled:
        own = [chosen[i] for i in compiled]
        yield score_cases(
            "compiled_p50_ms", own, [answers[i] for i in compiled], of="latency_p50_ms"
        )


SUITES = (Suite("serving-static", (TABLE,), _score, both_tiers=False),)
