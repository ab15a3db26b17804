"""What a workflow consists of: stages, what each waits for, and where chance decides.

A stage runs ``copies`` jobs of an item side by side, and each of them ``repeat`` times one after
the other. It begins when the stages before it have ended. Stages that share a ``branch`` exclude
each other: one of them runs, chosen by its probability, and what follows only the others is left
out. Any other stage with a probability below 1 is optional: where it does not run, what follows it
goes on at once. One that ``escalates`` is optional too, and runs only where all that it waits for
did: a cascade goes on from a model that was asked. A loop goes back from the end of a stage to an
earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from silicast.core.errors import SilicastError, over_limit, unknown_name, unmodelled
from silicast.core.naming import near

MOST_TURNS = 1_000_000
"""Turns of a loop that may be expected."""
ROUNDING = 1e-9
"""By how much probabilities of a branch may differ from 1 in sum."""


@final
@dataclass(frozen=True)
class StageLoop:
    """Goes back to an earlier stage once a stage has ended.

    Attributes:
        back_to: the first stage of the next turn; ``probability``: of another turn.
        most: turns at most, the first one included; 0 = no limit.
    """

    back_to: str
    probability: float
    most: int = 0

    @property
    def expected_turns(self) -> float:
        """Turns in the mean; infinite where nothing ends them.

        >>> StageLoop("think", 0.75).expected_turns, StageLoop("think", 1.0, 8).expected_turns
        (4.0, 8.0)
        """
        p = self.probability
        if p >= 1.0:
            return float(self.most) if self.most else math.inf
        return (1.0 - p**self.most) / (1.0 - p) if self.most else 1.0 / (1.0 - p)


@final
@dataclass(frozen=True)
class WorkflowStage:
    """One stage; see the head of this module."""

    name: str
    after: tuple[str, ...] = ()
    copies: int = 1
    repeat: int = 1
    probability: float = 1.0
    branch: str = ""
    loop: StageLoop | None = None
    overhead_share: float = 0.0
    escalates: bool = False


@final
@dataclass(frozen=True)
class WorkflowGraph:
    """Stages in their stated order.

    Raises:
        SilicastError: stages that wait for each other or for unknown ones, branches whose
            probabilities do not sum to one, loops that never end; ``stages.NAME`` is the field.
    """

    stages: tuple[WorkflowStage, ...]
    index: Mapping[str, int] = field(init=False)

    @property
    def overheads(self) -> Mapping[int, float]:
        """What follows the jobs of a stage, by its position; only of those that have any."""
        return {i: s.overhead_share for i, s in enumerate(self.stages) if s.overhead_share}

    def __post_init__(self) -> None:
        """Checks what expansion relies on."""
        object.__setattr__(self, "index", {s.name: i for i, s in enumerate(self.stages)})
        for stage in self.stages:
            for other in stage.after:
                if other not in self.index or other == stage.name:
                    raise unknown_name(
                        f"no other stage {other!r:.80}",
                        f"stages.{stage.name}.after",
                        near(other, list(self.index)),
                    )
            if stage.loop is not None:
                self._check_loop(stage, stage.loop)
        self._check_branches()
        self._check_bodies()
        _ = self.units

    def body(self, stage: WorkflowStage) -> tuple[str, ...]:
        """The stages of a loop, in order: from the one it goes back to until its own."""
        assert stage.loop is not None
        later = self._reached(stage.loop.back_to, forward=True)
        earlier = self._reached(stage.name, forward=False)
        return tuple(s.name for s in self._sorted() if s.name in later and s.name in earlier)

    @cached_property
    def units(self) -> tuple[tuple[tuple[WorkflowStage, ...], StageLoop | None], ...]:
        """Single stages and whole loops in an order in which each follows what it waits for."""
        bodies = [(self.body(s), s.loop) for s in self.stages if s.loop is not None]
        body_of = {name: body for body, _ in bodies for name in body}
        loops = dict(bodies)
        units: list[tuple[tuple[WorkflowStage, ...], StageLoop | None]] = []
        done: set[str] = set()
        waiting = [s.name for s in self._sorted()]
        while waiting:
            for name in waiting:
                body = body_of.get(name, (name,))
                before = {other for each in body for other in self[each].after} - set(body)
                if before <= done:
                    units.append((tuple(self[each] for each in body), loops.get(body)))
                    done.update(body)
                    waiting = [each for each in waiting if each not in body]
                    break
            else:
                raise _circular(waiting)
        return tuple(units)

    def __getitem__(self, name: str) -> WorkflowStage:
        return self.stages[self.index[name]]

    def _sorted(self) -> list[WorkflowStage]:
        """Stages in an order in which each follows those it waits for; loops left aside."""
        result: list[WorkflowStage] = []
        done: set[str] = set()
        waiting = list(self.stages)
        while waiting:
            ready = [stage for stage in waiting if done.issuperset(stage.after)]
            if not ready:
                raise _circular([stage.name for stage in waiting])
            result += ready
            done.update(stage.name for stage in ready)
            waiting = [stage for stage in waiting if stage.name not in done]
        return result

    def _reached(self, name: str, *, forward: bool) -> set[str]:
        """A stage and those that follow it, or that it follows."""
        reached, front = {name}, [name]
        while front:
            current = front.pop()
            nexts: Sequence[str] = self[current].after
            if forward:
                nexts = [stage.name for stage in self.stages if current in stage.after]
            front += [each for each in nexts if each not in reached]
            reached.update(nexts)
        return reached

    def _check_loop(self, stage: WorkflowStage, loop: StageLoop) -> None:
        at = f"stages.{stage.name}.loop"
        if loop.back_to not in self.index:
            raise unknown_name(
                f"no stage {loop.back_to!r:.80}", f"{at}.back_to", near(loop.back_to, self.index)
            )
        if not 0.0 <= loop.probability <= 1.0:
            raise SilicastError(
                f"a probability of {loop.probability:g}", field=f"{at}.probability", hint="0 to 1"
            )
        turns = loop.expected_turns
        if turns > MOST_TURNS:
            raise over_limit(
                f"a loop without a way out: {turns:g} turns are expected",
                at,
                f"a probability below 1, or most; {MOST_TURNS:,} turns at most",
            )
        if loop.back_to not in self._reached(stage.name, forward=False):
            raise SilicastError(
                f"{stage.name} does not come after {loop.back_to}",
                field=f"{at}.back_to",
                hint="a loop goes back to its own stage or to one before it",
            )

    def _check_branches(self) -> None:
        groups: dict[str, list[WorkflowStage]] = {}
        for stage in self.stages:
            if stage.branch:
                groups.setdefault(stage.branch, []).append(stage)
        for branch, members in groups.items():
            total = math.fsum(each.probability for each in members)
            if abs(total - 1.0) > ROUNDING:
                raise SilicastError(
                    f"the probabilities of branch {branch!r:.80} sum to {total:g}",
                    field=f"stages.{members[0].name}.probability",
                    hint=f"{', '.join(each.name for each in members)}: together 1",
                )

    def _check_bodies(self) -> None:
        seen: dict[str, str] = {}
        for stage in self.stages:
            for name in self.body(stage) if stage.loop is not None else ():
                if name in seen:
                    raise unmodelled(
                        f"{name} is in the loops of {seen[name]} and of {stage.name}",
                        f"stages.{stage.name}.loop",
                        "one loop around a stage; repeat is a loop of its own",
                    )
                seen[name] = stage.name


def _circular(names: Sequence[str]) -> SilicastError:
    return SilicastError(
        f"stages wait for each other: {', '.join(sorted(names)[:5])}",
        field="stages",
        hint="loop = {back_to, probability, most} goes back to a stage",
    )
