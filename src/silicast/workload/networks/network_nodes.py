"""Nodes of a network's blocks, one after the other, and the fields of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Block, Node
from silicast.workload.graphs.op import Dim, Op, Variant


@final
class NetworkNodes:
    """Nodes of one block; each waits for the one before.

    Args:
        dtype: of weights and of what lies between kernels.

    >>> nodes = NetworkNodes("bf16")
    >>> nodes.linear("up", 8, 32, 16)
    >>> nodes.block("mlp", 3).nodes[0].parameter_bytes
    1024
    """

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._bytes = int(BITS[dtype]) // 8
        self._nodes: list[Node] = []

    def linear(self, name: str, rows: int, outputs: int, inputs: int) -> None:
        """A product of ``rows`` rows with a weight of ``outputs`` x ``inputs``."""
        weights = outputs * inputs * self._bytes
        self._add(name, "gemm", rows * outputs, weights=weights, m=rows, n=outputs, k=inputs)

    def attention(
        self, name: str, batch: int, heads: int, width: int, queries: int, keys: int
    ) -> None:
        """Attention of ``queries`` on ``keys`` tokens, both of every image, without a mask."""
        self._add(
            name,
            "attention_prefill",
            batch * queries * heads * width,
            kv_dtype=self._dtype,
            flags=(("causal", False),),
            batch=batch,
            q_len=queries,
            kv_len=keys,
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=width,
        )

    def spread_attention(
        self, name: str, batch: int, heads: int, width: int, tokens: int, gpus: int = 1
    ) -> None:
        """Attention of all ``tokens`` on each other, which ``gpus`` share out: each brings its own
        queries, keys and values of all heads, and has all tokens of its share of the heads
        (Ulysses).
        """
        size = batch * -(-tokens // gpus) * heads * width * self._bytes
        if gpus > 1:
            for operand in ("queries", "keys", "values"):
                self._add(f"{name}_{operand}", "all_to_all", 1, bytes=size, gpus=gpus)
        self.attention(name, batch, heads // gpus, width, tokens, tokens)
        if gpus > 1:
            self._add(f"{name}_results", "all_to_all", 1, bytes=size, gpus=gpus)

    def all_reduce(self, name: str, elements: int, gpus: int) -> None:
        """The sum over ``gpus`` of an array of so many elements; nothing on one device."""
        if gpus > 1:
            self._add(name, "all_reduce", 0, bytes=elements * self._bytes, gpus=gpus)

    def all_gather(self, name: str, elements: int, gpus: int) -> None:
        """The parts of ``gpus``, together so many elements, on each; nothing on one device."""
        if gpus > 1:
            self._add(name, "all_gather", elements, bytes=elements * self._bytes, gpus=gpus)

    def norm(self, name: str, rows: int, width: int, family: str = "layernorm") -> None:
        """A norm of ``rows`` rows."""
        self._add(name, family, rows * width, tokens=rows, hidden=width, residual=0)

    def group_norm(self, name: str, elements: int) -> None:
        """Sums of an array of so many elements, then its scale and shift."""
        self._add(
            f"{name}_sums",
            "data_movement",
            1,
            read_bytes=elements * self._bytes,
            written_bytes=1,
            operations=3 * elements,
        )
        self.pointwise(name, "add", elements)

    def pointwise(self, name: str, kind: str, elements: int, inputs: int = 1) -> None:
        """``inputs`` arrays of so many elements to one."""
        flags = ((kind, True),)
        self._add(name, "elementwise", elements, flags=flags, elements=elements, inputs=inputs)

    def modulated(self, name: str, elements: int, *, residual: bool, fused: bool) -> None:
        """Times a factor a column, and plus a shift or, with ``residual``, the residual; a
        framework that does not compile runs two kernels.
        """
        if not fused:
            self.pointwise(f"{name}_mul", "mul", elements)
        self.pointwise(name, "add", elements, 2 if residual else 1)

    def rope(self, name: str, rows: int, heads: int, width: int) -> None:
        """Rotation of queries and keys."""
        self._add(
            name,
            "rope",
            2 * rows * heads * width,
            tokens=rows,
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=width,
        )

    def convolution(
        self,
        name: str,
        batch: int,
        channels: tuple[int, int],
        side: tuple[int, int],
        kernel: int = 3,
        stride: int = 1,
    ) -> None:
        """A convolution of ``channels`` (in, out) over images of ``side`` (height, width)."""
        (inner, outer), (height, width) = channels, side
        self._add(
            name,
            "conv2d",
            batch * outer * (height // stride) * (width // stride),
            weights=inner * outer * kernel * kernel * self._bytes,
            batch=batch,
            in_channels=inner,
            out_channels=outer,
            height=height,
            width=width,
            kernel=kernel,
            stride=stride,
            padding=kernel // 2,
        )

    def block(self, name: str, times: int = 1) -> Block:
        """What was made so far, as a block; the next nodes are of another."""
        nodes, self._nodes = tuple(self._nodes), []
        return Block(name, nodes, times=times)

    def _add(
        self,
        name: str,
        family: str,
        produced: int,
        *,
        weights: int = 0,
        kv_dtype: str = "",
        flags: tuple[tuple[str, bool], ...] = (),
        **sizes: Dim,
    ) -> None:
        variant = Variant(self._dtype, kv_dtype, flags=flags)
        before = (self._nodes[-1].name,) if self._nodes else ()
        self._nodes.append(
            Node(
                name,
                Op.make(family, variant, **sizes),
                before,
                output_bytes=produced * self._bytes,
                parameter_bytes=weights,
            )
        )


MOST = 1 << 20


def class_in(config: Mapping[str, Any]) -> str:
    """The network's class; "" = none is stated.

    >>> class_in({"architectures": ["WhisperModel"]}), class_in({"_class_name": "X"}), class_in({})
    ('WhisperModel', 'X', '')
    """
    classes = config.get("architectures") or [config.get("_class_name", "")]
    return str(classes[0]) if isinstance(classes, list) and classes else ""


def size_in(config: Mapping[str, Any], name: str, usual: int, field: str) -> int:
    """A size of the network; what it is usually where it is left out.

    Args:
        field: of the configuration, for errors.

    Raises:
        SilicastError: no whole number from 1 to 2^20.

    >>> size_in({"num_layers": 30}, "num_layers", 40, "model")
    30
    """
    value = config.get(name, usual)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MOST:
        raise SilicastError(
            f"expected a whole number from 1 to {MOST}, found {value!r:.40}",
            field=f"{field}.{name}",
        )
    return value
