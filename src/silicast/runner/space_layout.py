"""The points of a space that a stranger sends, laid out by the process that answers them."""

from __future__ import annotations

from typing import Any, final

import msgspec

from silicast.core.decode import decode
from silicast.core.errors import SilicastError, over_limit
from silicast.core.plain_data import parse_json
from silicast.exploration.scenario_space import (
    ScenarioPoint,
    ScenarioSpace,
    SweepFile,
    scenario_space,
)
from silicast.runner.points import check_fields
from silicast.runner.replies import Replied, defect
from silicast.scenario.answer import refusal
from silicast.scenario.reading.inline_only import refuse_paths
from silicast.scenario.set_fields import with_fields


@final
class LaidOutPoint(msgspec.Struct, frozen=True):
    """A point: fields that vary, and its scenario, whose id is the number of the point."""

    fields: msgspec.Raw
    case: msgspec.Raw


@final
class SpaceLayout(msgspec.Struct, frozen=True):
    """Legal points of a space, and how many each constraint rules out."""

    points: list[LaidOutPoint]
    ruled_out: dict[str, int]


def laid_out(content: bytes, most: int) -> Replied:
    """The layout of a space as a line of JSON, or its refusal.

    Args:
        content: what the file of a sweep holds, as JSON.
        most: combinations at most, legal or not.
    """
    try:
        return Replied(None, True, msgspec.json.encode(_layout(content, most)))
    except SilicastError as error:
        return Replied.from_reply(refusal(error))
    except (RecursionError, MemoryError, ArithmeticError, ValueError, TypeError) as error:
        return Replied.from_reply(defect(error, None))


def _layout(content: bytes, most: int) -> SpaceLayout:
    space = scenario_space(decode(parse_json(content), SweepFile))
    if space.rows > most:
        message = f"the space has {space.rows:,} points; at most {most:,} are answered"
        raise over_limit(message, "axis", "give larger steps or fewer axes, or several sweeps")
    space.check()
    points = [
        _laid_out_point(at, space, point)
        for at, point in enumerate(point for points in space.points() for point in points)
    ]
    check_fields(space, None)
    _, ruled_out = space.counts()
    return SpaceLayout(points, dict(ruled_out))


def _laid_out_point(at: int, space: ScenarioSpace, point: ScenarioPoint) -> LaidOutPoint:
    tree = with_fields(space.base, point.fields)
    refuse_paths(tree)
    return LaidOutPoint(_raw(dict(point.fields)), _raw({"id": at, **tree}))


def _raw(tree: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(tree))
