"""Reading scenarios from bytes: what is refused, and that it is refused at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.core.files import size_text
from silicast.core.plain_data import (
    MAX_DEPTH,
    MAX_JSON_BYTES,
    MAX_TOML_BYTES,
    check_tree,
    parse_json,
    parse_toml,
    read_scenario_file,
    value_of_word,
)


@pytest.mark.parametrize(
    "word",
    ["nan", "NaN", "inf", "-inf", "Infinity", "1_000", "1_0.5", "1e999", "-1e999", "9" * 5000, "",
     " ", "+", ".", "e5", "1e", "0x10", "8K", "１２", "1 2", "True", "--1"],
)  # fmt: skip
def test_words_that_are_no_finite_numbers_stay(word: str) -> None:
    assert value_of_word(word) == word


@pytest.mark.parametrize(
    ("word", "value"),
    [("8", 8), ("-3", -3), ("+3", 3), (" 5 ", 5), ("0.9", 0.9), (".5", 0.5), ("2.", 2.0),
     ("1e3", 1000.0), ("-1.5E-2", -0.015), ("9" * 30, int("9" * 30)), ("true", True),
     ("false", False)],
)  # fmt: skip
def test_words_that_are_numbers_and_truth_values(word: str, value: object) -> None:
    result = value_of_word(word)
    assert (result, type(result)) == (value, type(value))


def refused(parse: Any, raw: Any) -> SilicastError:
    with pytest.raises(SilicastError) as caught:
        parse(raw)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return caught.value


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"x": {"a": 1, "a": 1}}', "twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "finite"),
        (b'{"a": ' + b"9" * 30 + b"}", "64 bits"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not readable"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"a": "\\u0000"}', "NUL"),
        (b'{"a": \x00}', "NUL"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"task": "kern', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"[1, 2]", "one object"),
        (b"3", "one object"),
        (b"[" * 100_000, "deeper"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "deeper"),
        (b'{"a": "' + b"x" * 5000 + b'"}', "5000 characters"),
    ],
)
def test_json_that_is_refused(raw: bytes, words: str) -> None:
    assert words in str(refused(parse_json, raw))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"a = 1\na = 2", "TOML"),
        (b"a = nan", "finite"),
        (b"a = { b = inf }", "finite"),
        (b"a = 2020-01-01", "date"),
        (b"a = 99999999999999999999999", "64 bits"),
        (b'task = "ker', "TOML"),
        (b"a = \x00", "NUL"),
        (b'a = "\xc3"', "UTF-8"),
        (b"a = " + b"[" * 5000, "deeper"),
        (b"a = " + b"[" * 65 + b"]" * 65, "deeper"),
        (b"a = " + b"{b=" * 5000, "deeper"),
        (b".".join([b"a"] * 100_000) + b" = 1", "deeper"),
        (b"[" + b".".join([b"a"] * 70) + b"]", "deeper"),
        (b'"a".' * 70 + b'"b" = 1', "deeper"),
    ],
)
def test_toml_that_is_refused(raw: bytes, words: str) -> None:
    assert words in str(refused(parse_toml, raw))


def test_depth_is_counted_outside_text_only() -> None:
    assert parse_json(b'{"a": "' + b"[" * 1000 + b'"}')["a"] == "[" * 1000
    assert parse_json(b'{"a": "\\"' + b"{" * 1000 + b'"}')["a"] == '"' + "{" * 1000
    flat = b"[" + b",".join([b"[1]"] * 1000) + b"]"
    assert len(parse_json(b'{"a": ' + flat + b"}")["a"]) == 1000
    assert len(parse_toml(b"a = " + flat)["a"]) == 1000
    assert parse_toml(b"a = '" + b"[" * 1000 + b'\'\nb = """' + b"{" * 1000 + b'"""')["b"]


def test_scanning_for_depth_takes_linear_time() -> None:
    # an unclosed string full of escaped quotes made a naive pattern quadratic: hours, not seconds
    refused(parse_json, b"[" * 40 + b'{"' * 40 + b'\\"' * 1_500_000)
    refused(parse_toml, b"a = [[" + b'{"' * 40 + b'"\\"' * 80_000)


def test_the_deepest_allowed_nesting_is_read() -> None:
    raw = b'{"a":' * (MAX_DEPTH - 1) + b"1" + b"}" * (MAX_DEPTH - 1)
    assert parse_json(raw)


def test_json_has_one_type_of_number() -> None:
    assert parse_json(b'{"a": 8.0, "b": 1e3, "c": 0.5, "d": 1e300}') == {
        "a": 8, "b": 1000, "c": 0.5, "d": 1e300,
    }  # fmt: skip
    assert isinstance(parse_json(b'{"a": 8.0}')["a"], int)


def test_a_byte_order_mark_at_the_start_is_ignored() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert parse_toml(b"\xef\xbb\xbfa = 1") == {"a": 1}


def test_python_values_that_are_no_data_are_refused() -> None:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    for tree in (loop, {"a": object()}, {1: 2}, {"a": float("nan")}, {"a": {1, 2}}):
        refused(check_tree, tree)


def test_too_many_values_are_refused() -> None:
    refused(check_tree, {"a": [[0] * 1000] * 1001})
    refused(parse_json, b'{"a": [' + b"1," * 1_000_001 + b"1]}")
    refused(parse_json, b'{"a": [' + b"[]," * 200_001 + b"1]}")


def test_missing_folder_and_device_files(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path, Path("/dev/zero"), Path("a\0b")):
        with pytest.raises(SilicastError) as caught:
            read_scenario_file(path)
        assert caught.value.kind == "io"


def test_a_huge_file_is_refused_by_its_size(tmp_path: Path) -> None:
    for name, limit in (("s.toml", MAX_TOML_BYTES), ("s.json", MAX_JSON_BYTES)):
        path = tmp_path / name
        with path.open("wb") as stream:
            os.truncate(stream.fileno(), 1 << 30)  # sparse: a gigabyte that takes no room
        with pytest.raises(SilicastError) as caught:
            read_scenario_file(path)
        assert caught.value.kind == "limit"
        assert f"larger than {size_text(limit)}" in caught.value.message
