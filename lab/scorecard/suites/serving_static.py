"""Static graphs behind a server: BERT and ResNet-50 by batch and by clients, A100 and V100.

Batches are those of one client that sends the next when the last is answered, so that nothing
queues. Clients in a closed loop send one image each, which the server joins into batches.

A back end runs a network as it is built: TensorRT fuses (as a compiler does) and launches a graph,
ONNX Runtime runs the file's operators one by one from C++, PyTorch its own from Python's dispatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.model_suite import Believed, Case, Metric, RunsScore
from lab.scorecard.static_networks import bert, resnet50
from lab.scorecard.suite import EVIDENCE, Suite
from lab.scorecard.tables import read_records
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import ProgramPass, predict_program
from silicast.composition.prices.pass_prices import PassPrices
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.learning.tiers import Evidence
from silicast.serving.simulation.deploy import replica_spec
from silicast.serving.simulation.event_loop import Simulation
from silicast.serving.traffic.requests import Requests
from silicast.workload.frameworks.compiled import fused_graph
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision

TABLE = "vision/triton_server_a100_v100.parquet"
ENGINE = "triton-server"
QUANTILES = ("p50", "p99")
STATIC = "static_avg_ms"
"""Of batches that one client sends."""
_ENGINES = {"TensorRT": ENGINE, "ONNX Runtime": "torch-compile", "PyTorch": "torch-eager"}
"""Back end -> how its launches reach the device; ONNX Runtime's are C++ calls, as those of
generated wrappers, one a kernel."""
_DEVICES = {"A100": "A100", "V100": "V100-SXM2-32GB"}
_BERT = {
    "LanguageModeling/BERT/large": (24, 1024, 16),
    "LanguageModeling/BERT/dist6l": (6, 768, 12),
}
"""Layers, width and heads."""
_RESNET = ("Classification/ConvNets/resnet50", "Classification/ConvNets/")
_TOKENS = 384
"""Of a question with its passage; the source does not state it for these rows."""
_IMAGE_BYTES = 3 * 224 * 224 * 4
"""An image is sent in fp32."""
_REQUEST_MS = {"A100": 0.11, "V100": 0.35}
"""Of a request at its client, on its way and in the queue: medians of these columns in the source's
rows of GPUNet with one image and one client, which are not scored (lab/static_server_host.py)."""
_SENT_NS_PER_BYTE = 0.42
"""Of a request's tensor: a loopback connection (0.33) and a copy behind it (0.09), as measured on a
CPU of our own (lab/static_server_host.py), not on the source's hosts."""
_MOST = 64
"""Largest batch of ResNet-50, which the source does not state."""
_ROUNDS = 40
"""Requests of each client."""


def cases(data: Path) -> list[Case]:
    """One case a row whose columns agree with each other, sorted."""
    rows = [row for row in read_records(data / TABLE) if row["consistent"]]
    covered = [row for row in rows if row["model"] in _BERT or row["model"] in _RESNET]
    return sorted(map(_case, covered), key=lambda case: repr(sorted(case.scenario.items())))


def _case(row: Mapping[str, Any]) -> Case:
    device = next(name for name in _DEVICES if name in row["gpu"])
    section = row["section"].split("), ")[-1]
    images = row["model"] in _RESNET
    batch = int(row["batch"] or 0) if row["scenario"] == "offline" else 0
    clients = 1 if batch else int(row["concurrency"])
    measured = {
        f"latency_{name}_ms": float(value)
        for name in (*QUANTILES, "avg")
        if (value := row[f"latency_{name}_ms"]) is not None
    }
    if batch:
        measured["static_avg_ms"] = measured["latency_avg_ms"]
    model = "ResNet-50" if images else row["model"].split("/")[-1]
    return Case(
        scenario={
            "model": row["model"],
            "device": device,
            "batch": batch,
            "concurrency": clients,
            "backend": section,
        },
        measured=measured,
        labels={
            "device": device,
            "model": model,
            "back end": section,
            "load": f"batch {batch}" if batch else f"{_power(clients)} clients",
        },
    )


def _power(clients: int) -> str:
    low = 1 << (clients.bit_length() - 1)
    return f"{low} to {2 * low - 1}"


