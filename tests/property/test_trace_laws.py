"""Laws of answers to Chakra traces, whatever the traces hold."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.formats.chakra.files import ChakraTrace, write_chakra
from silicast.formats.chakra.schema import Attribute, ChakraNode, RankTrace
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import decode
from tests.sampling import examples

SIZES = st.one_of(
    st.integers(-1, 10), st.integers(0, 1 << 40), st.integers(-(1 << 63), (1 << 63) - 1)
)
NAMES = {
    "num_ops": SIZES, "tensor_size": SIZES, "comm_size": SIZES, "comm_type": st.integers(-1, 11),
    "comm_src": st.integers(-1, 3), "comm_dst": st.integers(-1, 3), "comm_tag": st.integers(0, 1),
}  # fmt: skip


@st.composite
def _nodes(draw: st.DrawFn) -> tuple[ChakraNode, ...]:
    items = []
    for number in range(draw(st.integers(0, 5))):
        attributes = [
            Attribute(name, "int64", draw(values))
            for name, values in NAMES.items()
            if draw(st.booleans())
        ]
        if draw(st.booleans()):
            attributes.append(Attribute("pg_name", "string", draw(st.sampled_from("ab"))))
        if draw(st.integers(0, 4)) == 0:
            attributes.append(Attribute("is_cpu_op", "bool", True))
        deps = draw(st.lists(st.integers(0, max(number - 1, 0)), max_size=2, unique=True))
        items.append(
            ChakraNode(
                number, "n", draw(st.integers(0, 9)), data_deps=tuple(deps) if number else (),
                duration_us=draw(st.one_of(st.just(0), st.integers(0, (1 << 64) - 1))),
                attributes=tuple(attributes),
            )
        )  # fmt: skip
    return tuple(items)


def _answered(trace: ChakraTrace) -> Answer | None:
    with tempfile.TemporaryDirectory() as folder:
        write_chakra(trace, Path(folder))
        scenario = {"task": "graph", "device": "h100", "workload": {"graph": folder}}
        try:
            return answerer_for("graph").answer(decode(scenario))
        except SilicastError as error:
            refused = error
    assert refused.kind != "internal", refused
    assert refused.field
    return None


@examples(60)
@given(st.lists(_nodes(), min_size=1, max_size=3), st.booleans())
def test_a_trace_is_answered_or_refused(
    ranks: list[tuple[ChakraNode, ...]], in_groups: bool
) -> None:
    groups = {"a": (0, 1), "b": (0, 2, 9)} if in_groups else {}
    answered = _answered(
        ChakraTrace("t", {n: RankTrace(nodes) for n, nodes in enumerate(ranks)}, groups)
    )
    if answered is None:
        return
    belief = answered.metrics["e2e_ms"]
    assert 0.0 <= answered.bound["e2e_ms"] <= belief.p05 <= belief.estimate <= belief.p95
    total = sum(round(part["exposed_ms"] * 1e9) for part in answered.why["parts"])
    assert total == round(answered.why["exposed_ms"] * 1e9) or total > 1 << 52


@examples(30)
@given(_nodes())
def test_alike_ranks_that_do_not_talk_take_as_long_as_one(nodes: tuple[ChakraNode, ...]) -> None:
    alone = tuple(node for node in nodes if node.type not in (5, 6, 7))
    one = _answered(ChakraTrace("t", {0: RankTrace(alone)}))
    many = _answered(ChakraTrace("t", {n: RankTrace(alone) for n in range(4)}))
    assert (one is None) == (many is None)
    if one is not None and many is not None:
        assert many.metrics == one.metrics
