"""Arithmetic in Timeloop's attributes: what is evaluated, and what is no expression."""

from __future__ import annotations

import pytest

from silicast.accelerator.timeloop.expressions import NoArithmeticError, evaluated, resolved
from silicast.core.errors import SilicastError


def value_of(name: str) -> float:
    raise NoArithmeticError(name)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-2 ** 2", -4.0),
        ("2 ** -1", 0.5),
        ("3 - -+-2", 1.0),
        ("min((64), 8)", 8.0),
        (" + ".join(["(1)"] * 80), 80.0),
        ("(" * 50 + "1" + ")" * 50, 1.0),
        ("-" * 499 + "1", -1.0),
    ],
)
def test_values_of_expressions(text: str, value: float) -> None:
    assert evaluated(text, value_of) == value


@pytest.mark.parametrize("text", ["(64, 8)", "64, 8", "64 8", "(64", "(" * 51 + "1" + ")" * 51])
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(NoArithmeticError):
        evaluated(text, value_of)
    assert resolved({"depth": text}, {}, "", "") == {"depth": text}


@pytest.mark.parametrize("brackets", [0, 50])
def test_a_long_chain_of_variables(brackets: int) -> None:
    chain = {f"a{i}": "(" * brackets + f"a{i + 1} + 1" + ")" * brackets for i in range(200)}
    result = resolved({**chain, "a200": 1}, {}, "", "")
    assert (result["a0"], result["a199"], next(iter(result))) == (201, 2, "a0")


def test_attributes_that_need_each_other_are_named() -> None:
    with pytest.raises(SilicastError, match="b needs c needs b") as caught:
        resolved({"a": "b + 1", "b": "c", "c": "2 * b"}, {}, "nodes", "f.yaml")
    assert caught.value.field == "nodes.b"
    assert resolved({"b": "2 * b", "a": "b"}, {"b": 3}, "", "") == {"b": 6, "a": 6}
