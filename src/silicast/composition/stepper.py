"""An engine that steps: sequences are admitted, advanced and finished; each step has its times.

A scheduler decides what the next step runs; the stepper says how long it takes and when its results
are known. Host work is carried from step to step. With g the gap between two passes and w the
host's work for a step,

    start[k + 1] = end[k] + g + w[k + 1]                       one after the other
    start[k + 1] = g + max(end[k], start[k] + w[k + 1])        asynchronously

so that a run of equal steps takes what :class:`~silicast.composition.step.StepTimes` says of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.composition.deployment import Deployment
from silicast.composition.step import step_model
from silicast.composition.step_prices import RunPrice, StepPrice, StepPrices
from silicast.core.numerics import F64, I64
from silicast.core.prediction import ErrorFactors


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One step on the simulated clock, seconds.

    Attributes:
        start_s: the device starts; ``end_s``: the last stage has ended.
        price: time of each stage, waits for launches, host work and clock.
        error: of the step's time.
    """

    start_s: float
    end_s: float
    price: StepPrice
    error: ErrorFactors


@final
@dataclass(frozen=True, slots=True)
class Run:
    """Decode steps one after another; ``start_s`` and ``end_s`` have the shape (steps,)."""

    start_s: F64
    end_s: F64
    price: RunPrice
    error: ErrorFactors


@final
class Stepper:
    """The state of one replica of a deployment.

    Args:
        prices: of its steps; several replicas may share them.
        now_s: when the replica is idle and ready.

    >>> from silicast.composition.deployment import Deployment
    >>> from silicast.composition.engine import find_engine
    >>> from silicast.hardware.catalog import find_device
    >>> from silicast.workload.models import find_model
    >>> device, engine = find_device("H100"), find_engine("vllm")
    >>> stepper = Stepper.of(Deployment.of(find_model("Llama-3.1-8B"), device, engine))
    >>> stepper.admit("a", 1000)
    >>> first = stepper.advance({"a": 1000})
    >>> run = stepper.run(100)
    >>> stepper.cached("a"), bool(run.start_s[0] >= first.end_s)
    (1100, True)
    """

    def __init__(self, prices: StepPrices, now_s: float = 0.0) -> None:
        self.prices, self.now_s = prices, now_s
        self._started_s = now_s
        self._idle = True
        self._prompts: dict[str, tuple[int, int]] = {}
        self._names: list[str] = []
        self._place: dict[str, int] = {}
        self._decoding: I64 = np.zeros(0, dtype=np.int64)

    @staticmethod
    def of(deployment: Deployment, now_s: float = 0.0) -> Stepper:
        """A replica of a deployment; raises SilicastError as :class:`StepPrices`."""
        return Stepper(StepPrices(step_model(deployment)), now_s)

    def admit(self, name: str, prompt: int, cached: int = 0) -> None:
        """A sequence joins; its prompt is computed in the steps that name it.

        Args:
            prompt: tokens; ``cached``: those whose keys and values are there already.

        Raises:
            ValueError: the name is taken, or there is nothing to compute.
        """
        if name in self._prompts or name in self._place:
            raise ValueError(f"{name!r} takes part already")
        if not 0 <= cached < prompt:
            raise ValueError(f"{name!r}: {cached} of {prompt} tokens cached: none is left")
        self._prompts[name] = (cached, prompt)

    def finish(self, name: str) -> None:
        """A sequence leaves, whether its prompt is computed or not.

        Raises:
            KeyError: it does not take part.
        """
        if self._prompts.pop(name, None) is not None:
            return
        place = self._place.pop(name)
        last = self._names.pop()
        if last != name:  # the last sequence takes its place: the order does not matter
            self._names[place] = last
            self._place[last] = place
            self._decoding[place] = self._decoding[len(self._names)]
        self._decoding = self._decoding[: len(self._names)]

    def cached(self, name: str) -> int:
        """Tokens of a sequence whose keys and values are cached.

        Raises:
            KeyError: it does not take part.
        """
        return self._prompts[name][0] if name in self._prompts else self._cached_of(name)

    def _cached_of(self, name: str) -> int:
        return int(self._decoding[self._place[name]])

    @property
    def decoding(self) -> int:
        """Sequences whose prompts are computed."""
        return len(self._names)

    def idle_until(self, time_s: float) -> None:
        """Nothing runs until then; the next step's host work starts at that time."""
        self.now_s, self._idle = max(self.now_s, time_s), True

    def advance(
        self, prefill: Mapping[str, int] | None = None, *, decode: bool = True, elsewhere: int = -1
    ) -> Step:
        """One step: the sequences in decode (if ``decode``) by one token, those in prefill by the
        tokens that ``prefill`` names. A sequence whose prompt is complete has its first token and
        decodes from the next step on.

        Args:
            elsewhere: new tokens of the other groups of attention_dp; -1 = as many each.

        Raises:
            ValueError: an empty step, or more tokens than a prompt has left.
            KeyError: a sequence that is not in prefill.
        """
        chunks = dict(prefill or {})
        for name, new in chunks.items():
            done, prompt = self._prompts[name]
            if not 0 < new <= prompt - done:
                raise ValueError(f"{name!r}: {new} tokens of {prompt - done} that are left")
        kv = self._decoding if decode else self._decoding[:0]
        if not chunks and not len(kv):
            raise ValueError("an empty step")
        pairs = [(new, self._prompts[name][0] + new) for name, new in chunks.items()]
        price, error = (
            self.prices.price(pairs, kv, elsewhere),
            self.prices.error(pairs, kv, elsewhere),
        )
        if decode:
            self._decoding += 1
        for name, new in chunks.items():
            done, prompt = self._prompts[name]
            if done + new < prompt:
                self._prompts[name] = (done + new, prompt)
            else:
                self._decode(name, prompt)
        start_s = self._start_s(price.work_s)
        self._started_s, self.now_s, self._idle = start_s, start_s + price.pass_s, False
        return Step(start_s, self.now_s, price, error)

    def run(self, steps: int, elsewhere: int = -1) -> Run:
        """``steps`` decode steps without another event.

        Raises:
            ValueError: no sequence decodes, or no steps.
        """
        if not self.decoding or steps < 1:
            raise ValueError("no sequence decodes" if steps > 0 else "no steps")
        price = self.prices.run(self._decoding, steps, elsewhere)
        error = self.prices.error((), self._decoding, elsewhere)
        passes, gap, work = price.pass_s, self.prices.gap_s, price.work_s
        first = self._start_s(work)
        periods = gap + (np.maximum(passes, work) if self.prices.asynchronous else passes + work)
        starts = first + np.concatenate(([0.0], np.cumsum(periods[:-1])))
        ends = starts + passes
        self._decoding += steps
        self._started_s, self.now_s, self._idle = float(starts[-1]), float(ends[-1]), False
        return Run(starts, ends, price, error)

    def _decode(self, name: str, cached: int) -> None:
        del self._prompts[name]
        self._place[name] = len(self._names)
        self._names.append(name)
        self._decoding = np.append(self._decoding, cached)

    def _start_s(self, work_s: float) -> float:
        """When the device starts the next step."""
        gap = self.prices.gap_s
        if self._idle or not self.prices.asynchronous:
            return self.now_s + gap + work_s
        return gap + max(self.now_s, self._started_s + work_s)
