"""One scenario to its answer."""

from __future__ import annotations

from pathlib import Path

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Reply, identity_of, refusal, with_id
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import Scenario, decode, load
from silicast.scenario.reading import Tree
from silicast.scenario.road import refuse_coming
from silicast.scenario.switches import remarked


def run(scenario: Scenario) -> Answer:
    """The answer to a decoded scenario.

    Raises:
        SilicastError: it cannot be answered.
    """
    answerer = answerer_for(scenario.raw.task)
    (found,) = remarked(answerer, [scenario], [answerer.answer(scenario)])
    assert isinstance(found, Answer)
    answered = with_id(found, scenario.raw.id)
    assert isinstance(answered, Answer)
    return answered


def run_file(path: Path) -> Answer:
    """The answer to a scenario file; raises as :func:`~.decode.load` and :func:`run`."""
    return run(load(path))


def reply_to(tree: Tree, *, folder: Path | None = None) -> Reply:
    """The answer to a plain tree; a problem is an answer too (``ok: false``)."""
    try:
        refuse_coming(tree)
        return run(decode(tree, folder=folder))
    except SilicastError as error:
        return refusal(error, identity_of(tree))
