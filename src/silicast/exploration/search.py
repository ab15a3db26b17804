"""The loop of a search: a method proposes, the problem answers; a file keeps what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.numerics import I64
from silicast.exploration.history import DesignOutcome, History
from silicast.exploration.problem import METHODS, Method, SearchProblem
from silicast.exploration.state import SearchState, read_state, write_state

SAVED_EVERY_S = 5.0
"""Between two writings of the file while a search goes on; what it holds in the end is the same."""

Advance = Callable[[int], None]


def method_of(name: str) -> Method:
    """A method by name.

    Raises:
        SilicastError: there is none.
    """
    methods = METHODS.all()
    if name not in methods:
        raise unknown_name(f"unknown method {name!r}", "method", f"one of {', '.join(methods)}")
    return methods[name]


def search(
    problem: SearchProblem,
    method: str,
    evaluations: int,
    *,
    seed: int = 0,
    file: Path | None = None,
    resume: bool = False,
    advance: Advance | None = None,
) -> SearchState:
    """Searches until so many designs were tried, or all, or until it is interrupted.

    Args:
        evaluations: designs, with those of a file that is resumed.
        file: takes the state, now and then and in the end; also where the search is interrupted.
        resume: goes on from the file, if it is there.
        advance: is told how many designs were tried.

    Raises:
        SilicastError: an unknown method, numbers out of range, a file of another search, one that
            is there and not to be resumed, or none that could be.
    """
    way = method_of(method)
    if evaluations < 1:
        raise SilicastError(f"expected 1 or more, found {evaluations}", field="evaluations")
    if seed < 0:
        raise SilicastError(f"expected 0 or more, found {seed}", field="seed")
    if resume and file is None:
        raise SilicastError("there is no file to go on with", field="resume", hint="name it: -o")
    state = _begun(problem, method, seed, file, resume=resume)
    saved = time.monotonic()
    codes, outcomes = list(state.history.codes), list(state.history.outcomes)
    interrupted = False
    try:
        for code, outcome in _steps(problem, way, seed, state.history, evaluations):
            codes.append(code)
            outcomes.append(outcome)
            if advance is not None:
                advance(len(codes))
            if file is not None and time.monotonic() - saved > SAVED_EVERY_S:
                write_state(file, _state(problem, method, seed, codes, outcomes))
                saved = time.monotonic()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        state = replace(_state(problem, method, seed, codes, outcomes), interrupted=interrupted)
        if file is not None:
            write_state(file, state)
    return state


def _state(
    problem: SearchProblem,
    method: str,
    seed: int,
    codes: list[np.int64],
    outcomes: list[DesignOutcome],
) -> SearchState:
    history = History(
        problem.space, problem.objectives, np.array(codes, dtype=np.int64), tuple(outcomes)
    )
    return SearchState(problem, method, seed, history)


def _begun(
    problem: SearchProblem, method: str, seed: int, file: Path | None, *, resume: bool
) -> SearchState:
    if file is not None and file.exists():
        if not resume:
            raise SilicastError(
                "the file is there already",
                field="output",
                file=str(file),
                hint="add --resume to go on from it, or name another file",
            )
        return read_state(file, problem, method, seed)
    return _state(problem, method, seed, [], [])


def _steps(
    problem: SearchProblem, method: Method, seed: int, history: History, evaluations: int
) -> Iterator[tuple[np.int64, DesignOutcome]]:
    """Designs with their outcomes that follow ``history``, until there are enough or no more."""
    start = 0
    while start + method.batch(start) <= len(history):
        start += method.batch(start)
    while start < evaluations:
        size = method.batch(start)
        told = history.first(start)
        codes = method.propose(told, seed, size)
        # Of a batch that was cut off, some are known.
        outcomes = list(history.outcomes[start:])
        left = codes[len(outcomes) : evaluations - start]
        if len(left):
            problem.evaluation.prepare(problem.space.decode(left))
        for code in left:
            outcomes.append(answered(problem, code))
            yield code, outcomes[-1]
        if len(codes) < size:
            return
        history = History(
            problem.space,
            problem.objectives,
            np.concatenate([told.codes, codes[: len(outcomes)]]),
            (*told.outcomes, *outcomes),
        )
        start += size


def answered(problem: SearchProblem, code: np.int64 | int) -> DesignOutcome:
    """What one design comes to; combinations that are ruled out are not evaluated."""
    design: I64 = problem.space.decode(np.array([code], dtype=np.int64))
    if not problem.space.allowed(design)[0]:
        return DesignOutcome(cause="forbidden combination")
    return problem.evaluation.outcome(design[0])
