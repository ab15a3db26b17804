"""What an engine's next step runs: the policy, apart from how long it takes.

A policy is one file of :mod:`silicast.serving.engines`. It sees the sequences that have arrived,
those that run, and the blocks that are free; never how long an output will be.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.serving.kv_pool import KvLayout


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine is started with, for one group of ranks.

    Attributes:
        sequences: most that run at once.
        step_tokens: most new tokens of one step.
        blocks: of the KV cache.
        model_tokens: longest sequence.
        prefix_caching: prompts that begin alike share blocks.
        options: further switches of the policy, by name.
    """

    sequences: int
    step_tokens: int
    blocks: int
    model_tokens: int = 1 << 30
    prefix_caching: bool = False
    options: dict[str, float] = field(default_factory=dict)


@final
class Sequences:
    """All requests of a simulation as their engines see them; int64 arrays of shape (n,).

    Attributes:
        prompt: tokens of the prompt; ``limit``: of output, as the client states it at most.
        todo: tokens to be cached before the next one comes: the prompt, after a preemption with
            what was generated before.
        cached: tokens whose keys and values are there; ``made``: generated; ``held``: blocks.
    """

    def __init__(self, prompt: I64, limit: I64) -> None:
        count = len(prompt)
        self.prompt, self.limit = prompt, limit
        self.todo = prompt.copy()
        self.cached, self.made, self.held, self.preemptions = (
            np.zeros(count, dtype=np.int64) for _ in range(4)
        )


@final
@dataclass(slots=True)
class StepPlan:
    """What a step runs.

    Attributes:
        prefill: (request, new tokens).
        decode: requests that come one token further.
    """

    prefill: list[tuple[int, int]]
    decode: list[int]

    @property
    def tokens(self) -> int:
        """New tokens of the step."""
        return len(self.decode) + sum(new for _, new in self.prefill)


@final
class Group:
    """The queues and the cache of one group of ranks (one of attention_dp, or the whole replica).

    Attributes:
        waiting: arrived, the first to be served first; ``running``: in order of admission.
        filling: those of ``running`` whose prompts are not complete, in that order.
        free: blocks.
    """

    def __init__(self, sequences: Sequences, layout: KvLayout, limits: Limits) -> None:
        self.sequences, self.layout, self.limits = sequences, layout, limits
        self.waiting: deque[int] = deque()
        self.running: list[int] = []
        self.filling: list[int] = []
        self.flying: set[int] = set()
        self.free = limits.blocks

    def grow(self, request: int, tokens: int) -> bool:
        """Takes the blocks for ``tokens`` cached tokens in all; False if they are not free."""
        held = self.sequences.held
        more = self.layout.of_one(tokens) - int(held[request])
        if more > self.free:
            return False
        if more > 0:
            held[request] += more
            self.free -= more
        return True

    def release(self, request: int) -> None:
        """Gives back the blocks of a sequence."""
        held = self.sequences.held
        self.free += int(held[request])
        held[request] = 0

    def start(self, request: int) -> None:
        """A sequence that waited runs; its prompt is not complete."""
        self.running.append(request)
        self.filling.append(request)

    def preempt(self, request: int) -> None:
        """A running sequence loses its blocks and waits again, first in the queue; its prompt and
        what it generated are computed again.
        """
        own = self.sequences
        self.release(request)
        self.running.remove(request)
        if request in self.filling:
            self.filling.remove(request)
        own.cached[request] = 0
        own.todo[request] = own.prompt[request] + own.made[request]
        own.preemptions[request] += 1
        self.waiting.appendleft(request)

    def decoding(self) -> list[int]:
        """Running sequences whose prompts are complete and that no step under way holds."""
        if not self.filling and not self.flying:
            return self.running
        kept = self.flying.union(self.filling)
        return [each for each in self.running if each not in kept]

    def steps_to_full(self, decode: I64, most: int) -> int:
        """Decode steps, up to ``most``, for which blocks are free."""
        own, layout = self.sequences, self.layout
        cached, held = own.cached[decode], int(own.held[decode].sum())

        def fits(steps: int) -> bool:
            return int(layout.of_tokens(cached + steps).sum()) - held <= self.free

        if fits(most):
            return most
        low, high = 0, most  # fits(low), not fits(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


class Scheduler(ABC):
    """The policy of one engine for one group of ranks.

    Attributes:
        name: by which engine files ask for it.
        in_order: a new arrival changes nothing while others wait before it.
    """

    name: ClassVar[str]
    in_order: ClassVar[bool] = True

    def __init__(self, group: Group) -> None:
        self.group = group

    @abstractmethod
    def schedule(self) -> StepPlan:
        """What the next step runs; blocks are taken and sequences started or preempted. An empty
        plan = nothing can run.
        """

    def steady(self, plan: StepPlan) -> int:  # noqa: ARG002
        """Decode steps for which this plan of decode alone would be made again, unless a sequence
        arrives or ends; blocks aside.
        """
        return 1 << 40


_REGISTRY: dict[str, type[Scheduler]] = {}


def register(cls: type[Scheduler]) -> type[Scheduler]:
    """Class decorator: makes a policy known by its name."""
    if cls.name in _REGISTRY:
        raise ValueError(f"two policies {cls.name}")
    _REGISTRY[cls.name] = cls
    return cls


def scheduler_named(name: str) -> type[Scheduler]:
    """The policy of a name; its module is imported on first use.

    Raises:
        SilicastError: there is none.
    """
    if name not in _REGISTRY:
        module = f"silicast.serving.engines.{name.replace('-', '_')}"
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise SilicastError(
                f"no scheduling policy {name!r}", kind="unknown_name", field="engine.serving.policy"
            ) from None
    return _REGISTRY[name]
