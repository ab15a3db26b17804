"""Whole networks on the NPUs of boards: names, and what is known of both.

The latency of a network on a board is a sum of a few amounts of work of the network, each times the
board's time for a unit of it (a factorisation without negative numbers of measured latencies,
``catalog/edge/npu.json``), times what the runtime adds. A board that was not measured has the mean
of the measured ones' times, as far as its published figures are like theirs, at the level that its
operations a second give. A network that was not measured has the mean of the measured ones (a
Gaussian process), as far as its multiplications, weights, values written and operators are like
theirs.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Final, final

import msgspec
import numpy as np
from msgspec import Meta

from silicast.core.calibrated import Blended
from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, decode, decode_json, read_toml
from silicast.core.errors import SilicastError, unknown_name, unsupported
from silicast.core.naming import NameIndex, near, normalise
from silicast.core.numerics import F64
from silicast.kernels.physics.constants import PhysicsCard
from silicast.kernels.registry import implementation_for
from silicast.learning.few_samples import FEWEST, best_samples, fit_blend
from silicast.learning.smoothed import HUBER, ROUNDS, Smoothed
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op import Op

FOLDER = CATALOG / "edge"
PAGE = "docs/explanation/edge.md"
SPACE: Final = "npu"
"""The name of these networks among spaces."""
KINDS: Final = ("convolution", "depthwise", "transformer", "image", "decoder")
PRECISIONS: Final = ("float", "w8a8", "w8a16")
RUNTIMES: Final = ("qnn", "tflite", "onnx")
_RUNTIME = {
    "qnn": "qnn",
    "qnndlc": "qnn",
    "qnncontextbinary": "qnn",
    "tflite": "tflite",
    "litert": "tflite",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "precompiledqnnonnx": "onnx",
}
_PRECISION = {
    "": "float",
    "float": "float",
    "fp32": "float",
    "fp16": "float",
    "w8a8": "w8a8",
    "int8": "w8a8",
    "w8a16": "w8a16",
    "w8a16mixedint16": "w8a16",
    "w8a16mixedfp16": "w8a16",
}
_FUSED = re.compile(r"batch_?norm|[._]relu6?_?\b|hardtanh|[._]clip", re.IGNORECASE)
"""Operators that runtimes run as the end of the one before."""
_CONVOLUTION = re.compile(r"conv", re.IGNORECASE)
"""Of an elementwise node: the bias of a convolution, which no runtime runs by itself."""
_VALUE = {"int8": 1, "fp16": 2, "bf16": 2}
"""Format of an operator -> bytes of a number that it writes; of others 4."""
NEAR: Final = 0.4
"""Distance of published figures, in logs, at which a board is half as much of a relative."""
TWIN, TWIN_PULL = 0.15, 0.3
"""Distance at which boards hardly share what their levels are off, and its pull to zero."""
UNSEEN_BOARD, UNSEEN_NETWORK, UNSEEN_RECALLED = 0.35, 0.35, 0.9
"""Log standard deviations that devices and networks left out showed: benchmarks/edge_boards.py."""
NOISE, RECALLED = 0.07, 0.4
"""Log standard deviation of what remains of a network that is counted or recalled."""
BOARD_PULLS, SLOPE_PULL, SLOPE_NOISE = (0.3, 0.0), 30.0, 0.15
"""Of weights of boards toward their shares, of slopes toward zero, and the log standard deviation
that a slope leaves; see `fit_board`."""
CENTRAL = (0.1, 0.9)
"""Quantiles of networks' latencies between which those to measure lie."""
SEEN = 0.2
"""Of a network and a board that were measured, both apart from each other."""

Positive = Annotated[float, Meta(gt=0, le=1e9)]


@final
class Board(Strict, frozen=True):
    """One board, or the phone that a chip is in.

    Attributes:
        tops: dense int8 operations of the NPU, 10^12 a second.
        tcm_mb: tightly coupled memory of the NPU, 2^20 bytes.
    """

    name: str
    npu: str
    tops: Positive
    memory_gb_per_s: Positive
    tcm_mb: Positive
    source: str
    aliases: list[str] = []


class _BoardFile(Strict, frozen=True):
    board: list[Board]


