"""What an engine's next step runs: the policy, apart from how long it takes.

A policy is one file of :mod:`silicast.serving.engines`. It sees the sequences that have arrived,
those that run, and the blocks that are free; never how long an output will be.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import numpy as np

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.numerics import I64
from silicast.serving.simulation.group import QueueGroup, SimulatedRequests
from silicast.serving.simulation.limits import Limits

__all__ = [
    "Limits",
    "Lockstep",
    "QueueGroup",
    "Scheduler",
    "SimulatedRequests",
    "StepPlan",
    "policies",
    "register",
    "scheduler_named",
    "unread",
]  # fmt: skip


@final
class StepPlan:
    """What a step runs.

    Attributes:
        prefill: (request, new tokens).
        decode: requests that come a token further, or several where some are drafted.
        each: new tokens of each of the latter that the step looks at.
        copy_ns: that blocks are copied to and from the host before it starts; ``load_ns``: while it
            runs, at least.
    """

    __slots__ = ("copy_ns", "decode", "each", "load_ns", "prefill")

    def __init__(self, prefill: list[tuple[int, int]], decode: list[int], each: int = 1) -> None:
        self.prefill, self.decode, self.each = prefill, decode, each
        self.copy_ns = self.load_ns = 0

    @property
    def tokens(self) -> int:
        """New tokens of the step."""
        count = len(self.decode) * self.each
        for _, new in self.prefill:
            count += new
        return count

    @property
    def rows(self) -> I64:
        """``decode`` as an array."""
        return np.array(self.decode, dtype=np.int64)


class Lockstep(ABC):
    """What all groups of a replica do together before each schedules its step: prompts are held,
    for so many steps at most.

    Args:
        most: steps from one look at prompts to the next.
    """

    def __init__(self, most: int) -> None:
        self._most, self._waited = max(most, 1), 0

    def hold(self, groups: Sequence[QueueGroup]) -> bool:
        """Whether no group takes tokens of prompts in the next step."""
        if self._waited < self._most and not self.releases(groups):
            return True
        self._waited = 0
        return False

    @abstractmethod
    def releases(self, groups: Sequence[QueueGroup]) -> bool:
        """Whether prompts may start before the time is over."""

    def steady(self, groups: Sequence[QueueGroup]) -> int:
        """Steps for which that stays so, unless a sequence arrives or ends; at least 1."""
        if not any(group.waiting or group.filling for group in groups):
            return 1 << 40
        return max(self._most - self._waited, 1)

    def passed(self, steps: int) -> None:
        """So many steps have run; where nobody waited, looks at prompts lie among them."""
        self._waited = (self._waited + steps - 1) % self._most + 1


Switch = float | str | tuple[str, ...]
"""What is known of an option of a policy, see :class:`Scheduler`."""


class Scheduler(ABC):
    """The policy of one engine for one group of ranks.

    Attributes:
        name: by which engine files ask for it.
        switches: option that it reads -> its default: a number, a text, or the words that it may
            be, the default first.
        in_order: a new arrival changes nothing while others wait before it.
        timed: it needs the time, ``now_ns`` and ``came_ns`` of its group.
        one_pass: a step is a whole pass of a static graph, and answers its requests.
        ask_ns: when it wants to be asked again though nothing happens; -1 = never.
    """

    name: ClassVar[str]
    switches: ClassVar[Mapping[str, Switch]] = {}
    in_order: bool = True
    timed: ClassVar[bool] = False
    one_pass: ClassVar[bool] = False

    def __init__(self, group: QueueGroup) -> None:
        self.group = group
        self.ask_ns = -1
        self._preempted = False
        self._watched: tuple[int, int] | None = None

    def empty(self) -> StepPlan:
        """A step that runs no tokens."""
        return StepPlan([], [], 1 + self.group.limits.drafted)

    @abstractmethod
    def schedule(self) -> StepPlan:
        """What the next step runs; blocks are taken and sequences started or preempted. An empty
        plan = nothing can run.
        """

    def together(self, groups: int) -> Lockstep | None:  # noqa: ARG002
        """What all groups of a replica, so many, do together; None = nothing."""
        return None

    def steady(self, plan: StepPlan) -> int:  # noqa: ARG002
        """Decode steps for which this plan of decode alone would be made again, unless a sequence
        arrives or ends; blocks aside.
        """
        return 0 if self._preempted else 1 << 40

    def number(self, option: str) -> float:
        """A switch of the policy; raises as :func:`checked`."""
        value = self._stated(option)
        assert not isinstance(value, str)
        return value

    def word(self, option: str) -> str:
        """A switch that is a text or has words for values; raises as :func:`checked`."""
        value = self._stated(option)
        return value if isinstance(value, str) else f"{value:g}"

    def _stated(self, option: str) -> float | str:
        switch, options = self.switches[option], self.group.limits.options
        if option in options:
            return checked(option, options[option], switch)
        return switch[0] if isinstance(switch, tuple) else switch

    def decode(self, plan: StepPlan) -> None:
        """Every decoding sequence comes a token further; where a block is missing, the sequence
        that was admitted last is preempted.
        """
        decoding = list(self.group.decoding())
        if self.group.advance(decoding):
            plan.decode = decoding
            return
        for request in decoding:
            self.run(plan, request, plan.each, decodes=True)

    def run(self, plan: StepPlan, request: int, new: int, *, decodes: bool = False) -> bool:
        """A running sequence gets new tokens; False if it was preempted, now or before, since no
        block was left.
        """
        group, sequences = self.group, self.group.sequences
        group.apart(request)
        if not sequences.at_held[request]:
            return False
        while not group.grow(request, sequences.at_cached[request] + new):
            last = next(each for each in reversed(group.running) if each not in group.flying)
            if last in plan.decode:
                plan.decode.remove(last)
            plan.prefill = [pair for pair in plan.prefill if pair[0] != last]
            self.give_way(plan, last)
            self._preempted = True
            if last == request:
                return False
        if decodes:
            plan.decode.append(request)
        else:
            plan.prefill.append((request, new))
        return True

    def give_way(self, plan: StepPlan, request: int) -> None:  # noqa: ARG002
        """A running sequence loses its blocks."""
        self.group.preempt(request)

    def admit(self, plan: StepPlan, new: int, reused: int = 0, hold: int = 0) -> None:
        """The first that waits starts with ``new`` tokens, whose blocks are free.

        Args:
            reused: tokens of it that were found in the cache.
            hold: tokens for which it takes blocks at once; 0 = for ``new`` alone.
        """
        group = self.group
        request = group.waiting.popleft()
        plan.load_ns += group.start(request, reused)
        group.grow(request, hold or reused + new)
        plan.prefill.append((request, new))

    def decoded(self) -> int:
        """Decode steps since :meth:`watch`: a plan may have been run many times."""
        if self._watched is None:
            return 0
        request, made = self._watched
        return self.group.made(request) - made

    def watch(self, plan: StepPlan) -> None:
        """Counts the steps of a plan from now on."""
        self._watched = None
        if plan.decode:
            first = plan.decode[0]
            self._watched = (first, self.group.made(first))


def checked(option: str, value: float | str, known: Switch) -> float | str:
    """The value of a switch.

    Raises:
        SilicastError: it is none that the switch has.
    """
    if isinstance(known, tuple) and value not in known:
        wanted = " or ".join(known)
    elif not isinstance(known, (tuple, str)) and isinstance(value, str):
        wanted = "a number"
    else:
        return value
    field = f"engine.options.{option}"
    raise SilicastError(f"expected {wanted}, found {value!r:.40}", field=field)


def unread(policy: str, options: Mapping[str, float | str]) -> list[str]:
    """Those of some switches that a policy does not read.

    Raises:
        SilicastError: a value that none of the policies that read its switch has, also where this
            one does not.

    >>> unread("static", {"watermark": 0.1}), unread("vllm-v0", {"watermark": 0.1})
    (['watermark'], [])
    """
    switches, unread = scheduler_named(policy).switches, []
    for option, value in options.items():
        every = [switches, *(scheduler_named(name).switches for name in policies())]
        switch = next((each[option] for each in every if option in each), None)
        if switch is not None:
            checked(option, value, switch)
        if option not in switches:
            unread.append(option)
    return unread


_REGISTRY: dict[str, type[Scheduler]] = {}


def register(cls: type[Scheduler]) -> type[Scheduler]:
    """Class decorator: makes a policy known by its name."""
    if cls.name in _REGISTRY:
        raise ValueError(f"two policies {cls.name}")
    _REGISTRY[cls.name] = cls
    return cls


def policies() -> list[str]:
    """Names of all policies: the files of :mod:`silicast.serving.engines`."""
    folder = importlib.import_module("silicast.serving.engines").__path__
    return sorted(each.name.replace("_", "-") for each in pkgutil.iter_modules(folder))


def scheduler_named(name: str) -> type[Scheduler]:
    """The policy of a name; its module is imported on first use.

    Raises:
        SilicastError: there is none.
    """
    if name not in _REGISTRY and name in policies():
        importlib.import_module(f"silicast.serving.engines.{name.replace('-', '_')}")
    if name not in _REGISTRY:
        raise unknown_name(
            f"no scheduling policy {name[:80]!r}",
            "engine.options.policy",
            f"known: {', '.join(policies())}",
        )
    return _REGISTRY[name]
