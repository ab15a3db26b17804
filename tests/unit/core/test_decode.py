"""What a file is refused for: the field, what was expected, the nearest name, the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from silicast.core.decode import Strict, decode, decode_json, read_table, read_toml
from silicast.core.errors import SilicastError

PAGE = "docs/reference/devices.md"
TAIL = f"{PAGE} describes every field"


class Inner(Strict, frozen=True):
    scope: Literal["die", "core"]
    sizes: tuple[int, Annotated[float, Meta(gt=0)]] = (1, 1.0)


class Cat(Strict, frozen=True, tag_field="kind", tag="cat"):
    lives: int = 9


class Dog(Strict, frozen=True, tag_field="kind", tag="dog"):
    tricks: list[str] = []


class Whole(Strict, frozen=True):
    name: Annotated[str, Meta(max_length=8)]
    factor: float | None = None
    memory: dict[str, Inner] = {}
    shares: dict[Literal["read", "write"], float] = {}
    pets: list[Cat | Dog] = []
    link: str | Inner = ""


WRONG: list[tuple[dict[str, Any], str, str, str]] = [
    ({"nam": "x"}, "nam", "unknown field 'nam'", f"did you mean name? {TAIL}"),
    ({}, "name", "is missing", f"text is required; {TAIL}"),
    ({"name": 3}, "name", "expected text, found 3", TAIL),
    ({"name": "x" * 9}, "name", "expected text of length <= 8, found 'xxxxxxxxx'", TAIL),
    ({"name": "x", "factor": "2"}, "factor", "expected a number, found '2'", TAIL),
    (
        {"name": "x", "memory": {"l1": {"scope": "die"}, "l2": {"scope": "dei"}}},
        "memory.l2.scope", "expected one of die, core, found 'dei'", f"did you mean die? {TAIL}",
    ),
    (
        {"name": "x", "memory": {"l1": {"scope": "die"}, "l2": {}}},
        "memory.l2.scope", "is missing", f"one of die, core; {TAIL}",
    ),
    (
        {"name": "x", "memory": {"l2": {"scope": "die", "sizes": [1, 0]}}},
        "memory.l2.sizes[1]", "expected a number > 0.0, found 0", TAIL,
    ),
    (
        {"name": "x", "shares": {"reed": 1.0}},
        "shares.reed", "expected one of read, write, found 'reed'", f"did you mean read? {TAIL}",
    ),
    (
        {"name": "x", "pets": [{"kind": "dog", "trick": []}]},
        "pets[0].trick", "unknown field 'trick'", f"did you mean tricks? {TAIL}",
    ),
    (
        {"name": "x", "pets": [{"kind": "cow"}]},
        "pets[0].kind", "expected one of cat, dog, found 'cow'", TAIL,
    ),
    (
        {"name": "x", "link": {"scoop": "die"}},
        "link.scoop", "unknown field 'scoop'", f"did you mean scope? {TAIL}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("table", "field", "message", "hint"), WRONG)
def test_a_wrong_table_is_refused_with_field_and_page(
    table: dict[str, Any], field: str, message: str, hint: str
) -> None:
    with pytest.raises(SilicastError) as caught:
        decode(table, Whole, file="my.toml", page=PAGE)
    error = caught.value
    assert (error.file, error.field, error.message) == ("my.toml", field, message)
    assert error.hint == hint


def test_a_field_further_out_is_put_before_the_path() -> None:
    with pytest.raises(SilicastError) as caught:
        decode({"scope": "die", "sizes": [1, "a"]}, Inner, field="pools.a")
    assert caught.value.field == "pools.a.sizes[1]"


def test_json_is_refused_as_a_table_is_and_names_its_line() -> None:
    with pytest.raises(SilicastError) as caught:
        decode_json(b'{"nam": "x"}', Whole, file="a.jsonl", page=PAGE, hint="mend it", line=3)
    error = caught.value
    assert (error.field, error.message) == ("nam", "line 3: unknown field 'nam'")
    assert error.hint == f"did you mean name?; mend it; {TAIL}"


@pytest.mark.parametrize("text", [b"{", b'{"nam": 1, ', b"\xff"])
def test_what_is_no_json_is_said_so_even_behind_a_wrong_field(text: bytes) -> None:
    with pytest.raises(SilicastError, match="not valid JSON"):
        decode_json(text, Whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": NaN}', "NaN is no number of JSON (byte 6)"),
        (b"[1, -Infinity]", "Infinity is no number of JSON (byte 5)"),
    ],
)
def test_words_of_other_tools_for_no_number_are_named(text: str | bytes, message: str) -> None:
    with pytest.raises(SilicastError) as caught:
        decode_json(text, Any)
    assert caught.value.message == f"not valid JSON: {message}"


def test_json_that_is_nested_too_deeply_is_over_a_limit() -> None:
    with pytest.raises(SilicastError) as caught:
        decode_json(b"[" * 100_000, Any)
    assert caught.value.kind == "limit"


def test_a_toml_file_is_read_and_refused_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('scope = "die"\n', encoding="utf-8")
    assert read_table(path, Inner, PAGE) == Inner("die")
    path.write_text("scope = \n", encoding="utf-8")
    with pytest.raises(SilicastError, match="not valid TOML") as caught:
        read_table(path, Inner, PAGE)
    assert (caught.value.file, caught.value.hint) == (str(path), TAIL)


@pytest.mark.parametrize("number", ["inf", "nan", "1e400"])
def test_a_toml_file_holds_finite_numbers(number: str, tmp_path: Path) -> None:
    path = tmp_path / "engine.toml"
    path.write_text(f"[host]\ndispatch_us = {number}\n")
    with pytest.raises(SilicastError, match="expected a finite number") as caught:
        read_toml(path)
    assert (caught.value.file, caught.value.field) == (str(path), "host.dispatch_us")
