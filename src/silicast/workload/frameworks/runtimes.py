"""Runtimes of whole networks: which neighbouring operators they run as one, and what falls back.

A runtime is one file of ``catalog/runtimes``: of each target (CPU, GPU, NPU) pairs that are joined,
the layout of images, and operators that it leaves to the CPU. ``silicast runtime detect`` writes
such pairs from times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Literal, final

from silicast.core.catalog import catalog_files
from silicast.core.decode import Strict, read_table
from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import near, normalise
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import IN_KERNEL, Op
from silicast.workload.graphs.outputs import result_bytes
from silicast.workload.operators.table import movement

FOLDER, PAGE = "runtimes", "runtimes.md"
Target = Literal["cpu", "gpu", "npu"]
TARGETS: Mapping[str, Target] = {"vector_cpu": "cpu", "simt": "gpu"}
"""Execution model of a device -> target; of all others "npu"."""
SCALAR_BYTES = 8
FOLDED = ("batch_norm", "add_channels", "mul_channels", "mul_scalar")
"""Operators that become part of weights: the kernel in front stays what the next pair begins with.
"""
_NAMES = {
    "Add": "add", "Mul": "mul", "BatchNormalization": "batch_norm", "MatMul": "matmul",
    "Gemm": "matmul", "MaxPool": "max_pool", "AveragePool": "average_pool", "Relu": "relu",
    "LeakyRelu": "leaky_relu", "Clip": "clip", "Sigmoid": "sigmoid", "Tanh": "tanh", "Elu": "elu",
    "HardSigmoid": "hard_sigmoid", "HardSwish": "hard_swish", "Softmax": "softmax",
    "PRelu": "prelu", "Gelu": "gelu", "Resize": "resize", "ConvTranspose": "conv_transpose",
    "LSTM": "lstm", "GRU": "gru", "RNN": "rnn", "Gather": "gather", "TopK": "topk",
    "NonMaxSuppression": "nms", "LayerNormalization": "layer_norm", "Pad": "pad",
}  # fmt: skip
"""Operator of ONNX -> its name in rules; TFLite files are read as ONNX operators."""


@final
class Fusion(Strict, frozen=True):
    """Operators ``then`` run in the kernel of one of ``first`` before them."""

    first: list[str]
    then: list[str]


@final
class RuntimeRules(Strict, frozen=True):
    """What a runtime does on one target.

    Attributes:
        fusion: pairs that are joined; a joined operator is the first of the next pair, unless it
            becomes part of weights.
        layout: of images between operators ("NHWC"); "" = as in the file.
        falls_back: operators that run on the CPU instead.
        operator_us: host time between two operators; 0 = the network is one call. None = nobody
            measured it.
        undecided: pairs of which a detection could not tell.
        source: where the rules are from.
    """

    fusion: list[Fusion] = []
    layout: str = ""
    falls_back: list[str] = []
    operator_us: float | None = None
    undecided: list[tuple[str, str]] = []
    source: str = ""

    def joins(self, first: str, second: str) -> bool:
        """Whether ``second`` runs in the kernel of ``first``."""
        return any(first in rule.first and second in rule.then for rule in self.fusion)


@final
class NetworkRuntime(Strict, frozen=True):
    """A runtime; targets that it has not are None."""

    name: str
    version: str = ""
    aliases: list[str] = []
    cpu: RuntimeRules | None = None
    gpu: RuntimeRules | None = None
    npu: RuntimeRules | None = None

    def rules(self, target: Target) -> RuntimeRules:
        """The rules of a target.

        Raises:
            SilicastError: the runtime does not run there.
        """
        rules: RuntimeRules | None = getattr(self, target)
        if rules is None:
            able = [name for name in ("cpu", "gpu", "npu") if getattr(self, name) is not None]
            raise SilicastError(
                f"{self.name} does not run on a {target.upper()}",
                field="engine.options.runtime",
                hint=f"it runs on {' and '.join(name.upper() for name in able)}",
            )
        return rules


@cache
def runtimes() -> Mapping[str, NetworkRuntime]:
    """All runtimes by name."""
    tables = [read_table(path, NetworkRuntime, PAGE) for path in catalog_files(FOLDER, ".toml")]
    return {table.name: table for table in tables}


def runtime_named(name: str) -> NetworkRuntime:
    """A runtime by name or alias.

    Raises:
        SilicastError: there is none.

    >>> runtime_named("ORT").name
    'onnxruntime'
    """
    for runtime in runtimes().values():
        if normalise(name) in map(normalise, (runtime.name, *runtime.aliases)):
            return runtime
    raise unknown_name(
        f"unknown runtime {name!r:.40}", "engine.options.runtime", near(name, list(runtimes()))
    )


def operator_of(node: Node) -> str:
    """The name of a node's operator in rules; "" = rules do not speak of it."""
    kind = node.source.rpartition(".")[2]
    if kind == "Conv":
        sizes = dict(node.op.dims)
        groups = sizes.get("groups", 1)
        if groups != 1 and groups == sizes.get("in_channels"):
            return "depthwise_conv"
        return "pointwise_conv" if sizes.get("kernel") == 1 else "conv"
    name = _NAMES.get(kind, "")
    whole = 0 < node.output_bytes <= node.parameter_bytes
    if name in ("add", "mul") and node.parameter_bytes and not whole:
        return f"{name}_scalar" if node.parameter_bytes <= SCALAR_BYTES else f"{name}_channels"
    return name


