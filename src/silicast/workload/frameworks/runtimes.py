"""Runtimes of whole networks: which neighbouring operators they run as one, and what falls back.

A runtime is one file of ``catalog/runtimes``: of each target (CPU, GPU, NPU) pairs that are joined,
the layout of images, and operators that it leaves to the CPU. ``silicast runtime detect`` writes
such pairs from times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Literal, final

from silicast.core.catalog import catalog_files
from silicast.core.decode import Strict, read_table
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import near, normalise
from silicast.workload.graphs.graph import Block, Graph, Node

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
        undecided: pairs of which a detection could not tell.
        source: where the rules are from.
    """

    fusion: list[Fusion] = []
    layout: str = ""
    falls_back: list[str] = []
    undecided: list[tuple[str, str]] = []
    source: str = ""

    def joins(self, first: str, second: str) -> bool:
        """Whether ``second`` runs in the kernel of ``first``."""
        return any(first in each.first and second in each.then for each in self.fusion)


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
    items = [read_table(path, NetworkRuntime, PAGE) for path in catalog_files(FOLDER, ".toml")]
    return {each.name: each for each in items}


def runtime_named(name: str) -> NetworkRuntime:
    """A runtime by name or alias.

    Raises:
        SilicastError: there is none.

    >>> runtime_named("ORT").name
    'onnxruntime'
    """
    for each in runtimes().values():
        if normalise(name) in map(normalise, (each.name, *each.aliases)):
            return each
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
    if name in ("add", "mul") and node.parameter_bytes:
        return f"{name}_scalar" if node.parameter_bytes <= SCALAR_BYTES else f"{name}_channels"
    return name


def joined_graph(graph: Graph, rules: RuntimeRules) -> tuple[Graph, list[str]]:
    """``graph`` with joined operators as part of the kernels before them.

    An operator is joined to the last of the kernels that it waits for, where it alone reads its
    result. What it reads besides (weights, a second summand) goes with it.

    Returns:
        The graph, and names of the nodes that were joined.
    """
    joined: list[str] = []
    blocks = tuple(_joined_block(block, rules, joined) for block in graph.blocks)
    return replace(graph, blocks=blocks), joined


def _joined_block(block: Block, rules: RuntimeRules, joined: list[str]) -> Block:
    readers: dict[str, int] = {}
    for node in block.nodes:
        for name in node.inputs:
            readers[name] = readers.get(name, 0) + 1
    into: dict[str, str] = {}
    ends: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    for node in block.nodes:
        sole = {into.get(name, name) for name in node.inputs if readers[name] == 1}
        inputs = tuple(dict.fromkeys(into.get(name, name) for name in node.inputs))
        operator = operator_of(node)
        before = next((name for name in reversed(nodes) if name in inputs), "")
        if before not in sole or not operator or not rules.joins(ends[before], operator):
            nodes[node.name] = replace(node, inputs=inputs)
            ends[node.name] = operator
            continue
        host, others = nodes[before], tuple(name for name in inputs if name != before)
        nodes[before] = replace(
            host,
            inputs=tuple(dict.fromkeys((*host.inputs, *others))),
            output_bytes=node.output_bytes or host.output_bytes,
            parameter_bytes=host.parameter_bytes + node.parameter_bytes,
        )
        into[node.name] = before
        if operator not in FOLDED:
            ends[before] = operator
        joined.append(node.name)
    return replace(block, nodes=tuple(nodes.values()))


def fallen_back(graph: Graph, rules: RuntimeRules) -> list[str]:
    """Operators of a graph that the target leaves to the CPU, each once."""
    kinds = dict.fromkeys(operator_of(node) for _, node in graph.nodes())
    return [kind for kind in kinds if kind in rules.falls_back]
