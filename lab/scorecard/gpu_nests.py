"""GPUs that are described as loop nests, beside what LLMCompass measured of them.

Its kernels are called from Python one by one. What such a call takes without work was measured by
its authors apart, and is added; nothing comes from the rows. Operands come from main memory, as its
simulator has them. A second metric takes one constant a device from every second size, how much
longer its passes take, and scores the other sizes.

Intervals take the call as no better known than any host's time to start a kernel: its share of the
time carries the spread that products carry for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from lab.scorecard.kernel_suite import US
from lab.scorecard.one_constant import least_squares_share
from lab.scorecard.suite import Scored
from lab.scorecard.tables import csv_records
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.registry import implementation_for
from silicast.learning.dispatch import times
from silicast.workload.graphs.op import Op, Variant

LLMCOMPASS = "kernels/llmcompass_real_hardware.csv"
CALL_US: Mapping[str, Mapping[str, float]] = {
    "A100": {"matmul": 21.0, "softmax": 12.0, "layernorm": 45.0, "gelu": 45.0},
    "MI210": {"matmul": 34.0, "softmax": 22.0, "layernorm": 28.0, "gelu": 21.0},
}
"""An empty call of each operation: the table of overheads in LLMCompass' code (Zhang et al., ISCA
2024), recalled."""
NESTS = {"A100": "a100-nest", "MI210": "mi210-nest"}
_FP16 = Variant("fp16", cache="cold")
_GELU = Variant("fp16", cache="cold", flags=(("gelu", True),))


def score_gpu_nests(data: Path, limit: int | None = None) -> Iterator[Scored]:
    """Microseconds of products, softmax, layernorm and GELU of A100 and MI210; both metrics."""
    table: dict[tuple[str, str], list[tuple[Op, float]]] = {}
    for row in csv_records(data / LLMCOMPASS):
        family, _, device = row["file"].partition("_")
        if device in NESTS and family in CALL_US[device]:
            table.setdefault((family, device), []).append(_measured(family, row["row_csv"]))
    parts = {
        (family, device): _part(family, device, _some(rows, limit))
        for (family, device), rows in table.items()
    }
    yield Scored.joined("gpu_nest_us", [part for part, _ in parts.values()])
    halves = []
    for device in NESTS:
        passes = {family: part for (family, of), part in parts.items() if of == device}
        products = passes.pop("matmul")
        slower = _slower(device, {family: part for family, (part, _) in passes.items()})
        halves.append(_second_half(*products, CALL_US[device]["matmul"], 1.0))
        halves += [
            _second_half(*part, CALL_US[device][family], slower) for family, part in passes.items()
        ]
    yield Scored.joined("gpu_nest_half_us", halves)


def _slower(device: str, passes: Mapping[str, Scored]) -> float:
    """How much longer a device's passes take than its nest says: by the first of every two rows."""
    calls = [np.full(len(part.measured[::2]), CALL_US[device][f]) for f, part in passes.items()]
    estimated = np.concatenate(calls)
    measured = np.concatenate([part.measured[::2] for part in passes.values()])
    estimate = np.concatenate([part.estimate[::2] for part in passes.values()])
    return least_squares_share(measured, estimated, estimate - estimated)


def _second_half(part: Scored, log_sd: F64, call: float, slower: float) -> Scored:
    """The second of every two rows, of which nothing was known."""
    nest = slower * (part.estimate[1::2] - call)
    p05, p95 = _interval(call, nest, log_sd[1::2])
    return Scored(
        "gpu_nest_half_us",
        measured=part.measured[1::2],
        estimate=call + nest,
        p05=p05,
        p95=p95,
        groups={name: labels[1::2] for name, labels in part.groups.items()},
    )


def _interval(call: float, nest: F64, log_sd: F64) -> tuple[F64, F64]:
    """5th and 95th percentile of a call and a nest, of which the errors are each one's own.

    Args:
        nest, log_sd: microseconds of each row, and how well they are known, in logarithms.

    >>> [each.round(1).tolist() for each in _interval(1.0, np.array([99.0]), np.array([0.2]))]
    [[72.2], [138.5]]
    """
    whole = call + nest
    of_call = load_physics("gemm").default["stream_launch_log_sd"]
    sd = np.hypot(of_call * call / whole, log_sd * nest / whole)
    return whole * np.exp(-Z90 * sd), whole * np.exp(Z90 * sd)


def _some(rows: list[tuple[Op, float]], limit: int | None) -> list[tuple[Op, float]]:
    return rows if limit is None else rows[:: max(1, 8 * len(rows) // max(limit, 1))]


def _measured(family: str, text: str) -> tuple[Op, float]:
    """A row as an op and its microseconds; all but products state billions of elements a second."""
    words = [word.strip() for word in text.split(",")]
    if family == "matmul":
        m, n, k = (int(word) for word in words[:3])
        return Op.make("gemm", _FP16, m=m, n=n, k=k, batch=1), float(words[3][:-2]) * 1e3
    sizes = [int(word) for word in words[:-1]]
    us = float(np.prod(sizes)) / float(words[-1]) / 1e3
    if family == "gelu":
        return Op.make("elementwise", _GELU, elements=sizes[0], inputs=1), us
    rows, width = sizes
    if family == "softmax":
        return Op.make("softmax", _FP16, rows=rows, cols=width), us
    return Op.make("layernorm", _FP16, tokens=rows, hidden=width), us


def _part(family: str, device: str, rows: list[tuple[Op, float]]) -> tuple[Scored, F64]:
    """The rows of one family and device, and how well their nests are known, in logarithms."""
    ops, call = [op for op, _ in rows], CALL_US[device][family]
    nest = times(ops, find_device(NESTS[device]))
    board = times(ops, find_device(device))
    log_sd = np.array([np.log(estimate.p95_s / estimate.p05_s) for estimate in nest]) / (2.0 * Z90)
    us = US * np.array([estimate.estimate_s for estimate in nest])
    p05, p95 = _interval(call, us, log_sd)
    scored = Scored(
        "gpu_nest_us",
        measured=np.array([us_ for _, us_ in rows]),
        estimate=call + us,
        p05=p05,
        p95=p95,
        baselines={
            "roofline and the call": call + US * _roofline(ops, find_device(device)),
            "the catalog's GPU model and the call": call
            + US * np.array([estimate.estimate_s for estimate in board]),
        },
        groups={
            "device": np.full(len(rows), device),
            "family": np.full(len(rows), family),
            "both": np.full(len(rows), f"{device} {family}"),
        },
    )
    return scored, log_sd


def _roofline(ops: list[Op], device: Device) -> F64:
    """Products at the matrix peak, compulsory bytes at the memory's, whichever is longer."""
    bounds = []
    for op in ops:
        model = implementation_for(op.family, "simt")
        assert model is not None
        seconds = model.compulsory_bytes(op) / device.dram.bandwidth_bytes_per_s
        if op.family == "gemm":
            peak = device.peak_per_s(device.matrix_pipe("fp16"), "fp16")
            seconds = max(seconds, model.flops(op) / peak)
        bounds.append(seconds)
    return np.array(bounds)
