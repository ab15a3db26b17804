"""Tapes: every operation gives the bits of the formula that it was traced from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from silicast.core import tape, xp
from silicast.core.numerics import exp_fixed, folded, log_fixed
from silicast.core.symbols import Symbol
from silicast.core.tape import BLOCK, OPERATIONS
from silicast.core.tracing import FormulaGraph
from silicast.core.xp import UntraceableError
from tests.sampling import number

ROWS = (1, 3, BLOCK, BLOCK + 5)
CANDIDATES = np.array([[0.5], [3.0], [7.25]])
TABLE = np.array([4, 4, 9, 9, 11])

Formula = Callable[[Any, Any, Any], Any]
FORMULAS: dict[str, Formula] = {
    "arithmetic": lambda a, b, x: (a + b) * x - x / (b + 1.0) + (-x) * 3.0 - 2.0,
    "constants": lambda a, b, x: 5.0 - (x * 2.0) / 7.0 + 3.0 / (x + 1.0) - 4.0,
    "largest": lambda a, b, x: (
        xp.maximum(x * 0.1, 4.0) + xp.maximum(x, xp.minimum(a * 0.5, 40.0)) + xp.minimum(b, a)
    ),
    "conditions": lambda a, b, x: xp.where((x > 30.0) & (a >= b), x, xp.where(a == b, a, -x)),
    "other conditions": lambda a, b, x: xp.where((x > 3.0) | (x <= 1.0) | (a != b), 1.0 * a, x),
    "limits": lambda a, b, x: xp.where(
        (x >= 7.0) & (x < 50.0), 2.0 * x, xp.where(x <= 5.0, x, 0.5)
    ),
    "two columns": lambda a, b, x: xp.where(
        (x > b) & (x * 2.0 != a * 1.0), x, xp.where(x >= a, 3.0, x)
    ),
    "opposite": lambda a, b, x: xp.where(xp.logical_not(x < 20.0), 2.0, x),
    "rounding": lambda a, b, x: xp.ceil(x) + 3.0 * xp.floor(x * 1.5) + 7.0 * xp.rint(x * 0.5),
    "roots": lambda a, b, x: xp.sqrt(x) + xp.sqrt(xp.float64(a)),
    "whole numbers": lambda a, b, x: (a * b - 3 * a + 17) // (b + 2) + (a & 7) + a % 5,
    "floors": lambda a, b, x: -(-a // 8) + (-a) // (b + 1),
    "whole comparisons": lambda a, b, x: xp.where((a > b) & (a >= 7), xp.maximum(a, b), b),
    "whole conditions": lambda a, b, x: xp.where(a == b, xp.minimum(a, 9), a + 1),
    "cut off": lambda a, b, x: xp.int64(x * 0.7) + a,
    "exponential": lambda a, b, x: exp_fixed(x * -0.01),
    "logarithm": lambda a, b, x: logarithm(x + 0.001) + logarithm(x * 1e-9 + 1e-12),
    "left over": lambda a, b, x: x % 32.0 - (x - 45.0) % 0.5 + a % 7,
    "nothing": lambda a, b, x: x * 1.0 + 0.0 + xp.full_like(x, 0.0),
    "looked up": lambda a, b, x: xp.lookup(TABLE, xp.minimum(a, 4)) + x,
}


def logarithm(x: Any) -> Any:
    """Of arrays alone, or of symbols."""
    return log_fixed(np.array([x]))[0] if isinstance(x, float) else log_fixed(x)


def columns(rows: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(rows)
    return rng.integers(0, 100, rows), rng.integers(0, 50, rows), rng.uniform(0.0, 90.0, rows)


def traced(formula: Formula) -> tuple[Any, list[str]]:
    graph = FormulaGraph()
    symbols = [graph.input(whole=whole) for whole in (True, True, False)]
    return graph.tape([formula(*symbols)])


def run(written: Any, kind: str, given: tuple[Any, ...]) -> Any:
    """Of all rows together."""
    values = np.stack([np.asarray(x).view(np.int64) for x in given])
    results = np.empty((1, len(given[0])))
    written.rows(values, results, len(given[0]))
    return results[0].view(np.int64) if kind == "whole" else results[0]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_tape_has_the_bits_of_its_formula(name: str) -> None:
    formula = FORMULAS[name]
    written, (kind,) = traced(formula)
    for rows in ROWS:
        given = columns(rows)
        assert np.array_equal(run(written, kind, given), formula(*given)), rows
    a, b, x = columns(1)
    row = [a.item(), b.item(), x.item()]
    (one,) = written.single(row)
    expected = np.asarray(formula(*row))
    assert np.asarray(one).view(np.int64) == expected.astype(
        np.int64 if kind == "whole" else np.float64
    ).view(np.int64)


def best(x: Any) -> Any:
    """Of candidates: the time of the quickest, which it is, and its half."""
    times = CANDIDATES * x + 20.0 / CANDIDATES
    if isinstance(x, np.ndarray):
        place = times.argmin(axis=0)
        return times.min(axis=0) + place + (times * 0.5)[place, np.arange(len(place))]
    place = xp.int64(times.argmin())
    return times.min() + place + xp.picked(times * 0.5, place)


def test_candidates_are_columns() -> None:
    graph = FormulaGraph()
    written, (kind,) = graph.tape([best(graph.input(whole=False))])
    x = np.linspace(0.01, 9.0, BLOCK + 3)
    assert np.array_equal(run(written, kind, (x,)), best(x))
    assert [written.single([value])[0] for value in x[:9].tolist()] == best(x[:9]).tolist()


TILES = np.array([[[0.5]], [[3.0]], [[7.25]]])


def of_tables(x: Any) -> Any:
    """Of candidates for each of two products, indexed, stacked and put together as arrays are."""
    one = isinstance(x, float) or hasattr(x, "graph")
    both = xp.stack(x, x * 0.5 + 1.0)
    table = (CANDIDATES + both[:1])[[2, 0, 1], None, :] * np.ceil(both / TILES)
    near = table.min(axis=0) / table
    place = np.argmin(table, axis=0) * both.size + np.arange(both.size).reshape(both.shape)
    chosen = folded(table.take(place)) + folded(near * near)[1]
    ends = np.concatenate((both, np.zeros_like(both[:1]), both[1:] * 3.0))
    total = chosen + folded(np.stack((ends[0], ends[3], ends.max(axis=0))))
    total = (
        total + np.argmax(ends, axis=0) + np.broadcast_to(ends[:1], (2, 1 if one else len(x)))[1]
    )
    return total.item() if one else total


def test_tables_are_columns() -> None:
    graph = FormulaGraph()
    written, (kind,) = graph.tape([of_tables(graph.input(whole=False))])
    x = np.linspace(0.01, 9.0, BLOCK + 3)
    assert np.array_equal(run(written, kind, (x,)), of_tables(x))
    assert [written.single([value])[0] for value in x[:9].tolist()] == of_tables(x[:9]).tolist()
    assert [of_tables(value) for value in x[:9].tolist()] == of_tables(x[:9]).tolist()


def test_a_decision_cannot_be_traced() -> None:
    with pytest.raises(UntraceableError):
        traced(lambda a, b, x: x if a > b else b)
    with pytest.raises(UntraceableError):
        traced(lambda a, b, x: float(x))
    with pytest.raises(UntraceableError):
        traced(lambda a, b, x: np.array([a, b]).sum())
    with pytest.raises(UntraceableError):
        traced(lambda a, b, x: x % 3.0)
    with pytest.raises(UntraceableError):
        traced(lambda a, b, x: x**b)


def test_every_operation_is_tested() -> None:
    graphs = []
    for formula in FORMULAS.values():
        graph = FormulaGraph()
        formula(*(graph.input(whole=whole) for whole in (True, True, False)))
        graphs.append(graph)
    graph = FormulaGraph()
    best(graph.input(whole=False))
    of_tables(graph.input(whole=False))
    names = {node[0] for x in (*graphs, graph) for node in x.nodes}
    assert set(OPERATIONS) - names == {"trees"}  # of kernels' corrections, tests of their times


def test_random_formulas_have_the_same_bits() -> None:
    for seed in range(number(400)):
        rng = np.random.default_rng(seed)
        steps = [(rng.integers(8), rng.integers(9), rng.integers(9)) for _ in range(30)]

        def formula(a: Any, b: Any, x: Any, steps: Any = steps) -> Any:
            known = [a, b, x, a + 1.0, b * 0.25, xp.sqrt(x), 3.0, x * x, a * b]
            for code, one, other in steps:
                p, q = known[one], known[other]
                known.append(
                    (
                        lambda p=p, q=q: p + q,
                        lambda p=p, q=q: p - q,
                        lambda p=p, q=q: p * 0.5 + q,
                        lambda p=p, q=q: p / (xp.maximum(q, 1.0)),
                        lambda p=p, q=q: xp.maximum(p, q),
                        lambda p=p, q=q: xp.minimum(p, q),
                        lambda p=p, q=q: xp.where(p > q, p, q * 0.5),
                        lambda p=p, q=q: xp.floor(p * 0.125) + q,
                    )[code]()
                )
                known.pop(int(one))
            return known[-1] + 0.0 * x

        written, (kind,) = traced(formula)
        given = columns(40)
        assert np.array_equal(run(written, kind, given), formula(*given)), seed


def test_what_runs_is_the_file_or_the_core() -> None:
    assert isinstance(Symbol, type)
    assert tape.__name__ == "silicast.core.tape"


@pytest.mark.parametrize(
    ("formula", "row"),
    [
        (lambda a, b, x: a * b, (1 << 40, 1 << 40, 0.0)),
        (lambda a, b, x: a * b - a * b, (1 << 40, 1 << 40, 0.0)),
        (lambda a, b, x: a + b, (1 << 61, 1 << 61, 0.0)),
        (lambda a, b, x: a * 1.0, (1 << 70, 1, 0.0)),
        (lambda a, b, x: xp.int64(x), (1, 1, 1e30)),
        (lambda a, b, x: a // b, (7, 0, 0.0)),
    ],
    ids=["product", "difference of products", "sum", "input", "cut off", "quotient"],
)
def test_a_row_that_64_bits_do_not_hold_is_refused(formula: Formula, row: Any) -> None:
    """Python's whole numbers have no end; a tape that went on would say something else."""
    written, _ = traced(formula)
    with np.errstate(all="ignore"), pytest.raises(ArithmeticError):
        written.single(list(row))
    assert written.single([3, 2, 1.0]) == [np.asarray(formula(3, 2, 1.0)).view(np.float64).item()]


def test_quotients_by_zero_of_many_rows_are_numpys() -> None:
    written, (kind,) = traced(lambda a, b, x: a // b)
    given = np.array([7, 7]), np.array([0, 2]), np.zeros(2)
    with np.errstate(divide="ignore"):
        assert np.array_equal(run(written, kind, given), given[0] // given[1])


def test_candidates_of_two_kinds_share_a_number_of_a_row() -> None:
    """As parts of a module do whose formats have different tiles: each is as long as its own."""
    graph = FormulaGraph()
    x = graph.input(whole=False)
    few, many = np.array([[0.5], [3.0]]), np.array([[4.0], [0.25], [9.0]])
    written, _ = graph.tape([(x * few + x / few).min(axis=0), (x * many + x / many).min(axis=0)])
    assert written.single([6.0]) == [15.0, 25.5]
