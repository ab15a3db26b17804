"""Row kernels as their providers run them: a framework's eager code, its compiler and fused kernels
written by hand (Liger's benchmarks): forward, backward and both, with peak memory.

A benchmark flushes the L2 before each call and records events around it. Of a benchmark's sizes
every second one is held out: nothing is fitted on it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from lab.scorecard.held_out import constants_without
from lab.scorecard.kernel_suite import compulsory_bytes, roofline_of_ops
from lab.scorecard.rows import MeasuredRows, every_second, held_out, limited
from lab.scorecard.suite import Scored, Suite, predicted
from lab.scorecard.tables import ops, read_records
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import replaced
from silicast.kernels.rows.chain_model import (
    ACCUMULATED,
    BACKWARD,
    BOTH,
    GROUP,
    MEMORY_RANGE,
    PER_ROW,
    SUMMED,
    ChainedKernel,
)
from silicast.kernels.rows.norms import OPERATOR, SEPARATE
from silicast.kernels.rows.rope import COMPLEX
from silicast.kernels.rows.silu_mul import IN_PLACE
from silicast.workload.graphs.op import Variant

TABLE = "kernels/liger.parquet"
DTYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
DEVICES = {
    "NVIDIA A100-SXM4-80GB": "A100-SXM-80GB",
    "NVIDIA H100 80GB HBM3": "H100-SXM-80GB",
    "NVIDIA H100 PCIe": "H100-PCIe-80GB",
    "NVIDIA GeForce RTX 3090": "RTX 3090",
}
LIBRARIES = {
    "huggingface": ("torch", ""),
    "torch": ("torch", ""),
    "torch_compile": ("torch_compile", ""),
    "liger": ("liger", ""),
    "liger_fused_add_rms_norm": ("liger", ""),
    "liger_rms_norm": ("liger", SEPARATE),
    "liger_in_place": ("liger", IN_PLACE),
}
"""Provider -> library, and which of its kernels; others' (Megatron's own fusions) are left out."""
RELEASES = {"torch": "2.8", "torch_compile": "2.8"}
"""The newest that the table's rows may be of; it does not say which."""
REPEATED = frozenset(("megatron_swiglu", "megatron_cross_entropy"))
"""Benchmarks whose rows called backward are those of both passes once more."""
NO_MEMORY = frozenset(("embedding", "softmax"))
"""Benchmarks whose peaks are no one call's: tables of all providers are there at once, beside
12 GB of something else; another unit than the one stated, and operands not counted."""
MIB = 2.0**20

Settings = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Call:
    """What a benchmark calls: family, sizes, number format, the kernel of several, and flags.

    Attributes:
        beside_bytes: what another provider holds meanwhile.
    """

    family: str
    dims: Mapping[str, int]
    dtype: str
    kernel: str = ""
    flags: tuple[str, ...] = ()
    beside_bytes: int = 0


def _rms_norm(c: Settings) -> Call:
    return Call("rmsnorm", {"tokens": c["M"], "hidden": c["H"]}, c["dtype"])


def _added_norm(c: Settings) -> Call:
    return replace(_rms_norm(c), dims={**_rms_norm(c).dims, "residual": 1})


def _fused_norm(c: Settings) -> Call:
    """A framework's own operator instead of a model's code."""
    dims = {"tokens": c["S"] * c["B"], "hidden": c["H"]}
    return Call("rmsnorm", dims, "bf16", OPERATOR)


def _layer_norm(c: Settings) -> Call:
    return Call("layernorm", {"tokens": c["M"], "hidden": c["N"]}, c["dtype"])


def _softmax(c: Settings) -> Call:
    return Call("softmax", {"rows": c["M"], "cols": c["N"]}, c["dtype"], flags=(SUMMED,))


