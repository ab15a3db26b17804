"""Each argument is described once, sets a field that scenarios have, and is the same everywhere."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import silicast
from silicast.app.arguments import ARGUMENTS, argument, described, placed
from silicast.app.flags import BatchFlags, Degrees
from silicast.app.serve_flags import ServeFlags
from silicast.app.train_flags import TrainDegrees, TrainFlags, TrainHost, TrainLosses
from silicast.core.decode import fields_of
from silicast.scenario.schema import PoolTable, RawScenario
from silicast.scenario.workloads import (
    FitsWorkload,
    InferenceWorkload,
    ServingWorkload,
    TrainingWorkload,
)

ROOT = Path(__file__).parents[3]
FLAGS = {
    "infer": (BatchFlags, Degrees),
    "serve": (ServeFlags, Degrees),
    "train": (TrainFlags, TrainDegrees, TrainLosses, TrainHost),
}
PYTHON: dict[str, Callable[..., Any]] = {
    "infer": silicast.infer, "serve": silicast.serve, "train": silicast.train,
}  # fmt: skip
OTHER_TYPES = {
    "trace",
    "from_log",
    "from_launch",
    "skip_bad_rows",
    "slo",
    "speculative",
    "lora",
    "price",
    "network",
    "option",
    "calibration",
}
"""Flags that are words for something else: a path, a list of limits, a file of prices."""
IN_PYTHON = {"device", "engine", "model"}
"""May be tables there."""


def members(declared: Any) -> set[Any]:
    """The plain types of an annotation: no limits of values, no null."""
    while typing.get_origin(declared) is typing.Annotated:
        declared = typing.get_args(declared)[0]
    if typing.get_origin(declared) in (types.UnionType, typing.Union):
        return {each for one in typing.get_args(declared) for each in members(one)} - {type(None)}
    if typing.get_origin(declared) is typing.Literal:
        return {type(each) for each in typing.get_args(declared)}
    return {typing.get_origin(declared) or declared}


def declared_at(path: str) -> set[Any]:
    """The types that the field of a scenario at a path may have."""
    at: set[Any] = {RawScenario}
    for step in path.split("."):
        if step == "workload":
            at = {InferenceWorkload, ServingWorkload, TrainingWorkload, FitsWorkload}
            continue
        if step == "pools":
            at = {PoolTable}
            continue
        if at == {PoolTable} and step in ("replicas", "prefill", "decode"):
            continue
        tables = [
            each for each in at if isinstance(each, type) and issubclass(each, msgspec.Struct)
        ]
        held = [fields_of(each)[step] for each in tables if step in fields_of(each)]
        at = {each for one in held for each in members(one)}
    return at


@pytest.mark.parametrize("name", [name for name, each in ARGUMENTS.items() if each.path])
def test_an_argument_sets_a_field_that_scenarios_have(name: str) -> None:
    assert declared_at(ARGUMENTS[name].path), ARGUMENTS[name].path


@pytest.mark.parametrize("command", FLAGS)
def test_flags_have_the_types_of_the_fields_that_they_set(command: str) -> None:
    for flags in FLAGS[command]:
        for name, declared in typing.get_type_hints(flags).items():
            meant = argument(name, command)
            assert meant is not None, f"{name} of {command} is not described"
            if meant.path and name not in OTHER_TYPES:
                assert members(declared) <= declared_at(meant.path), (name, meant.path)


@pytest.mark.parametrize("command", FLAGS)
def test_python_takes_what_the_command_takes(command: str) -> None:
    """The same types and defaults; only what is a table in Python may be more."""
    flags = {name: each for kind in FLAGS[command] for name, each in _fields(kind).items()}
    taken = inspect.signature(PYTHON[command]).parameters
    hints = typing.get_type_hints(PYTHON[command])
    for name, (declared, default) in flags.items():
        if name not in taken:
            continue
        assert members(declared) <= members(hints[name]), name
        if name not in IN_PYTHON and (command, name) != ("infer", "batch"):
            assert taken[name].default == default, name


def _fields(kind: Any) -> dict[str, tuple[Any, Any]]:
    hints = typing.get_type_hints(kind)
    parameters = inspect.signature(kind).parameters
    return {name: (hints[name], parameters[name].default) for name in hints}


@pytest.mark.parametrize("command", PYTHON)
def test_every_argument_stands_in_the_docstring_once(command: str) -> None:
    text = PYTHON[command].__doc__ or ""
    for name in inspect.signature(PYTHON[command]).parameters:
        assert len(re.findall(rf"^    {name}: ", text, re.MULTILINE)) == 1, name


def test_no_sentence_is_written_a_second_time() -> None:
    """Where a command's docstring says what the table says, the table can say it."""
    source = {
        path: " ".join(path.read_text(encoding="utf-8").split())
        for path in (ROOT / "src" / "silicast" / "app").rglob("*.py")
        if path.name != "arguments.py"
    }
    again = [
        f"{path.name}: {name}"
        for name, each in ARGUMENTS.items()
        for path, text in source.items()
        if f" {name.rpartition('.')[2]}: {each.text}" in text
    ]
    assert again == []


def test_own_words_go_before_the_tables() -> None:
    @described("serve", paths=True)
    def taker(*, rate: float, tp: int, model: str, further: int) -> None:
        """Take.

        Args:
            tp, further: other ones.

        Raises:
            ValueError: never.
        """

    text = taker.__doc__ or ""
    assert "tensor-parallel" not in text
    assert text.index("rate: requests a second") < text.index("tp, further: other ones.")
    assert "Sets ``workload.arrival.rate_per_s``." in text
    assert "Sets ``model``" not in text
    assert text.endswith("Raises:\n    ValueError: never.")


def test_what_is_left_out_sets_nothing() -> None:
    assert placed({}, {"tp": None, "dtype": "fp8"}) == {"precision": {"recipe": "fp8"}}
