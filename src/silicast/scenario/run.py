"""Scenarios to their answers: the one way that every command and every Python call goes.

A switch that is on and means nothing here (a reduction in an NVLink switch on a board without one,
a state of the board where there is no power model) is remarked. Whether it does is asked of the
answers: the scenario is answered again with each other value, and where all answers are the same
the switch changes nothing. So no task and no switch needs a rule of its own.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import silicast
from silicast.core.errors import SilicastError
from silicast.core.hashing import files_hash
from silicast.core.plain_data import Tree, shown
from silicast.scenario.answer import Answer, Reply, identity_of, refusal, with_id
from silicast.scenario.answerer import ProgressWatch, answerer_for
from silicast.scenario.decode import Scenario, decode, load
from silicast.scenario.road import refuse_coming

if TYPE_CHECKING:
    from silicast.scenario.answerer import Answerer


def run(scenario: Scenario, watch: ProgressWatch | None = None) -> Answer:
    """The answer to a decoded scenario.

    Args:
        watch: what the caller is told meanwhile.

    Raises:
        SilicastError: it cannot be answered.
    """
    answerer = answerer_for(scenario.raw.task)
    answer = answerer.watched(scenario, watch or ProgressWatch())
    (result,) = remarked(answerer, [scenario], [answer])
    assert isinstance(result, Answer)
    answered = with_id(result, scenario.raw.id)
    assert isinstance(answered, Answer)
    return answered


def run_many(task: str, scenarios: Sequence[Scenario]) -> list[Answer | SilicastError]:
    """The answers to scenarios of one task, in order and without ids; errors stand in their place.
    They are the same as one by one.
    """
    answerer = answerer_for(task)
    return remarked(answerer, scenarios, answerer.answer_many(scenarios))


def run_file(path: Path) -> Answer:
    """The answer to a scenario file; raises as :func:`~.decode.load` and :func:`run`."""
    return run(load(path))


def reply_to(
    tree: Tree, *, folder: Path | None = None, watch: ProgressWatch | None = None
) -> Reply:
    """The answer to a plain tree; a problem is an answer too (``ok: false``)."""
    try:
        refuse_coming(tree)
        return run(decode(tree, folder=folder), watch)
    except SilicastError as error:
        return refusal(error, identity_of(tree))


def package_hash() -> str:
    """Of every file of the package and of the user's catalog, sixteen hex digits."""
    return _package(os.environ.get("SILICAST_CATALOG"))


@cache
def _package(own_catalog: str | None) -> str:
    folders = [Path(silicast.__file__).parent, *([Path(own_catalog)] if own_catalog else [])]
    return files_hash(file for folder in folders for file in _files(folder))


def _files(folder: Path) -> Iterable[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )


SWITCHES: Mapping[str, tuple[Any, ...]] = {
    "engine.options.async_scheduling": (True, False),
    "engine.options.attention": ("math", "fused"),
    "engine.options.cuda_graph": ("full", "piecewise", "off"),
    "engine.options.custom_all_reduce": (True, False),
    "engine.options.enable_balance": (True, False),
    "engine.options.fused_all_reduce": (True, False),
    "engine.options.fused_attention": (True, False),
    "engine.options.fused_latent": (True, False),
    "engine.options.fused_routing": (True, False),
    "engine.options.nvls": (True, False),
    "engine.options.overlap": (True, False),
    "engine.options.timeout_iters": (0, 50, 500),
    "cluster.oversubscription": (1.0, 8.0),
    "cluster.pcie_paths": ("own", "shared"),
    "cluster.price_per_gpu_hour": (0.0,),
    "parallel.schedule": ("1f1b", "gpipe"),
    "parallel.zero": (0, 1, 3),
    "precision.attention": ("bf16", "fp8"),
    "precision.experts": ("bf16", "fp8"),
    "precision.group_size": (32, 128),
    "precision.kv_cache": ("bf16", "fp8"),
    "workload.overlap": (True, False),
    "kernel.board": ("cool", "hot"),
}
"""Field -> values of it. Whoever turns one off gets what they asked for,
also where there is none.
"""
USUAL: Mapping[str, str] = {"parallel.schedule": "1f1b"}
"""Field -> the value that another one is held against alone: any of the others may be told apart
from the rest (``gpipe`` by what it keeps) where a stated one is the usual one by another name.
"""
OFF = (None, False, "", 0, "off", "cool")
OVERRIDDEN = "{} at the top is not used: every pool states its own"
IDLE = "{} = {} changes nothing here: with {} the answer is the same"