def _rope(c: Settings) -> Call:
    heads = {"num_heads": c["num_q_heads"], "num_kv_heads": c["num_kv_heads"]}
    tokens = c["T"] if "T" in c else c["seq_len"]
    hidden = c["H"] if "H" in c else c["hidden_size"]
    dims = {"tokens": tokens, **heads, "head_dim": hidden // c["num_q_heads"]}
    return Call("rope", dims, c["dtype"])


def _complex_rope(c: Settings) -> Call:
    return replace(_rope(c), kernel=COMPLEX)


def _swiglu(c: Settings) -> Call:
    dims = {"tokens": c["S"] * c["B"], "width": 2 * c["ffn_local"]}
    return Call("silu_mul", dims, "bf16", flags=(SUMMED,))


def _embedding(c: Settings) -> Call:
    dims = {"tokens": c["B"] * c["T"], "hidden": c["D"], "vocab": c["V"]}
    return Call("embedding", dims, c["dtype"], flags=(ACCUMULATED,))


def _cross_entropy(c: Settings) -> Call:
    dims = {"rows": c["B"] * c["T"], "vocab": c["V"]}
    return Call("cross_entropy", dims, "fp32", flags=(ACCUMULATED,))


def _parallel_cross_entropy(c: Settings) -> Call:
    dims = {"rows": c["S"] * c["B"], "vocab": c["V"]}
    return Call("cross_entropy", dims, "bf16", flags=(ACCUMULATED, PER_ROW))


def _gated_mlp(c: Settings) -> Call:
    """The MLP of a model, whichever activation."""
    tokens = c["T"] * (c["B"] if "B" in c else c["bsz"])
    dims = {"tokens": tokens, "hidden": c["hidden_size"], "intermediate": c["intermediate_size"]}
    return Call("gated_mlp", dims, c["dtype"])


def _linear_cross_entropy(c: Settings) -> Call:
    """Every provider's weight is there, and the other's."""
    dims = {"tokens": c["BT"], "hidden": c["H"], "vocab": c["V"]}
    beside = c["H"] * c["V"] * BYTES[c["dtype"]]
    return Call("linear_cross_entropy", dims, c["dtype"], flags=(), beside_bytes=beside)


def _preference(c: Settings) -> Call:
    """Chosen and rejected answers, of which B are a batch."""
    dims = {"sequences": c["B"], "length": c["T"], "hidden": c["H"], "vocab": c["V"]}
    beside = c["H"] * c["V"] * BYTES[c["dtype"]]
    return Call("linear_preference_loss", dims, c["dtype"], beside_bytes=beside)


BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}

CALLS: Mapping[str, Callable[[Settings], Call]] = {
    "rms_norm": _rms_norm, "fused_add_rms_norm": _added_norm, "megatron_rms_norm": _fused_norm,
    "layer_norm": _layer_norm, "softmax": _softmax, "rope": _rope, "llama4_rope": _complex_rope,
    "megatron_swiglu": _swiglu, "embedding": _embedding, "cross_entropy": _cross_entropy,
    "swiglu": _gated_mlp, "geglu": _gated_mlp,
    "fused_linear_cpo_loss": _preference, "fused_linear_orpo_loss": _preference,
    "fused_linear_simpo_loss": _preference,
    "fused_linear_cross_entropy": _linear_cross_entropy,
    "megatron_cross_entropy": _parallel_cross_entropy,
}  # fmt: skip
"""Benchmarks of ops that kernel models exist for -> what they call."""


@final
@dataclass(frozen=True)
class Row:
    """One measured figure."""

    benchmark: str
    provider: str
    direction: str
    metric: str
    device: str
    call: Call
    value: float
    held: bool


def rows_of(data: Path) -> list[Row]:
    """Every row of a benchmark in :data:`CALLS`, the newest of each."""
    table: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for record in read_records(data / TABLE):
        name = record["kernel_name"]
        again = name in REPEATED and record["kernel_operation_mode"] == "backward"
        covered = name in CALLS and record["kernel_provider"] in LIBRARIES
        if record["latest"] and covered and not again:
            keys = ("kernel_name", "device", "extra_benchmark_config_str", "x_name")
            table[tuple(str(record[key]) for key in keys)].append(record)
    return [row for key in sorted(table) for row in _rows(table[key])]


