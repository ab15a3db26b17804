"""Nodes of Chakra traces, written by hand."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.formats.chakra.files import ChakraTrace
from silicast.formats.chakra.schema import COLL, COMP, RECV, SEND, Attribute, ChakraNode, RankTrace


def compute(
    number: int, *after: int, operations: int = 10**12, size: int = 10**8, us: int = 0
) -> ChakraNode:
    """An operation of the device."""
    given = {"num_ops": operations, "tensor_size": size}
    attributes = tuple(Attribute(name, "int64", value) for name, value in given.items() if value)
    return ChakraNode(
        number, f"compute {number}", COMP, data_deps=after, duration_us=us,
        attributes=(Attribute("is_cpu_op", "bool", False), *attributes),
    )  # fmt: skip


def collective(
    number: int, *after: int, kind: int = 0, size: int = 1 << 20, group: str = ""
) -> ChakraNode:
    """A collective; an all-reduce unless stated."""
    attributes = [Attribute("comm_type", "int64", kind), Attribute("comm_size", "int64", size)]
    if group:
        attributes.append(Attribute("pg_name", "string", group))
    return ChakraNode(number, f"call {number}", COLL, data_deps=after, attributes=tuple(attributes))


def message(
    number: int, source: int, target: int, *after: int, sends: bool, size: int = 1 << 20
) -> ChakraNode:
    """A send or a receive."""
    given = {"comm_src": source, "comm_dst": target, "comm_tag": 0, "comm_size": size}
    attributes = tuple(Attribute(name, "int32", value) for name, value in given.items())
    name = f"{'send' if sends else 'receive'} {number}"
    return ChakraNode(number, name, SEND if sends else RECV, data_deps=after, attributes=attributes)


def trace(
    *ranks: list[ChakraNode], groups: Mapping[str, tuple[int, ...]] | None = None
) -> ChakraTrace:
    """What ranks 0, 1, ... run."""
    table = {rank: RankTrace(tuple(nodes)) for rank, nodes in enumerate(ranks)}
    return ChakraTrace("program", table, groups or {})
