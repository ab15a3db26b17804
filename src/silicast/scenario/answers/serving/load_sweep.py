"""One serving scenario under many loads: the curve of latency against load, and its knee."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.reading.numbers import series
from silicast.scenario.set_fields import with_fields
from silicast.serving.capacity.knee import Knee, estimated_knee, knee_of
from silicast.serving.capacity.objective import LatencyObjective

FIELD: Final = "--sweep"
EXAMPLE: Final = "for example rate, rate=1..20 or concurrency=1,2,4..256"
FIELDS: Final = {"rate": "rate_per_s", "concurrency": "concurrency"}
"""What is swept -> field of the arrival."""
MOST: Final = 64
"""Points of a sweep."""
SPANNING: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Of the most that a deployment answers: the loads of a sweep that states none."""


@final
@dataclass(frozen=True)
class SweptLoads:
    """Loads in ascending order.

    Attributes:
        what: "rate" (requests a second) or "concurrency" (clients).
        values: () = up to what the deployment answers (:func:`spanning`).
    """

    what: str
    values: tuple[float, ...]

    def arrival(self, value: float) -> dict[str, Any]:
        """How requests come at one of them."""
        kind = "poisson" if self.what == "rate" else "closed"
        return {"kind": kind, FIELDS[self.what]: value if self.what == "rate" else int(value)}

    @staticmethod
    def parse(text: str) -> SweptLoads:
        """Loads as a user writes them: values with commas between; two points go on from the two
        values before, by their ratio if the next is the same ratio away, else by their difference,
        and by 1 after a single one. "rate" or "concurrency" alone leaves them open.

        Raises:
            SilicastError: not of that form, no load at all, or more than :data:`MOST`.

        >>> SweptLoads.parse("rate=1..4").values, SweptLoads.parse("concurrency=1,2,4..20").values
        ((1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 4.0, 8.0, 16.0, 20.0))
        >>> SweptLoads.parse("rate=0.5,1..3").values
        (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
        """
        field, equals, words = (part.strip() for part in text.partition("="))
        if field in FIELDS and not equals:
            return SweptLoads(field, ())
        if not equals or field not in FIELDS:
            raise _wrong(f"expected rate= or concurrency=, found {text[:60]!r}")
        values = series(words, lambda text: _number(text, field), MOST, _wrong)
        if values != sorted(set(values)):
            raise _wrong(f"{words[:60]!r}: loads must grow", "from the smallest to the largest")
        if len(values) > MOST:
            raise _wrong(
                f"{len(values)} loads, and at most {MOST} are swept",
                "state the step, as rate=1,3..20, or a ratio, as 1,2,4..256",
            )
        return SweptLoads(field, tuple(values))


@final
@dataclass(frozen=True)
class LoadCurve:
    """Answers of a sweep, as far as it came.

    Attributes:
        points: (load, answer or the reason why there is none) in ascending order of loads.
    """

    what: str
    points: tuple[tuple[float, Answer | SilicastError], ...]

    @property
    def answered(self) -> list[tuple[float, Answer]]:
        """Loads with an answer."""
        return [(load, item) for load, item in self.points if isinstance(item, Answer)]

    @property
    def knee(self) -> int | None:
        """The place of the knee among the answered: of the load that is nearest to the deployment's
        (:func:`.estimated_knee`), and of several pools of the most throughput over latency; None
        where it is not inside.
        """
        answered = self.answered
        if len(answered) < 3:
            return None
        if (there := self.expected_knee) is not None:
            at = there["rate_per_s" if self.what == "rate" else "concurrency"]
            loads = [load for load, _ in answered]
            inside = loads[0] <= at <= loads[-1]
            nearest = min(range(len(loads)), key=lambda i: abs(math.log(loads[i] / at)))
            return nearest if inside else None
        rates = [answer.metrics["requests_per_s"].estimate for _, answer in answered]
        waits = [answer.metrics["e2e_mean_ms"].estimate for _, answer in answered]
        position = knee_of(rates, waits)
        return position if 0 < position < len(answered) - 1 else None

    @property
    def expected_knee(self) -> Mapping[str, float] | None:
        """The knee of the deployment; None of several pools."""
        knees = (answer.why.get("knee") for _, answer in self.answered)
        return next((knee for knee in knees if knee is not None), None)

    @property
    def saturated(self) -> int | None:
        """The first answered load whose queue only grows, or that is more than steps of the largest
        batch can answer; None = there is none, or clients wait for their answers.
        """
        if self.what != "rate":
            return None
        for index, (load, answer) in enumerate(self.answered):
            grows = answer.why["requests"]["queue_growth"] > LatencyObjective.growth
            most = answer.why.get("knee", {}).get("most_per_s", math.inf)
            if grows or load > most:
                return index
        return None


def with_load(scenario: Mapping[str, Any], loads: SweptLoads, value: float) -> dict[str, Any]:
    """The scenario at one load."""
    return with_fields(scenario, {"workload.arrival": loads.arrival(value)})


def points_of(
    scenario: Mapping[str, Any], loads: SweptLoads
) -> Iterator[tuple[float, Answer | SilicastError]]:
    """Answers one by one, each with the same seed; an error of one load ends none of the others,
    but of the first load all.

    Raises:
        SilicastError: the first load cannot be answered.
    """
    from silicast.scenario.decode import decode
    from silicast.scenario.run import run

    for number, value in enumerate(loads.values):
        try:
            yield value, run(decode(with_load(scenario, loads, value)))
        except SilicastError as error:
            if number == 0:
                raise
            yield value, error


def spanning(scenario: Mapping[str, Any], loads: SweptLoads) -> SweptLoads:
    """The loads; those that state no values, with values up to the most that is answered.

    Raises:
        SilicastError: of several pools nobody knows it before they are simulated.
    """
    if loads.values:
        return loads
    knee = _knee(with_load(scenario, loads, 1.0))
    if loads.what == "concurrency":
        powers = (1 << power for power in range(int(knee.most_concurrency).bit_length()))
        return SweptLoads(loads.what, tuple(map(float, powers)))
    rates = (float(f"{share * knee.most_per_s:.2g}") for share in SPANNING)
    return SweptLoads(loads.what, tuple(sorted({*rates, float(f"{knee.rate_per_s:.3g}")})))


def _knee(scenario: Mapping[str, Any]) -> Knee:
    from silicast.scenario.answers.serving.answerer import prepared
    from silicast.scenario.decode import decode

    served = prepared(decode(dict(scenario))).served
    if len(served.fleet.pools) > 1 or served.spec.policy.one_pass:
        raise _wrong("nothing says here which loads are answered", "state them, as rate=1..20")
    return estimated_knee(served.spec, served.requests, served.replicas)


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _wrong(f"{text[:40]!r} is not a number") from None
    if not 0.0 < value < math.inf:
        raise _wrong(f"{text[:40]!r} is not above zero")
    if what == "concurrency" and value != int(value):
        raise _wrong(f"{text[:40]!r} is not a whole number of clients")
    return value


def _wrong(message: str, hint: str = EXAMPLE) -> SilicastError:
    return SilicastError(message, field=FIELD, hint=hint)