def _rows(records: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Of one benchmark on one device; every second size is held out."""
    sizes = np.array([int(record["x_value"]) for record in records])
    for record, size, held in zip(records, sizes.tolist(), every_second(sizes), strict=True):
        settings = json.loads(record["extra_benchmark_config_str"])
        settings["dtype"] = DTYPES.get(settings.get("dtype", ""), "fp32")
        settings[record["x_name"]] = size
        yield Row(
            record["kernel_name"],
            record["kernel_provider"],
            record["kernel_operation_mode"],
            record["metric_name"],
            find_device(DEVICES[record["device"]]).name,
            CALLS[record["kernel_name"]](settings),
            record["value_p50"],
            bool(held),
        )


def timed_rows(data: Path) -> dict[str, list[MeasuredRows]]:
    """Metric -> parts of one device, benchmark, provider and format; seconds."""
    return {
        f"{direction}_us": [_measured(part, 1e-3) for part in parts]
        for direction, parts in _parts(data, "speed").items()
    }


def memory_rows(data: Path) -> list[MeasuredRows]:
    """The same of most bytes allocated at once, which stand where times are."""
    parts = [part for item in _parts(data, "memory").values() for part in item]
    return [_measured(part, MIB) for part in parts if part[0].benchmark not in NO_MEMORY]


def _parts(data: Path, metric: str) -> dict[str, list[list[Row]]]:
    """Direction -> rows of one kind."""
    parts: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows_of(data):
        if row.metric == metric:
            key = (row.direction, row.benchmark, row.provider, row.device, row.call.dtype)
            parts[key].append(row)
    table: dict[str, list[list[Row]]] = defaultdict(list)
    for (direction, *_), rows in sorted(parts.items()):
        table[direction].append(rows)
    return table


DIRECTIONS = {"forward": (), "backward": (BACKWARD,), "full": (BOTH,)}


def _measured(rows: Sequence[Row], unit: float) -> MeasuredRows:
    first = rows[0]
    library, kernel = LIBRARIES[first.provider]
    flags = sorted((*first.call.flags, *DIRECTIONS[first.direction]))
    variant = Variant(
        first.call.dtype,
        library=library,
        version=RELEASES.get(library, ""),
        kernel=kernel or first.call.kernel,
        launch="stream",
        cache="cold",
        flags=tuple((name, True) for name in flags),
    )
    dims = {name: np.array([row.call.dims[name] for row in rows]) for name in first.call.dims}
    held = np.array([row.held for row in rows])
    ((batch, _, _),) = ops(first.call.family, variant, dims, held)
    words = {name: getattr(first, name) for name in ("benchmark", "provider", "direction")}
    measured = np.array([row.value for row in rows]) * unit
    beside = {"beside_bytes": np.array([float(row.call.beside_bytes) for row in rows])}
    return MeasuredRows(batch, first.device, measured, held, words, values=beside)


def _scored(
    metric: str, rows: MeasuredRows, columns: Mapping[str, F64], roofline: F64, unit: float
) -> Scored:
    """Rows beside what is predicted."""
    words = rows.words
    labels = {
        "device": rows.device,
        "op": words["benchmark"],
        "provider": words["provider"],
        "op of provider": f"{words['benchmark']} {words['provider']}",
        "provider on device": f"{words['provider']} {rows.device}",
    }
    return Scored(
        metric,
        measured=unit * rows.seconds,
        roofline=unit * roofline,
        estimate=unit * columns["estimate"],
        p05=unit * columns["p05"],
        p95=unit * columns["p95"],
        groups={name: np.full(len(rows), text) for name, text in labels.items()},
    )


def _time(metric: str, rows: MeasuredRows) -> Scored:
    times = predicted(rows)
    columns = {"estimate": times.estimate_s, "p05": times.p05_s, "p95": times.p95_s}
    return _scored(metric, rows, columns, roofline_of_ops(rows, times), 1e6)


def _memory(metric: str, rows: MeasuredRows) -> Scored:
    """Operands and results alone are the baseline."""
    assert isinstance(rows.model, ChainedKernel)
    peak = np.asarray(rows.model.peak_bytes(rows.batch, rows.hardware), dtype=np.float64)
    peak = peak + rows.values["beside_bytes"]
    columns = {"estimate": peak, "p05": peak / MEMORY_RANGE, "p95": peak * MEMORY_RANGE}
    return _scored(metric, rows, columns, compulsory_bytes(rows), 1.0 / MIB)


def _unseen(metric: str, rows: MeasuredRows) -> Scored:
    """As if no board of the architecture had been measured."""
    without = constants_without(GROUP, rows.hardware.architecture)
    with replaced({GROUP: without}):
        return _time(metric, rows)


def _score(data: Path, limit: int | None) -> Iterator[Scored]:
    timed = {metric: limited(parts, limit) for metric, parts in timed_rows(data).items()}
    for metric, parts in timed.items():
        yield Scored.joined(metric, [_time(metric, part) for part in held_out(parts)])
    for metric, parts in timed.items():
        name = f"unseen_{metric}"
        yield Scored.joined(name, [_unseen(name, part) for part in parts])
    memory = limited(memory_rows(data), limit)
    yield Scored.joined("memory_mib", [_memory("memory_mib", part) for part in memory])


SUITES = (Suite("liger", (TABLE,), _score),)
