"""The Chakra schema (mlcommons/chakra, ``et_def.proto``, version 0.0.4).

    GlobalMetadata   version 1, attr 2
    Node             id 1, name 2, type 3, ctrl_deps 4, data_deps 5, start_time_micros 6,
                     duration_micros 7, inputs 8, outputs 9, attr 10
    IOInfo           values 1, shapes 2, types 3
    AttributeProto   name 1, doc_string 2, and one value: fields 3 to 32 (:data:`KINDS`)

Field numbers and kinds are facts of the public schema; no code of it is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

VERSION = "0.0.4"
METADATA, MEM_LOAD, MEM_STORE, COMP, SEND, RECV, COLL = 1, 2, 3, 4, 5, 6, 7
TYPES = {
    METADATA: "METADATA_NODE",
    MEM_LOAD: "MEM_LOAD_NODE",
    MEM_STORE: "MEM_STORE_NODE",
    COMP: "COMP_NODE",
    SEND: "COMM_SEND_NODE",
    RECV: "COMM_RECV_NODE",
    COLL: "COMM_COLL_NODE",
}
"""Number of a type of node -> its name in the schema."""
COLLECTIVES = {
    0: "all_reduce", 1: "reduce", 2: "all_gather", 3: "gather", 4: "scatter", 5: "broadcast",
    6: "all_to_all", 7: "reduce_scatter", 8: "reduce_scatter", 9: "barrier",
}  # fmt: skip
"""``comm_type`` -> the collective's name."""
KINDS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
    "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
"""Kinds of attributes in the order of their fields: a value's is 3 + 2 i, a list's 4 + 2 i."""

Scalar = float | int | bool | str | bytes
Value = Scalar | tuple[Scalar, ...]


@final
@dataclass(frozen=True, slots=True)
class Attribute:
    """A named value of a node or of a trace.

    Attributes:
        kind: of :data:`KINDS`, with "_list" behind it where ``value`` is a tuple.
    """

    name: str
    kind: str
    value: Value
    doc: str = ""


@final
@dataclass(frozen=True, slots=True)
class Operands:
    """Values, shapes and types of what goes into a node, or comes out, as text."""

    values: str = ""
    shapes: str = ""
    types: str = ""


@final
@dataclass(frozen=True, slots=True)
class ChakraNode:
    """One operation of a rank.

    Attributes:
        type: a key of :data:`TYPES`, or a number that the schema does not have.
        ctrl_deps, data_deps: ids of the nodes that it waits for.
        start_us, duration_us: as recorded; 0 = not stated.
    """

    id: int
    name: str
    type: int
    ctrl_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    attributes: tuple[Attribute, ...] = ()
    inputs: Operands = Operands()
    outputs: Operands = Operands()

    @property
    def parents(self) -> tuple[int, ...]:
        """Ids of all nodes that it waits for, each once."""
        return tuple(dict.fromkeys(self.ctrl_deps + self.data_deps))

    def attribute(self, name: str) -> Value | None:
        """The value of an attribute, the last one of that name; None where there is none."""
        return next((a.value for a in reversed(self.attributes) if a.name == name), None)

    def number(self, name: str, default: int = 0) -> int:
        """A whole number of an attribute; ``default`` where there is none."""
        value = self.attribute(name)
        if isinstance(value, float) and math.isfinite(value):
            return int(value)
        return int(value) if isinstance(value, int) else default

    @property
    def on_cpu(self) -> bool:
        """Whether the host runs it."""
        return bool(self.attribute("is_cpu_op"))


@final
@dataclass(frozen=True, slots=True)
class RankTrace:
    """What one rank runs.

    Attributes:
        metadata: attributes of the trace.
        skipped: fields that the schema does not have.
    """

    nodes: tuple[ChakraNode, ...]
    version: str = VERSION
    metadata: tuple[Attribute, ...] = ()
    skipped: int = 0