@final
@dataclass(frozen=True)
class NpuNetwork:
    """One component of a model.

    Attributes:
        gmacs: 10^9 multiplications of one inference; mparams: 10^6 weights.
        kind: of its operators, one of :data:`KINDS`.
        mvalues: 10^6 numbers that its operators write; operators: how many they are, without norms
            and activations that runtimes fuse.
        recalled: these are estimates, not counts of a graph.
    """

    model: str
    component: str
    gmacs: float
    mparams: float
    kind: str
    mvalues: float
    operators: float
    recalled: bool = False

    @property
    def name(self) -> str:
        """By which it is known here."""
        return f"{self.model}/{self.component}"

    def features(self, precision: str) -> F64:
        """What networks are compared by, (14,)."""
        macs, values = math.log(self.gmacs), math.log(self.mvalues)
        sizes = [macs, values, math.log(self.mparams), math.log(self.operators)]
        kinds = [float(self.kind == kind) for kind in KINDS[1:]]
        formats = [float(precision == other) for other in PRECISIONS[1:]]
        crossed = [flag * macs for flag in formats]
        return np.array([*sizes, macs * macs, values * values, *kinds, *formats, *crossed])


def counted(graph: Graph) -> NpuNetwork:
    """What is known of a network by its graph alone.

    Raises:
        SilicastError: it multiplies nothing.
    """
    of_images = of_products = deep = weights = written = running = 0
    attends = False
    for block, node in graph.nodes():
        scores = _scores(node.op)
        if scores:  # two products and a softmax, whose results are as large
            written += 2 * scores * block.count
            running += 2 * block.count
        is_bias = node.op.family == "elementwise" and _CONVOLUTION.search(node.source)
        if not _FUSED.search(node.source) and not is_bias:
            size = node.output_bytes or sum(tensor.nbytes for tensor in node.writes)
            written += size // _VALUE.get(node.op.variant.dtype, 4) * block.count
            running += block.count
        attends |= node.op.family.startswith(("softmax", "attention"))
        macs, stored = _multiplications(node.op)
        weights += stored if node.parameter_bytes else 0
        if node.op.family == "conv2d":
            of_images += macs * block.count
            deep += block.count * (node.op.dim("groups") == node.op.dim("in_channels"))
        else:
            of_products += macs * block.count
    total = of_images + of_products
    if not total:
        raise SilicastError("has no convolution or product", field="graph")
    kind = "depthwise" if deep > 2 else KINDS[0]
    if of_products > of_images and (attends or not deep):
        kind = "transformer"
    return NpuNetwork(
        graph.name, "file", total / 1e9, max(weights, 1) / 1e6, kind, max(written, 1) / 1e6, running
    )


def _scores(op: Op) -> int:
    """Of attention, pairs of a query and a key over all heads; 0 for others."""
    sizes = {name: size for name, size in op.dims if isinstance(size, int)}
    if op.family != "attention_prefill" or "q_len" not in sizes or "kv_len" not in sizes:
        return 0
    return sizes.get("batch", 1) * sizes["num_heads"] * sizes["q_len"] * sizes["kv_len"]


def _multiplications(op: Op) -> tuple[int, int]:
    """Of a convolution, a product or attention, and how many numbers its second operand has, of
    attention none; 0 for others.
    """
    sizes = {name: size for name, size in op.dims if isinstance(size, int)}
    scores = _scores(op)
    if scores:
        return 2 * scores * sizes["head_dim"], 0
    if op.family == "gemm":
        stored = sizes["n"] * sizes["k"] * sizes.get("batch", 1)
        return sizes["m"] * stored, stored
    if op.family in ("lstm", "gru", "rnn"):
        model = implementation_for(op.family, "simt")
        macs = model.flops(op) // 2 if model else 0
        return macs, macs // (sizes["batch"] * sizes["steps"])
    if op.family != "conv2d":
        return 0, 0
    stored = sizes["out_channels"] * sizes["in_channels"] // sizes["groups"]
    positions = sizes["batch"]
    for side, axis in (("height", "h"), ("width", "w")):
        taps, step, pad = (
            sizes.get(f"{dim}_{axis}", sizes[dim]) for dim in ("kernel", "stride", "padding")
        )
        stored *= taps
        positions *= (sizes[side] + 2 * pad - taps) // step + 1
    return positions * stored, stored


@final
class MeasuredWork(Strict, frozen=True):
    """Amounts of work of one network in one precision."""

    network: str
    precision: str
    amounts: list[float]


@final
class MeasuredBoard(Strict, frozen=True):
    """Times for a unit of each amount, ms."""

    name: str
    unit_ms: list[float]