def answer(case: Case) -> dict[str, Believed]:
    """Latency quantiles; empty where something has no model."""
    run = case.scenario
    try:
        if run["batch"]:
            alone = _alone(run["model"], run["device"], run["backend"], run["batch"])
            return dict.fromkeys((*(f"latency_{name}_ms" for name in QUANTILES), STATIC), alone)
        return _queued(run["device"], run["concurrency"])
    except SilicastError as error:
        if error.kind == "internal":
            raise
        return {}


def _alone(model: str, device: str, section: str, batch: int) -> Believed:
    """One client with a batch a request."""
    sent = batch * _IMAGE_BYTES if model in _RESNET else 0
    beside_ms = _beside_ms(device, sent)
    back_end = _back_end(section)
    if model in _RESNET:
        graph = resnet50(batch, copied_bytes=sent)
    else:
        graph = bert(batch, _TOKENS, *_BERT[model], file=back_end != "PyTorch")
        if back_end == "TensorRT":
            graph = fused_graph(graph)
    machine = Machine(
        find_device(_DEVICES[device]), find_engine(_ENGINES[back_end]), evidence=EVIDENCE.get()
    )
    return _believed(predict_program(machine, graph), beside_ms)


def _beside_ms(device: str, sent_bytes: int) -> float:
    """Of a request beside its pass; other requests are sent meanwhile."""
    return _REQUEST_MS[device] + sent_bytes * _SENT_NS_PER_BYTE * 1e-6


def _back_end(section: str) -> str:
    """What runs the network: TensorRT also where another back end hands it over."""
    if "TensorRT" in section or "TRT" in section:
        return "TensorRT"
    return "PyTorch" if "PyTorch" in section else "ONNX Runtime"


def _queued(device: str, concurrency: int) -> dict[str, Believed]:
    """Clients in a closed loop, one image each."""
    prices = _resnet_prices(device, EVIDENCE.get())
    deployment = Deployment.from_model(
        find_model("bert_large"),
        find_device(_DEVICES[device]),
        find_engine(ENGINE),
        precision=Precision.from_formats(weights="fp16"),
        evidence=EVIDENCE.get(),
    )
    like = replica_spec(deployment)
    spec = replace(like, prices=prices, limits=replace(like.limits, sequences=_MOST))
    count = concurrency * _ROUNDS
    ones = np.ones(count, dtype=np.int64)
    records = Simulation(Requests.from_arrays(0 * ones, ones, ones, concurrency), [spec]).run()
    beside_ms = _beside_ms(device, _IMAGE_BYTES)
    late = records.e2e_s()[2 * concurrency :] * 1e3 + beside_ms
    usual = prices.program_pass(min(concurrency, _MOST), 1)
    pass_ms, low, high, bound = _believed(usual, 0.0)
    return {
        f"latency_{name}_ms": (value, value * low / pass_ms, value * high / pass_ms, bound)
        for name, value in (
            (name, float(np.quantile(late, float(name[1:]) / 100.0))) for name in QUANTILES
        )
    }


def _believed(program_pass: ProgramPass, beside_ms: float) -> Believed:
    ms, bound = program_pass.total.latency_s.times(1e3), program_pass.total.bound_seconds * 1e3
    return ms.estimate + beside_ms, ms.p05 + beside_ms, ms.p95 + beside_ms, bound


@cache
def _resnet_prices(device: str, evidence: Evidence) -> PassPrices:
    machine = Machine(find_device(_DEVICES[device]), find_engine(ENGINE), evidence=evidence)
    return PassPrices(
        lambda batch, _: predict_program(
            machine, resnet50(batch, copied_bytes=batch * _IMAGE_BYTES)
        )
    )


SCORE = RunsScore(
    cases,
    [
        *(Metric(name) for name in (*(f"latency_{q}_ms" for q in QUANTILES), STATIC)),
        Metric("named_static_avg_ms", STATIC, {"back end": "(?!.*TF).*"}),
        Metric("compiled_p50_ms", "latency_p50_ms", {"back end": ".*TensorRT.*"}),
    ],
    answer,
)
SUITES = (Suite("serving-static", (TABLE,), SCORE, both_tiers=False),)
