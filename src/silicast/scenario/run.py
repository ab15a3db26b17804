"""Scenarios to their answers: the one way that every command and every Python call goes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import silicast
from silicast.core.errors import SilicastError
from silicast.core.hashing import files_hash
from silicast.core.plain_data import Tree
from silicast.scenario.answer import Answer, Reply, identity_of, refusal, with_id
from silicast.scenario.answerer import ProgressWatch, answerer_for
from silicast.scenario.decode import Scenario, decode, load
from silicast.scenario.reading.switches import remarked
from silicast.scenario.road import refuse_coming


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
