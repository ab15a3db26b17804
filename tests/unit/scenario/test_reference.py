"""The reference pages name every field, and their examples decode."""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from silicast.core.calibration import Calibration
from silicast.core.decode import fields_of
from silicast.core.errors import ErrorKind
from silicast.core.plain_data import parse_toml
from silicast.scenario import schema, workloads
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.decode import decode
from silicast.scenario.kernels.kernel_case import COMMON, OPS

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"
SCENARIO = (DOCS / "scenario.md").read_text(encoding="utf-8")
ANSWER = (DOCS / "answer.md").read_text(encoding="utf-8")
STATISTICS = re.compile(r"(ttft|tpot|itl|e2e)_(mean|p\d\d)_ms")


def tables(module: Any) -> list[type[msgspec.Struct]]:
    """All tables that a module defines."""
    items = [value for value in vars(module).values() if isinstance(value, type)]
    return [
        value
        for value in items
        if issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
    ]


def blocks(text: str, language: str) -> list[str]:
    """Fenced code of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("table", tables(schema) + tables(workloads), ids=lambda t: t.__name__)
def test_every_field_is_documented(table: type[msgspec.Struct]) -> None:
    missing = [
        name
        for name in fields_of(table)
        if f"`{name}`" not in SCENARIO and not STATISTICS.fullmatch(name)
    ]
    assert not missing


@pytest.mark.parametrize("op", [*OPS])
def test_every_op_is_documented_with_its_sizes(op: str) -> None:
    (row,) = [line for line in SCENARIO.splitlines()
              if line.startswith("|") and f"`{op}`" in line.split("|")[1]]  # fmt: skip
    if op != "attention_decode":
        assert [name for name in OPS[op].names() if f"`{name}`" not in row] == []
    assert all(f"`{name}`" in SCENARIO for name in COMMON)


@pytest.mark.parametrize("text", blocks(SCENARIO, "toml"))
def test_examples_decode(text: str) -> None:
    assert decode(parse_toml(text.encode()))


def test_json_examples_have_the_types_they_show() -> None:
    (calibration,) = blocks(SCENARIO, "json")
    assert msgspec.json.decode(calibration, type=Calibration).offsets
    answered, refused = blocks(ANSWER, "json")
    assert msgspec.json.decode(answered, type=Answer).ok
    assert not msgspec.json.decode(refused, type=Refusal).ok


def test_every_kind_of_error_is_documented() -> None:
    for kind in typing.get_args(ErrorKind):
        assert f"| `{kind}` |" in ANSWER
