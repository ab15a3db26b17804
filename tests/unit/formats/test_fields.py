"""Fields of a table: what is read, what is refused and how it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.fields import Fields, not_used

TABLE: dict[str, Any] = {
    "layers": 32.0, "width": "64", "on": "yes", "rate": -1.5, "huge": float("inf"), "null": None,
    "names": ["a", "b"], "rope": {"theta": 1e4, "kind": "yarn"}, "parts": [{"size": 0}],
    "kept-back": 3, "truth": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda f: f.integer("absent", "layers"), 32),
        (lambda f: f.count("null", default=7), 7),
        (lambda f: f.number("rope.theta"), 10000.0),
        (lambda f: f.number("rate", least=-2.0), -1.5),
        (lambda f: f.flag("truth"), True),
        (lambda f: f.choice("absent", {"x": 1}, "x"), 1),
        (lambda f: f.words("names"), ("a", "b")),
        (lambda f: f.entries("names", 1, longer=True), ["a", "b"]),
        (lambda f: f.table("absent").integer("x", default=3), 3),
        (lambda f: f.tables("parts")[0].integer("size"), 0),
        (lambda f: f.spelled(TABLE.keys() | {"kept_back"}).integer("kept_back"), 3),
    ],
)
def test_what_is_read(read: Callable[[Fields], Any], value: Any) -> None:
    assert read(Fields(TABLE)) == value


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda f: f.integer("width"), "top.width: expected a whole number, found '64'"),
        (lambda f: f.integer("truth"), "top.truth: expected a whole number, found True"),
        (lambda f: f.integer("huge"), "top.huge: expected a whole number, found inf"),
        (lambda f: f.count("absent", "other"), "top.absent: missing"),
        (lambda f: f.count("rate"), "top.rate: expected a whole number from 1, found -1.5"),
        (lambda f: f.number("rate"), "top.rate: expected 0 or more, found -1.5"),
        (lambda f: f.number("huge"), "top.huge: expected 0 or more, found inf"),
        (lambda f: f.number("layers", most=8.0), "top.layers: expected 0 or more, at most 8"),
        (lambda f: f.flag("on"), "top.on: expected true or false, found 'yes'"),
        (lambda f: f.text("layers"), "top.layers: expected text, found 32.0"),
        (lambda f: f.choice("on", {"x": 1}, "x"), "top.on: expected one of x, found 'yes'"),
        (lambda f: f.integers("names"), "top.names: expected a list of whole numbers"),
        (lambda f: f.known("names", ("a",)), "top.names: no 'b' (there are a)"),
        (
            lambda f: f.entries("names", 3),
            "top.names: expected a list with one entry for each of 3",
        ),
        (lambda f: f.table("names"), "top.names: expected a table, found a list"),
        (lambda f: f.table("absent", needed=True), "top.absent: expected a table, found nothing"),
        (lambda f: f.tables("names"), "top.names[0]: expected a table, found 'a'"),
        (lambda f: f.tables("parts")[0].count("size"), "top.parts[0].size: expected a whole"),
        (lambda f: f.get("layers.size"), "top.layers: expected a table, found 32.0"),
        (lambda f: f.spelled(("layers",)), "top.width: is not read here"),
    ],
)
def test_what_is_wrong_is_named(read: Callable[[Fields], Any], said: str) -> None:
    with pytest.raises(SilicastError) as caught:
        read(Fields(TABLE, "top", "x.json"))
    assert str(caught.value).startswith(f"x.json: {said}")


def test_text_counts_where_a_tool_writes_no_other() -> None:
    fields = Fields({"n": "8", "x": "2.5", "on": "", "off": "no", "n2": 3}, loose=True)
    assert (fields.count("n"), fields.number("x"), fields.text("n2")) == (8, 2.5, "3")
    assert (fields.flag("on"), fields.flag("off")) == (True, False)


def test_what_nobody_read_is_listed_with_inner_tables() -> None:
    table = {"a": 1, "b": {"c": 2, "d": "x"}, "e": {"f": ""}, "g": [{"h": 3, "i": 4}]}
    fields = Fields(table)
    fields.get("a")
    fields.table("b").get("c")
    fields.tables("g")[0].get("h")
    assert not_used([fields]) == ["not used: b.d = x, e.f, g[0].i = 4"]
    assert not_used([Fields({})]) == []
