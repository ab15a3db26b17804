"""The file of a search: every design that was tried, and the front; JSON, the same bytes again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np

from silicast.core.decode import decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded, write_atomically
from silicast.exploration.history import DesignOutcome, History
from silicast.exploration.problem import SearchProblem

MAX_BYTES = 1 << 30


@final
@dataclass(frozen=True)
class SearchState:
    """How far a search is.

    Attributes:
        problem: what is searched.
        method, seed: how.
        history: what was tried.
        interrupted: it was told to stop.
    """

    problem: SearchProblem
    method: str
    seed: int
    history: History
    interrupted: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether every design was tried."""
        return len(self.history) == self.problem.space.total

    def entry(self, index: int) -> dict[str, Any]:
        """One design with its metrics or its cause."""
        history = self.history
        outcome = history.outcomes[index]
        table: dict[str, Any] = {
            "code": int(history.codes[index]),
            "design": history.space.settings(history.designs[index]),
        }
        return table | (
            {"infeasible": outcome.cause} if outcome.cause else {"metrics": dict(outcome.metrics)}
        )


class _Tried(msgspec.Struct, frozen=True):
    code: int
    metrics: dict[str, float] = {}
    infeasible: str = ""


class _StateFile(msgspec.Struct, frozen=True):
    identity: str
    method: str
    seed: int
    tried: list[_Tried]
    format: int = 1


def state_data(state: SearchState) -> dict[str, Any]:
    """A search as the file holds it, without the designs that were tried."""
    history = state.history
    total = state.problem.space.total
    return {
        "format": 1,
        "identity": state.problem.identity,
        "method": state.method,
        "seed": state.seed,
        "objectives": [
            {"metric": o.metric, "goal": "max" if o.largest else "min"} for o in history.objectives
        ],
        "designs": state.problem.space.rows if total is None else total,
        "evaluations": len(history),
        "complete": state.is_complete,
        "infeasible": history.infeasible,
        "hypervolume": history.hypervolume if history.feasible.any() else 0.0,
        "reference": {
            o.metric: o.sign * float(history.reference[k])
            for k, o in enumerate(history.objectives)
            if np.isfinite(history.reference[k])
        },
        "front": [state.entry(int(position)) for position in history.front],
    }


def write_state(path: Path, state: SearchState) -> None:
    """Writes the file at once, or leaves it as it was.

    Raises:
        SilicastError: it cannot be written.
    """
    content = state_data(state)
    # A line a design: such a file can be read, compared and cut by lines.
    head = msgspec.json.format(msgspec.json.encode(content), indent=1).rstrip(b"}\n")
    rows = b",\n".join(
        b"  " + msgspec.json.encode(state.entry(index)) for index in range(len(state.history))
    )
    write_atomically(path, head + b',\n "tried": [\n' + rows + b"\n ]\n}\n")


def read_state(path: Path, problem: SearchProblem, method: str, seed: int) -> SearchState:
    """The state of a search, to go on from.

    Raises:
        SilicastError: the file cannot be read, or is of another search: says what differs.
    """
    file = str(path)
    content = decode_json(
        read_bounded(path, MAX_BYTES, "a search"),
        _StateFile,
        file=file,
        page="docs/how-to/search-designs.md",
        hint="name another file",
    )
    for field, theirs, expected in (
        ("identity", content.identity, problem.identity),
        ("method", content.method, method),
        ("seed", content.seed, seed),
    ):
        if theirs != expected:
            raise SilicastError(
                f"the file is of another search: {field} {theirs}, this one has {expected}",
                field=field,
                file=file,
                hint="the identity is that of space, base, layers and version; search anew into "
                "another file"
                if field == "identity"
                else "give what the file has",
            )
    codes = np.array([each.code for each in content.tried], dtype=np.int64)
    if len(codes) and (codes.min() < 0 or codes.max() >= problem.space.rows):
        raise SilicastError("holds a design that the space has not", field="tried", file=file)
    outcomes = tuple(DesignOutcome(each.metrics, each.infeasible) for each in content.tried)
    return SearchState(
        problem, method, seed, History(problem.space, problem.objectives, codes, outcomes)
    )
