"""Sizes as expressions: what is read, what is found from samples, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="PyTorch is not installed (make test-full)")

from silicast.core.errors import SilicastError
from silicast.workload.front_ends.open_graph import OpenProgram, open_graph
from silicast.workload.graphs.expressions import size_of, symbols_of
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op
from silicast.workload.graphs.op_graph import (
    GraphFile,
    graph_of_file,
    read_op_graph,
    write_graph_file,
)
from silicast.workload.graphs.open_sizes import Expressions, SampledGraph, merged, require_open

DRAWN = ((4, 224), (5, 245), (6, 231), (7, 259), (9, 238), (11, 301))
POINTS = [{"batch": batch, "image": image} for batch, image in DRAWN]
ATOMS = ["batch", "image", "(image - 1)//2 + 1", "(image - 1)//4 + 1"]
FINDS = Expressions(POINTS, ATOMS)


@given(st.integers(-99, 99), st.integers(-99, 99), st.integers(1, 9), st.integers(0, 4))
def test_an_expression_means_what_python_means(a: int, b: int, c: int, power: int) -> None:
    text = f"a*{c} + (b - 1)//{c} - -a**{power}"
    assert size_of(text, {"a": a, "b": b}) == a * c + (b - 1) // c - -(a**power)
    assert symbols_of(text) == {"a", "b"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "batch.real", "f(batch)", "batch if 1 else 2", "1.5*batch", "batch/2",
        "lambda: 1", "", "batch batch", "[batch]", "True", "'a'", "batch" + "+1" * 2000,
        "a := 3", "batch @ 2",
    ],
)  # fmt: skip
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(SilicastError, match="is no size"):
        size_of(text, {"batch": 2})


@pytest.mark.parametrize(
    ("text", "why"),
    [("2**99", "a power of 99"), ("4//(batch - 2)", "divides by 0"),
     ("((9**8)**8)**8", "too large")],
)  # fmt: skip
def test_what_has_no_value_is_refused(text: str, why: str) -> None:
    with pytest.raises(SilicastError, match=why):
        size_of(text, {"batch": 2})


@given(
    st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 1), st.integers(0, 2),
    st.sampled_from(ATOMS[1:]),
)  # fmt: skip
def test_what_was_put_in_is_found(factor: int, rest: int, b: int, power: int, atom: str) -> None:
    def value(sizes: Mapping[str, int]) -> int:
        return int(factor * sizes["batch"] ** b * size_of(atom, sizes) ** power + rest)

    if b == power == 0:
        return  # what does not change needs no expression
    values = [value(sizes) for sizes in POINTS]
    result = FINDS.expression(values)
    assert result is not None
    beyond = {"batch": 512, "image": 1023}
    assert size_of(result, beyond) == value(beyond)


def test_sums_of_two_products_are_found() -> None:
    """What a product reads and writes: weights, activations of one size and of another."""

    def value(sizes: Mapping[str, int]) -> int:
        batch, side = sizes["batch"], (sizes["image"] - 1) // 2 + 1
        return 147 * batch * sizes["image"] ** 2 + 256 * batch * side**2 + 37632

    result = FINDS.expression([value(sizes) for sizes in POINTS])
    assert result is not None
    beyond = {"batch": 3, "image": 97}
    assert size_of(result, beyond) == value(beyond)


def test_what_follows_nothing_is_not_made_up() -> None:
    assert FINDS.expression([3, 1, 4, 1, 5, 9]) is None


def test_numbers_that_follow_nothing_are_named() -> None:
    samples = [
        SampledGraph(sizes, {"nodes": [{"name": "odd", "dims": {"m": m}}]})
        for sizes, m in zip(POINTS, (3, 1, 4, 1, 5, 9), strict=True)
    ]
    with pytest.raises(SilicastError, match="odd: dims: m follows no expression"):
        merged(samples, ATOMS)


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "batch = 0 is outside the program's range, 8 to 64"), (72, "batch = 72 is outside"),
     (20, "batch = 20: the program takes 8, 16, 24, ... (steps of 8)")],
)  # fmt: skip
def test_a_size_outside_its_range_is_refused(value: int, said: str) -> None:
    with pytest.raises(SilicastError) as caught:
        require_open("batch", value, 8, 64, 8)
    assert said in caught.value.message
    assert caught.value.field == "symbols.batch"


class Toy(OpenProgram):
    """One product; sizes that it takes are multiples of ``step`` up to ``most``."""

    def __init__(self, step: int = 1, most: int | None = None, branch: int = 0) -> None:
        self.name, self.atoms, self.branch = "toy", ["(n - 1)//2 + 1"], branch
        self.stated = {"n": (2, most)}
        self._step, self._most = step, most

    def graph(self, sizes: Mapping[str, int]) -> Graph:
        n = sizes["n"]
        if n % self._step or (self._most is not None and n > self._most):
            raise SilicastError(f"no {n} here", file="toy.py:7")
        half = (n - 1) // 2 + 1
        nodes: tuple[Node, ...] = (
            Node("a", Op.make("gemm", m=3 * n, n=half * half, k=5), (), 0, 4 * n * half),
        )
        if self.branch and n < self.branch:
            nodes += (Node("b", Op.make("softmax", rows=n, cols=2), ("a",)),)
        return Graph("toy", (Block("forward", nodes),), parameter_bytes=40)

    def traced(self, sizes: Mapping[str, int]) -> Graph:
        return self.graph(sizes)


def at(file: GraphFile, **sizes: int) -> Graph:
    return graph_of_file(file, "toy", sizes)


class TestOpenPrograms:
    def test_any_size_of_one_file_is_the_program_at_that_size(self, tmp_path: Path) -> None:
        toy = Toy()
        path = tmp_path / "toy.json"
        write_graph_file(open_graph(toy, {"n": 64}), path)
        assert read_op_graph(path) == toy.graph({"n": 64})
        for n in (1, 2, 3, 17, 999):
            assert read_op_graph(path, {"n": n}) == toy.graph({"n": n})

    def test_steps_and_ends_are_found_and_refused(self) -> None:
        file = open_graph(Toy(step=8, most=64), {"n": 64})
        assert file.open_sizes["n"].words == "8, 16, ... 64 (64)"
        for n in (0, 4, 72):
            with pytest.raises(SilicastError, match="n = "):
                at(file, n=n)

    def test_what_is_stated_but_not_needed_is_not_a_limit(self) -> None:
        class Careful(Toy):
            def __init__(self) -> None:
                super().__init__()
                self.stated = {"n": (2, 100)}

        assert open_graph(Careful(), {"n": 64}).open_sizes["n"].most is None

    def test_where_a_program_runs_other_operations_is_noted(self) -> None:
        size = open_graph(Toy(branch=7), {"n": 64}).open_sizes["n"]
        assert (size.least, size.exact_least) == (1, 7)
        assert "from 7" in size.remark("n", 6)
        assert size.remark("n", 7) == ""

    def test_a_size_that_is_fixed_names_the_line(self) -> None:
        with pytest.raises(SilicastError, match="n is fixed at 61; at 62: no 62 here") as caught:
            open_graph(Toy(step=61, most=61), {"n": 61})
        assert caught.value.file == "toy.py:7"

    def test_a_trace_that_does_not_hold_elsewhere_is_refused(self) -> None:
        class Lying(Toy):
            def traced(self, sizes: Mapping[str, int]) -> Any:
                return self.graph({"n": sizes["n"] + 1})

        with pytest.raises(SilicastError, match="are others than its one trace says, at a"):
            open_graph(Lying(), {"n": 64})