@final
class NpuLatencies(Strict, frozen=True, dict=True):
    """What measured latencies came to.

    Attributes:
        runtimes: runtime -> precision -> log of its latency over that of the first runtime.
        level_weights: of one and the log of a board's operations, for the log of its level.
    """

    format: int
    card: PhysicsCard
    networks: list[MeasuredWork]
    boards: list[MeasuredBoard]
    runtimes: dict[str, dict[str, float]]
    level_weights: list[float]

    def without(self, names: Sequence[str]) -> NpuLatencies:
        """Without some boards."""
        boards = [board for board in self.boards if board.name not in names]
        return msgspec.structs.replace(self, boards=boards)

    def work(self, network: NpuNetwork, precision: str) -> F64 | None:
        """Its amounts; None = not measured in that precision."""
        for latencies in self.networks:
            if latencies.network == network.name and latencies.precision == precision:
                return np.array(latencies.amounts)
        return None

    @cached_property
    def alike(self) -> Smoothed:
        """Latencies of networks that were not measured, from those that were."""
        named = {part.name: part for parts in networks().values() for part in parts}
        pairs = [(named[entry.network], entry) for entry in self.networks if entry.network in named]
        features = [network.features(entry.precision) for network, entry in pairs]
        units = np.array([board.unit_ms for board in self.boards])
        times = np.array([entry.amounts for _, entry in pairs]) @ units.T
        logs = np.log(np.maximum(times, 1e-3 * times.max(axis=1, keepdims=True)))
        noise = np.array([RECALLED if network.recalled else NOISE for network, _ in pairs])
        return Smoothed.fitted(np.array(features), logs, noise)

    def on_boards(self, network: NpuNetwork, precision: str) -> tuple[F64, float]:
        """Latencies on all measured boards by the first runtime, (boards,), ms, and the standard
        deviation of the log of what is measured; :data:`SEEN` of a network that was measured.
        """
        amounts = self.work(network, precision)
        if amounts is None:
            logs, log_sd = self.alike.at(network.features(precision))
            apart = UNSEEN_RECALLED if network.recalled else UNSEEN_NETWORK
            return np.exp(logs), math.hypot(apart, log_sd)
        times: F64 = np.array([board.unit_ms for board in self.boards]) @ amounts
        return np.maximum(times, 1e-3 * float(times.max())), SEEN

    def _near(self, board: Board, reach: float) -> F64:
        """How near published figures are to a board's, (boards,), 1 = the same."""
        boards = [board_named(entry.name) for entry in self.boards]
        apart = [
            math.log(candidate.tops / board.tops) ** 2
            + math.log(candidate.memory_gb_per_s / board.memory_gb_per_s) ** 2
            for candidate in boards
        ]
        near: F64 = np.exp(-np.array(apart) / (2.0 * reach**2))
        return near

    def shares(self, board: Board) -> F64:
        """How much each measured board counts for one that was not, (boards,); they sum to 1."""
        near = self._near(board, NEAR) + 1e-9
        shares: F64 = near / near.sum()
        return shares

    def levels(self) -> F64:
        """Mean log of the latencies of all measured networks on each board, (boards,)."""
        units = np.array([board.unit_ms for board in self.boards])
        times = np.array([entry.amounts for entry in self.networks]) @ units.T
        floor = np.maximum(times, 1e-3 * times.max(axis=1, keepdims=True))
        levels: F64 = np.log(floor).mean(axis=0)
        return levels

    def level(self, board: Board) -> float:
        """Of a board that was not measured: by its operations a second, and as far as boards with
        the same figures are off that.
        """
        tops = [board_named(entry.name).tops for entry in self.boards]
        constant, slope = self.level_weights
        off = self.levels() - (constant + slope * np.log(tops))
        near = self._near(board, TWIN)
        shift = float(near @ off) / (float(near.sum()) + TWIN_PULL)
        return constant + slope * math.log(board.tops) + shift


@final
@dataclass(frozen=True)
class NpuLatency:
    """One inference.

    Attributes:
        log_sd: standard deviation of log(measured / ms).
        seen_network, seen_board: whether they are among the measured ones.
    """

    ms: float
    log_sd: float
    seen_network: bool
    seen_board: bool