def remarked(
    answerer: Answerer, scenarios: Sequence[Scenario], answers: Sequence[Answer | SilicastError]
) -> list[Answer | SilicastError]:
    """Answers with a remark for each switch that is on and changes nothing, and for each field that
    all pools override.

    Args:
        answerer: what gave the answers.
        scenarios, answers: each and its answer.
    """
    replies = [
        _saying(reply, *map(OVERRIDDEN.format, scenario.overridden))
        for scenario, reply in zip(scenarios, answers, strict=True)
    ]
    if answerer.searches:
        return replies
    waiting = [
        (row, field, _others(field, stated), stated)
        for row, scenario in enumerate(scenarios)
        for field, stated in _stated(scenario)
        if isinstance(answers[row], Answer) and not _is_remarked(answers[row], field)
    ]
    position = 0
    while waiting:
        others = answerer.answer_many(
            [
                _with(scenarios[row], _path(field), values[position])
                for row, field, values, _ in waiting
            ]
        )
        same = [
            each
            for each, other in zip(waiting, others, strict=True)
            if _alike(answers[each[0]], other)
        ]
        position += 1
        for row, field, values, stated in same:
            if position == len(values):
                remark = IDLE.format(field, shown(stated), " or ".join(map(shown, values)))
                replies[row] = _saying(replies[row], remark)
        waiting = [each for each in same if position < len(each[2])]
    return replies


def _others(field: str, stated: Any) -> list[Any]:
    """The values that a stated one is held against."""
    usual = USUAL.get(field, stated)
    return [usual] if usual != stated else [x for x in SWITCHES[field] if x != stated]


def _stated(scenario: Scenario) -> Iterator[tuple[str, Any]]:
    """Switches that a scenario turns on, and their values."""
    if scenario.kernel is not None:
        if scenario.kernel.board not in OFF:
            yield "kernel.board", scenario.kernel.board
        return
    for field in SWITCHES:
        value: Any = scenario
        for name in _PATHS[field]:
            value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        if value not in OFF:
            yield field, value


def _path(field: str) -> tuple[str, ...]:
    """Where a field stands in a :class:`Scenario`."""
    table, *remaining = field.split(".")
    return (table, *remaining) if table in ("kernel", "workload") else ("raw", table, *remaining)


_PATHS = {field: _path(field) for field in SWITCHES}


def _with(table: Any, path: Sequence[str], value: Any) -> Any:
    """A copy of a table with another value at a path."""
    name, *remaining = path
    if isinstance(table, dict):
        return {**table, name: _with(table[name], remaining, value) if remaining else value}
    inner = _with(getattr(table, name), remaining, value) if remaining else value
    if isinstance(table, msgspec.Struct):
        return msgspec.structs.replace(table, **{name: inner})
    return dataclasses.replace(table, **{name: inner})


def _is_remarked(answer: Answer | SilicastError, field: str) -> bool:
    """Whether an answer says something about a switch already."""
    return isinstance(answer, Answer) and any(field in warning for warning in answer.warnings)


def _alike(answer: Answer | SilicastError, other: Answer | SilicastError) -> bool:
    """Whether two answers say the same; what cannot be answered is another thing."""
    if not isinstance(answer, Answer) or not isinstance(other, Answer):
        return False
    return (answer.metrics, answer.bound) == (other.metrics, other.bound)


def _saying(answer: Answer | SilicastError, *messages: str) -> Answer | SilicastError:
    if not isinstance(answer, Answer) or not messages:
        return answer
    return msgspec.structs.replace(answer, warnings=[*answer.warnings, *messages])