def joined_graph(
    graph: Graph, rules: RuntimeRules, kept_bytes: float = 0.0
) -> tuple[Graph, dict[str, str]]:
    """``graph`` with joined operators as part of the kernels before them.

    An operator is joined to the last of the kernels that it waits for, where it alone reads its
    result and the program does not hand that out. What it reads besides goes with it: weights of
    :data:`FOLDED` operators become others, a second summand is read. That is a node behind the
    kernel, with the flag ``in_kernel``, which launches nothing.

    Args:
        kept_bytes: of the device's caches: behind a result that fills them nothing is left there.

    Returns:
        The graph, and each node that was joined with the kernel that does its work.
    """
    results = frozenset(graph.results)
    blocks = []
    into: dict[str, str] = {}
    for block in graph.blocks:
        merged = _JoinedBlock(block, rules, results, kept_bytes)
        into |= merged.into
        blocks.append(replace(block, nodes=tuple(merged.nodes.values())))
    handed = dict.fromkeys(into.get(name, name) for name in graph.results)
    return replace(graph, blocks=tuple(blocks), results=tuple(handed)), into


@final
class _JoinedBlock:
    """One block as it runs.

    Attributes:
        nodes: that remain, by name; into: joined node -> the kernel that does its work.
        ends: kernel -> the operator that the next pair begins with.
    """

    def __init__(
        self, block: Block, rules: RuntimeRules, results: frozenset[str], kept_bytes: float
    ) -> None:
        self.rules, self.kept_bytes = rules, kept_bytes
        self.nodes: dict[str, Node] = {}
        self.into: dict[str, str] = {}
        self.ends: dict[str, str] = {}
        readers = Counter(name for node in block.nodes for name in node.inputs)
        self.inner = {name for name, count in readers.items() if count == 1} - results
        for node in block.nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        sole = {self.into.get(name, name) for name in node.inputs if name in self.inner}
        inputs = tuple(dict.fromkeys(self.into.get(name, name) for name in node.inputs))
        operator = operator_of(node)
        before = next((name for name in reversed(self.nodes) if name in inputs), "")
        joins = operator and before in sole and self.rules.joins(self.ends[before], operator)
        if not joins:
            self.nodes[node.name] = replace(node, inputs=inputs)
            self.ends[node.name] = operator
            return
        host, others = self.nodes[before], tuple(name for name in inputs if name != before)
        self.nodes[before] = replace(
            host,
            inputs=tuple(dict.fromkeys((*host.inputs, *others))),
            output_bytes=node.output_bytes or host.output_bytes,
            parameter_bytes=host.parameter_bytes + node.parameter_bytes,
        )
        self.into[node.name] = before
        if operator in FOLDED:
            return
        self.ends[before] = operator
        further = self._further(host, node)
        if further is not None:
            self.nodes[node.name] = replace(
                node, op=further, inputs=inputs, output_bytes=0, parameter_bytes=0
            )

    def _further(self, host: Node, node: Node) -> Op | None:
        """What a kernel moves more with an operator joined to it; None = nothing."""
        made = host.output_bytes or node.output_bytes or result_bytes(host.op)
        read_bytes = _read_bytes(node.op) - made
        written_bytes = max(node.output_bytes - made, 0)
        if read_bytes <= 0 and not written_bytes:
            return None
        op = movement(max(read_bytes, 0), written_bytes, flag=IN_KERNEL)
        cache = "cold" if made >= self.kept_bytes else ""
        return replace(op, variant=replace(op.variant, cache=cache))


def _read_bytes(op: Op) -> int:
    """Operands of a pointwise operator."""
    sizes = {name: size for name, size in op.dims if isinstance(size, int)}
    if op.family == "elementwise":
        return sizes["elements"] * sizes.get("inputs", 1) * int(BITS[op.variant.dtype]) // 8
    return sizes.get("read_bytes", 0)


def fallen_back(graph: Graph, rules: RuntimeRules) -> list[str]:
    """Operators of a graph that the target leaves to the CPU, each once."""
    kinds = dict.fromkeys(operator_of(node) for _, node in graph.nodes())
    return [kind for kind in kinds if kind in rules.falls_back]