def latency_on(
    board: Board,
    network: NpuNetwork,
    precision: str,
    runtime: str,
    known: NpuLatencies | None = None,
    blend: Blended | None = None,
) -> NpuLatency:
    """The latency of a network on a board.

    Args:
        known: None = what is shipped.
        blend: what samples of the board came to; None = none.
    """
    table = known or npu_latencies()
    times, spread = table.on_boards(network, precision)
    seen = spread == SEEN
    names = [entry.name for entry in table.boards]
    adds = math.exp(table.runtimes[runtime][precision])
    if blend is not None:
        weights = np.array([blend.devices.get(name, 0.0) for name in names])
        if blend.slope:
            placed = table.alike.placed(network.features(precision))
            adds *= math.exp(float(placed @ np.array(blend.slope)))
        return NpuLatency(float(times @ weights) * adds, spread, seen, seen_board=True)
    if board.name in names:
        return NpuLatency(float(times[names.index(board.name)]) * adds, spread, seen, True)
    shape = float((np.log(times) - table.levels()) @ table.shares(board))
    log_sd = math.hypot(spread, UNSEEN_BOARD)
    return NpuLatency(math.exp(shape + table.level(board)) * adds, log_sd, seen, False)


@cache
def npu_latencies() -> NpuLatencies:
    """The shipped file."""
    content = (FOLDER / "npu.json").read_bytes()
    return decode_json(content, NpuLatencies, file=str(FOLDER / "npu.json"), page=PAGE)


@cache
def _boards() -> NameIndex[Board]:
    path = FOLDER / "boards.toml"
    file = decode(read_toml(path), _BoardFile, file=str(path), page=PAGE)
    return NameIndex(
        "board",
        {
            board.name: (board, [*board.aliases, *map(_plain, [board.name, *board.aliases])])
            for board in file.board
        },
        listed=f"{path.name} of the catalog",
    )


_BESIDES = re.compile(
    r"\b(qualcomm|samsung|snapdragon|dragonwing|mobile|platform|for galaxy|family|proxy|qrd"
    r"|crd|adp|evk|mtp|hdk|hexagon|npu|htp|dsp|v(6[5-9]|[78]\d))\b|(?<=\s)\+(?=\s)|[()®™]",
    re.IGNORECASE,
)
"""Words beside a chip's name: its maker, the kind of board, and the NPU behind it."""


def _plain(name: str) -> str:
    """The name that is left of a board or chip.

    >>> _plain("Snapdragon X Elite (CRD)"), _plain("Snapdragon 8 Gen 3 Hexagon v75 NPU")
    ('X Elite', '8 Gen 3')
    """
    return " ".join(_BESIDES.sub(" ", name).split()) or name


def board_names() -> tuple[str, ...]:
    """Names of all boards."""
    return _boards().names


def is_board(name: object) -> bool:
    """Whether a name is a board's, its chip's, or its chip's with the NPU.

    >>> is_board("galaxy s24"), is_board("Snapdragon 8 Gen 3 Hexagon"), is_board("h100")
    (True, True, False)
    """
    return isinstance(name, str) and _plain(name) in _boards()


def board_named(name: str) -> Board:
    """A board; raises where there is none."""
    return _boards().get(_plain(name))


