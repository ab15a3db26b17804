"""Bytes of Chakra traces."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.formats.chakra import codec
from silicast.formats.chakra.codec import WireError, decode_trace, encode_trace
from silicast.formats.chakra.schema import KINDS, Attribute, ChakraNode, Operands, RankTrace, Scalar

U64, TEXTS = st.integers(0, (1 << 64) - 1), st.text(max_size=8)


def _values(kind: str) -> st.SearchStrategy[Scalar]:
    if kind == "bool":
        return st.booleans()
    if kind == "string":
        return TEXTS
    if kind == "bytes":
        return st.binary(max_size=8)
    if kind in ("double", "float"):
        return st.floats(width=64 if kind == "double" else 32, allow_nan=False)
    bits = 64 if kind.endswith("64") else 32
    if kind.startswith(("u", "fixed")):
        return st.integers(0, (1 << bits) - 1)
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


@st.composite
def _attributes(draw: st.DrawFn) -> Attribute:
    kind = draw(st.sampled_from(KINDS))
    name, doc = draw(TEXTS), draw(TEXTS)
    if draw(st.booleans()):
        listed = st.lists(_values(kind), max_size=4).map(tuple)
        return Attribute(name, f"{kind}_list", draw(listed), doc)
    return Attribute(name, kind, draw(_values(kind)), doc)


_NODES = st.builds(
    ChakraNode, id=U64, name=TEXTS, type=st.integers(-(1 << 31), (1 << 31) - 1),
    ctrl_deps=st.lists(U64, max_size=4).map(tuple), data_deps=st.lists(U64, max_size=4).map(tuple),
    start_us=U64, duration_us=U64, attributes=st.lists(_attributes(), max_size=4).map(tuple),
    inputs=st.builds(Operands, TEXTS, TEXTS, TEXTS), outputs=st.builds(Operands, values=TEXTS),
)  # fmt: skip
_TRACES = st.builds(
    RankTrace, st.lists(_NODES, max_size=4).map(tuple), version=TEXTS,
    metadata=st.lists(_attributes(), max_size=2).map(tuple),
)  # fmt: skip


def _said(content: bytes) -> str | None:
    """Why bytes are no trace; None where they are one."""
    try:
        decode_trace(content)
    except WireError as error:
        return str(error)
    return None


@given(_TRACES)
def test_what_is_written_is_read_again(trace: RankTrace) -> None:
    written = encode_trace(trace)
    assert decode_trace(written) == trace
    assert encode_trace(decode_trace(written)) == written


@given(_TRACES, st.data())
def test_damaged_bytes_are_refused_or_read(trace: RankTrace, data: st.DataObject) -> None:
    """One byte changed, or the end cut off: an error with its place, or another trace."""
    written = bytearray(encode_trace(trace))
    if not written:
        return
    position = data.draw(st.integers(0, len(written) - 1))
    written[position] = data.draw(st.integers(0, 255))
    for content in (bytes(written), bytes(written[:position])):
        assert _said(content) is None or "message" in str(_said(content))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_read(content: bytes) -> None:
    assert _said(content) != ""


def test_known_bytes() -> None:
    """The bytes of two messages, spelled out by the rules of the wire format."""
    node = bytes([
        0x08, 0x05,  # id = 5
        0x12, 0x01, 0x61,  # name = "a"
        0x18, 0x07,  # type = COMM_COLL_NODE
        0x2A, 0x02, 0x01, 0x02,  # data_deps = [1, 2], packed
        0x52, 0x0D, 0x0A, 0x09, *b"comm_size", 0x48, 0x40,  # attr: int64_val = 64
    ])  # fmt: skip
    head = bytes([0x0A, 0x05, *b"0.0.4"])
    trace = decode_trace(bytes([len(head), *head, len(node), *node]))
    assert trace.version == "0.0.4"
    expected = ChakraNode(
        5, "a", 7, data_deps=(1, 2), attributes=(Attribute("comm_size", "int64", 64),)
    )
    assert trace.nodes == (expected,)


def test_numbers_of_a_list_may_stand_alone() -> None:
    """Writers of older versions do not pack them."""
    node = bytes([0x28, 0x01, 0x28, 0x02, 0x20, 0x03])
    (result,) = decode_trace(bytes([0, len(node), *node])).nodes
    assert (result.data_deps, result.ctrl_deps) == ((1, 2), (3,))


def test_fields_that_the_schema_lacks_are_counted() -> None:
    node = bytes([0x08, 0x01, 0x60, 0x01])  # field 12
    assert decode_trace(bytes([0, len(node), *node])).skipped == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no message"),
        (bytes([5, 1]), "message 1: at byte 0 has 5 bytes, but 1 are left"),
        (bytes([0, 1, 0x0B]), "message 2: is no Node"),
        (bytes([0, 2, 0x12, 0x09]), "message 2: is no Node"),
        (bytes([0xFF] * 12), "message 1: its length at byte 0 has no end"),
        (bytes([0, 0xFF, 0xFF, 0x7F]) + bytes(1 << 21), "message 2: has 2097151 bytes, at most"),
    ],
)
def test_an_error_says_where(content: bytes, said: str) -> None:
    with pytest.raises(WireError, match=said):
        decode_trace(content)


def test_a_file_of_tiny_messages_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MOST_VALUES", 10_000)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="more than 10000"):
            decode_trace(bytes(1_000_000))
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
