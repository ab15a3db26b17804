"""Networks of published servers of static graphs, an operation a node; for "serving-static".

Written for one operator at a time, as the models' source code calls them (NVIDIA
DeepLearningExamples of 2021): norms and activations in their elementary operations, attention as
products and a softmax. A compiler's graph is what
:func:`~silicast.workload.frameworks.compiled.fused_graph`
makes of that.
"""

from __future__ import annotations

from typing import final

from silicast.composition.engines.host_copies import HOST_COPY
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.operators.table import movement

_BYTES = 2
GELU = ("mul", "div", "pow", "add", "mul")
"""x / 2 x (1 + erf(x / sqrt 2)); the error function is as dear as a power."""


@final
class _Writer:
    """Nodes in order, in fp16."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, op: Op, *inputs: str) -> str:
        """A node behind ``inputs``, the last one if left out; its name."""
        before = inputs or tuple(node.name for node in self.nodes[-1:])
        name = f"{op.family}_{len(self.nodes)}"
        self.nodes.append(Node(name, op, before))
        return name

    def gemm(self, m: int, n: int, k: int, *inputs: str, batch: int = 1) -> str:
        sizes = {"batch": batch} if batch > 1 else {}
        return self.add(Op.make("gemm", Variant("fp16"), m=m, n=n, k=k, **sizes), *inputs)

    def each(self, kind: str, elements: int, *inputs: str) -> str:
        """One pass over a tensor, or over as many as it has inputs."""
        variant = Variant("fp16", flags=((kind, True),))
        read = max(len(inputs), 1)
        return self.add(Op.make("elementwise", variant, elements=elements, inputs=read), *inputs)

    def mean(self, rows: int, cols: int, *inputs: str) -> str:
        """Means of rows."""
        return self.add(movement(rows * cols * _BYTES, rows * _BYTES, rows * cols), *inputs)

    def graph(self, name: str) -> Graph:
        return Graph(name, (Block("network", tuple(self.nodes)),))


def bert(batch: int, tokens: int, layers: int, hidden: int, heads: int, *, file: bool) -> Graph:
    """BERT for questions, in fp16, an operator at a time.

    Args:
        tokens: of each sequence.
        file: as an ONNX file has it: biases and transposed operands are operators of their own
            (a framework's product adds the bias, and reads one sequence's heads in place).

    >>> len(bert(8, 384, 1, 1024, 16, file=False).blocks[0].nodes)
    46
    """
    w, rows, inner = _Writer(), batch * tokens, 4 * hidden
    size, scores = rows * hidden, batch * heads * tokens * tokens

    def linear(n: int, k: int, *inputs: str) -> str:
        made = w.gemm(rows, n, k, *inputs)
        return w.each("add", rows * n) if file else made

    def turned(name: str) -> str:
        return w.each("copy", size, name) if file or batch > 1 else name

    def norm(x: str) -> str:
        centred = w.each("add", size, x, w.mean(rows, hidden, x))
        square = w.each("pow", size, centred)
        mean = w.mean(rows, hidden, square)
        w.each("div", size, centred, mean)
        w.each("mul", size)
        return w.each("add", size)

    lookup = movement(3 * size * _BYTES, size * _BYTES, 2 * size)
    x = norm(w.add(lookup))
    for _ in range(layers):
        q, k, v = (turned(linear(hidden, hidden, x)) for _ in range(3))
        w.gemm(tokens, tokens, hidden // heads, q, k, batch=batch * heads)
        w.each("div", scores)
        w.each("add", scores)
        soft = w.add(Op.make("softmax", Variant("fp16"), rows=batch * heads * tokens, cols=tokens))
        w.gemm(tokens, hidden // heads, tokens, soft, v, batch=batch * heads)
        turned_back = w.each("copy", size)
        x = norm(w.each("add", size, linear(hidden, hidden, turned_back), x))
        w.gemm(rows, inner, hidden, x)
        up = w.each("add", rows * inner)
        for kind in GELU[:-1]:
            made = w.each(kind, rows * inner)
        up = w.each(GELU[-1], rows * inner, up, made)
        x = norm(w.each("add", size, linear(hidden, inner, up), x))
    w.gemm(rows, 2, hidden)
    return w.graph(f"bert x {batch}")


def resnet50(batch: int, *, copied_bytes: int = 0) -> Graph:
    """ResNet-50 as a compiler leaves it: convolutions with all that follows them, channels last.

    He et al. 2016, the stride in the 3 x 3 convolutions.

    Args:
        copied_bytes: of the images, over the device's link to its host; 0 = they are there.

    >>> len(resnet50(1).blocks[0].nodes)
    55
    """
    w = _Writer()

    def conv(c_in: int, c_out: int, size: int, kernel: int, stride: int = 1) -> None:
        pad = kernel // 2
        op = Op.make(
            "conv2d", Variant("fp16", library="cudnn"), batch=batch, in_channels=c_in,
            out_channels=c_out, height=size, width=size, kernel_h=kernel, kernel_w=kernel,
            stride_h=stride, stride_w=stride, padding_h=pad, padding_w=pad,
        )  # fmt: skip
        w.add(op)

    if copied_bytes:
        w.add(Op.make(HOST_COPY, bytes=copied_bytes))
    conv(3, 64, 224, 7, 2)
    w.each("copy", batch * 64 * 112 * 112)
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
    w.gemm(batch, 1000, channels)
    return w.graph(f"resnet50 x {batch}")