@cache
def networks() -> Mapping[str, tuple[NpuNetwork, ...]]:
    """Normalised name of a model -> its components."""
    text = (FOLDER / "networks.csv").read_text(encoding="utf-8")
    table: dict[str, list[NpuNetwork]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        network = NpuNetwork(
            row["model"],
            row["component"],
            float(row["gmacs"]),
            float(row["mparams"]),
            row["kind"],
            float(row["mvalues"]),
            float(row["operators"]),
            row["source"] == "recalled",
        )
        table.setdefault(normalise(network.model), []).append(network)
    return {name: tuple(parts) for name, parts in table.items()}


def networks_named(name: str) -> tuple[NpuNetwork, ...]:
    """The components that a name stands for: of a model all ("trocr"), or one of them
    ("trocr/TrOCREncoder", or its own name where no other model has it).

    A package's name before a colon does not count ("torchvision:resnet50").

    Raises:
        SilicastError: no such network.
    """
    text = name.rpartition(":")[2]
    model, slash, component = text.partition("/")
    index = networks()
    if slash and normalise(model) in index:
        parts = [
            part
            for part in index[normalise(model)]
            if normalise(part.component) == normalise(component)
        ]
        if parts:
            return tuple(parts)
    if normalise(text) in index:
        return index[normalise(text)]
    every = [part for parts in index.values() for part in parts]
    alone = [part for part in every if normalise(part.component) == normalise(text)]
    if len(alone) == 1:
        return tuple(alone)
    raise unknown_name(
        f"no network {name[:60]!r} whose work is known",
        "model",
        _near(text, sorted({part.model for part in every})),
    )


def _near(name: str, known: Sequence[str]) -> str:
    """A hint that offers the nearest names, else a few of all."""
    hint = near(name, known)
    if not hint.startswith("known"):
        return hint
    return f"{len(known)} are known, for instance {', '.join(known[::20])}"


def runtime_named(name: str) -> str:
    """One of :data:`RUNTIMES`; raises for another name."""
    runtime = _RUNTIME.get(normalise(name))
    if runtime is None:
        raise unsupported(
            f"no runtime {name[:40]!r} of networks on NPUs",
            "engine",
            f"one of {', '.join(RUNTIMES)}",
        )
    return runtime


def precision_named(name: str) -> str:
    """One of :data:`PRECISIONS`; "" = float; raises for another name."""
    precision = _PRECISION.get(normalise(name))
    if precision is None:
        raise SilicastError(
            f"expected one of {', '.join(PRECISIONS)}, found {name[:40]!r}",
            field="precision.recipe",
        )
    return precision


Sample = tuple[NpuNetwork, str, str, float]
"""A network, its precision and runtime, and its latency in ms."""


def fit_board(known: NpuLatencies, board: Board, samples: Sequence[Sample]) -> Blended:
    """Weights of measured boards, ms a ms, by samples of another board.

    The weights are pulled toward boards whose published figures are like its own, and what they
    leave is a slope over the features of networks.
    """
    times = np.array(
        [known.on_boards(network, precision)[0] for network, precision, _, _ in samples]
    )
    adds = np.array([known.runtimes[runtime][precision] for _, precision, runtime, _ in samples])
    usual: F64 = np.exp(known.levels())
    ms = np.array([sample[3] for sample in samples])
    truth = ms / np.exp(adds)
    none = np.zeros((len(samples), 0))
    fit = fit_blend(times / usual, none, known.shares(board), truth, BOARD_PULLS)
    slope: list[float] = []
    if len(samples) >= FEWEST:
        placed = np.array([known.alike.placed(sample[0].features(sample[1])) for sample in samples])
        errors = np.log(truth / (times @ (fit.devices / usual)))
        slope = [float(f"{value:.4g}") for value in _slope(placed, errors)]
    devices = zip([entry.name for entry in known.boards], fit.devices / usual, strict=True)
    names = [f"{network.name} {precision} {runtime}" for network, precision, runtime, _ in samples]
    return Blended(
        space=SPACE,
        devices={name: float(f"{weight:.6g}") for name, weight in devices if weight > 0.0},
        kernels={},
        slope=slope,
        log_sd=round(max(fit.log_sd, SEEN), 4),
        rows=len(samples),
        least_ms=float(ms.min()),
        most_ms=float(ms.max()),
        strays=[names[stray] for stray in fit.strays],
    )


def worth_measuring(count: int) -> list[str]:
    """Names of networks to measure on a new board, from quick to slow."""
    latencies = npu_latencies()
    measured = [entry for entry in latencies.networks if entry.precision == PRECISIONS[0]]
    units = np.array([board.unit_ms for board in latencies.boards])
    times = np.array([entry.amounts for entry in measured]) @ units.T
    times = np.maximum(times, 1e-3 * times.max(axis=1, keepdims=True)) / np.exp(latencies.levels())
    usual = np.median(times, axis=1)
    low, high = np.quantile(usual, CENTRAL)
    inside = np.flatnonzero((usual >= low) & (usual <= high))
    groups = [board_named(board.name).npu for board in latencies.boards]
    best = best_samples(times, np.zeros((len(times), 0)), groups, inside, count)
    return [measured[position].network for position in best[np.argsort(usual[best])]]


def _slope(features: F64, logs: F64) -> F64:
    """Weights of features, (n, f), for logs, (n,), by Huber's loss, pulled to zero."""
    held, trust = SLOPE_PULL * np.eye(features.shape[1]), np.ones(len(logs))
    slope: F64 = np.zeros(features.shape[1])
    for _ in range(ROUNDS):
        weighted = features * trust[:, None]
        slope = np.asarray(np.linalg.solve(features.T @ weighted + held, weighted.T @ logs))
        trust = 1.0 / np.maximum(1.0, np.abs(logs - features @ slope) / (HUBER * SLOPE_NOISE))
    return slope
