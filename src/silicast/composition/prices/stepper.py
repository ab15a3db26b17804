"""The clock of one replica: when each step starts on the device, and when its results are known.

A scheduler decides what the next step runs; its price is of
:mod:`~silicast.composition.prices.step_prices`. Host work is
carried from step to step. With g the gap between two passes and w the host's work for a step,

    start[k + 1] = end[k] + g + w[k + 1]                       one after the other
    start[k + 1] = g + max(end[k], start[k] + w[k + 1])        asynchronously

so that a run of equal steps takes what :class:`~silicast.composition.step.step.StepTimes` says of
one.
With pipeline stages, ``end`` of the first rule is that of the first stage: the next batch follows
as soon as it is free, and each later stage waits for its own turn. Times are whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.step_prices import RunPrice, StepPrice, step_prices
from silicast.composition.step.stage_graph import StageGraph

NANO = 1_000_000_000


def to_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * NANO)


@final
class TimedStep(NamedTuple):
    """One step: ``start_ns`` the device starts, ``end_ns`` the last stage has ended."""

    start_ns: int
    end_ns: int
    price: StepPrice


@final
class Run(NamedTuple):
    """Decode steps one after another: when each starts, and ends."""

    start_ns: list[int]
    end_ns: list[int]


@final
class Stepper:
    """The clock of one replica of a deployment.

    Args:
        prices: of its steps; several replicas may share them.
        now_ns: when the replica is idle and ready.

    Attributes:
        now_ns: end of the last step; ``started_ns``: its start.
        in_flight: steps that are under way at once.
        asynchronous: whether a step is scheduled as soon as the one before has started.

    >>> import numpy as np
    >>> from silicast.composition.passes.deployment import Deployment
    >>> from silicast.composition.engines.engine import find_engine
    >>> from silicast.hardware.catalog import find_device
    >>> from silicast.workload.models.lookup import find_model
    >>> device, engine = find_device("H100"), find_engine("vllm")
    >>> deployment = Deployment.from_model(find_model("Llama-3.1-8B"), device, engine)
    >>> stepper = Stepper.from_deployment(deployment)
    >>> first = stepper.step([(1000, 1000)], np.zeros(0, dtype=np.int64))
    >>> run = stepper.run(np.array([1000]), 100)
    >>> bool(run.start_ns[0] >= first.end_ns), stepper.now_ns == first.end_ns
    (True, True)
    >>> stepper.take(run, 40)
    >>> bool(stepper.now_ns == run.end_ns[39])
    True
    """

    def __init__(self, prices: StepPricing, now_ns: int = 0) -> None:
        self.prices = prices
        self.now_ns = now_ns
        self.started_ns = now_ns
        self.in_flight: int = prices.graph.in_flight
        self.asynchronous: bool = prices.asynchronous
        self._gap_ns = to_ns(prices.gap_s)
        self._free_ns = [now_ns] * self.in_flight
        self._idle = True

    @staticmethod
    def from_deployment(deployment: Deployment, now_ns: int = 0) -> Stepper:
        """A replica of a deployment; raises SilicastError as :class:`StepPrices`."""
        return Stepper(step_prices(deployment), now_ns)

    def idle_until(self, time_ns: int) -> None:
        """Nothing runs until then; the next step's host work starts at that time."""
        self.now_ns, self._idle = max(self.now_ns, time_ns), True

    def step(
        self,
        prefill: Sequence[tuple[int, int]],
        decode_kv: Lengths,
        elsewhere: int = -1,
        decided_ns: int = 0,
        copy_ns: int = 0,
        least_ns: int = 0,
    ) -> TimedStep:
        """Runs one step.

        Args:
            prefill: (new tokens, past plus new tokens) of each sequence in prefill.
            decode_kv: cached tokens, without the new one, of each decoding sequence.
            elsewhere: new tokens of the other groups of attention_dp; -1 = as many each.
            decided_ns: when its inputs are known, with several steps in flight; the host's work
                begins then.
            copy_ns: that the device copies something before it starts.
            least_ns: that it takes at least.

        Raises:
            ValueError: an empty step.
        """
        if not prefill and not len(decode_kv):
            raise ValueError("an empty step")
        price = self.prices.price(prefill, decode_kv, elsewhere)
        work = to_ns(price.work_s)
        start = max(self._start_ns(work), decided_ns + self._gap_ns + work if decided_ns else 0)
        start += copy_ns
        end = start + to_ns(price.waits_s)
        if self.in_flight == 1:
            end = start + max(to_ns(price.pass_s), least_ns)
            self._free_ns[0] = end
        else:
            for stage, seconds in enumerate(price.stages_s):
                end = max(end, self._free_ns[stage]) + to_ns(seconds)
                if stage == self.in_flight - 1:
                    end = max(end, start + least_ns)
                self._free_ns[stage] = end
        self.started_ns = start
        self.now_ns = end
        self._idle = False
        return TimedStep(start, end, price)

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> Run:
        """``steps`` decode steps of the same sequences, each a token longer than the one before,
        as they would be run now (:meth:`take` runs them).

        Raises:
            ValueError: no sequence decodes, or no steps, or several in flight.
        """
        if not len(decode_kv) or steps < 1 or self.in_flight > 1:
            raise ValueError("no sequence decodes, or no steps, or several in flight")
        price = self.prices.run(decode_kv, steps, elsewhere)
        work, gap = to_ns(price.work_s), self._gap_ns
        start = self._start_ns(work)
        starts, ends = [], []
        for pass_s in price.pass_s:
            took = round(pass_s * NANO)
            starts.append(start)
            ends.append(start + took)
            if not self.asynchronous:
                took += work
            elif took < work:
                took = work
            start += gap + took
        return Run(starts, ends)

    def take(self, run: Run, steps: int) -> None:
        """Runs the first ``steps`` of a run that was asked for now."""
        self.started_ns = run.start_ns[steps - 1]
        self.now_ns = run.end_ns[steps - 1]
        self._free_ns[0], self._idle = self.now_ns, False

    def retime(self, start_ns: int, end_ns: int) -> None:
        """The step that runs, the only one in flight, starts and ends at other times."""
        self.started_ns = start_ns
        self.now_ns = end_ns
        self._free_ns[0] = end_ns

    def _start_ns(self, work_ns: int) -> int:
        """When the device starts the next step."""
        if self._idle:
            return max(self.now_ns, self._free_ns[0]) + self._gap_ns + work_ns
        ready = self._free_ns[0]
        if not self.asynchronous:
            return ready + self._gap_ns + work_ns
        return self._gap_ns + max(ready, self.started_ns + work_ns)


class StepPricing(Protocol):
    """What a stepper asks of prices; see
    :class:`~silicast.composition.prices.step_prices.StepPrices`.
    """

    @property
    def graph(self) -> StageGraph:
        """The stage graph of a step."""

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before."""

    @property
    def gap_s(self) -> float:
        """Seconds between two passes."""

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        """The price of one step."""

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        """Decode steps one after another."""


@final
@dataclass(frozen=True, slots=True)
class Pace:
    """True over predicted times.

    Attributes:
        decode: of steps of decode alone; prefill: of steps with prompts; host: of the front and
            the back of the engine.
    """

    decode: float = 1.0
    prefill: float = 1.0
    host: float = 1.0


@final
class PacedPrices:
    """Prices at another pace: device, waits and host work of a step change together.

    >>> from silicast.composition.passes.deployment import Deployment
    >>> from silicast.composition.engines.engine import find_engine
    >>> from silicast.composition.step.step import step_model
    >>> from silicast.composition.prices.step_prices import StepPrices
    >>> from silicast.hardware.catalog import find_device
    >>> from silicast.workload.models.lookup import find_model
    >>> device, engine = find_device("H100"), find_engine("vllm")
    >>> deployment = Deployment.from_model(find_model("Llama-3.1-8B"), device, engine)
    >>> prices = StepPrices(step_model(deployment))
    >>> slow = PacedPrices(prices, Pace(decode=1.25, prefill=1.5))
    >>> one = [(100, 100)]
    >>> import numpy as np
    >>> none = np.zeros(0, dtype=np.int64)
    >>> round(slow.price(one, none).pass_s / prices.price(one, none).pass_s, 9)
    1.5
    """

    def __init__(self, prices: StepPricing, pace: Pace) -> None:
        self._prices, self._pace = prices, pace

    @property
    def graph(self) -> StageGraph:
        """The stage graph of a step."""
        return self._prices.graph

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before."""
        return self._prices.asynchronous

    @property
    def gap_s(self) -> float:
        return self._prices.gap_s * self._pace.decode

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        price = self._prices.price(prefill, decode_kv, elsewhere)
        by = self._pace.prefill if prefill else self._pace.decode
        stages_s = tuple([each * by for each in price.stages_s])
        return StepPrice(stages_s, price.waits_s * by, price.work_s * by, price.clock_hz)

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        run, by = self._prices.run(decode_kv, steps, elsewhere), self._pace.decode
        stages_s = [[seconds * by for seconds in stage] for stage in run.stages_s]
        waits_s = [seconds * by for seconds in run.waits_s]
        return RunPrice(stages_s, waits_s, run.work_s * by, run.clock_hz)


@final
class SlowerPrices:
    """The slower of two prices of each step.

    A part of a device is no quicker than the device, whatever kernels a library is predicted to
    choose on either.

    Args:
        own: whose host work, clock and gaps count; ``least``: that no step is quicker than.
    """

    def __init__(self, own: StepPricing, least: StepPricing) -> None:
        self._own, self._least = own, least

    @property
    def graph(self) -> StageGraph:
        """The stage graph of a step."""
        return self._own.graph

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before."""
        return self._own.asynchronous

    @property
    def gap_s(self) -> float:
        return self._own.gap_s

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        price = self._own.price(prefill, decode_kv, elsewhere)
        least = self._least.price(prefill, decode_kv, elsewhere)
        stages = zip(price.stages_s, least.stages_s, strict=True)
        return price._replace(
            stages_s=tuple(max(pair) for pair in stages), waits_s=max(price.waits_s, least.waits_s)
        )

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        current = self._own.run(decode_kv, steps, elsewhere)
        least = self._least.run(decode_kv, steps, elsewhere)
        return current._replace(
            stages_s=[
                list(map(max, *pair)) for pair in zip(current.stages_s, least.stages_s, strict=True)
            ],
            waits_s=list(map(max, current.waits_s, least.waits_s)),
        )
