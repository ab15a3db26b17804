"""How much an answer moves with numbers of a scenario or of its device."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from silicast.core.decode import fields_of
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import near
from silicast.hardware.catalog import with_base
from silicast.hardware.device_file import numbers_of
from silicast.scenario.answer import Reply
from silicast.scenario.run import reply_to
from silicast.scenario.schema import RawScenario
from silicast.scenario.set_fields import with_fields

Tree = dict[str, Any]

FLAG: Final = "--set"
EXAMPLE: Final = "for example --set memory.dram.bandwidth_gb_per_s=+20%"
_PERCENT = re.compile(r"([+-]?)(\d+(?:\.\d+)?)%")


@final
@dataclass(frozen=True)
class NumberChange:
    """A number, and the shares by which it is changed.

    Attributes:
        path: of the scenario, or of its device's file.
        shares: 0.2 = 20 % more.
    """

    path: str
    shares: tuple[float, ...]

    @staticmethod
    def parse(text: str) -> NumberChange:
        """From words such as ``limits.power_w=-10%``; without a sign, both ways.

        Raises:
            SilicastError: no such words, or a change by nothing or by all of it.

        >>> NumberChange.parse("memory.dram.bandwidth_gb_per_s=20%").shares
        (-0.2, 0.2)
        """
        path, _, value = text.partition("=")
        match = _PERCENT.fullmatch(value.strip())
        if not path or match is None:
            raise SilicastError(
                f"expected FIELD=+20%, found {text[:60]!r}", field=FLAG, hint=EXAMPLE
            )
        share = float(match.group(2)) / 100.0
        if not 0.0 < share < 1.0 and match.group(1) != "+":
            raise SilicastError(f"expected 0 to 100 %, found {value}", field=FLAG)
        signs = {"+": (1.0,), "-": (-1.0,), "": (-1.0, 1.0)}[match.group(1)]
        return NumberChange(path.strip(), tuple(sign * share for sign in signs))


@final
@dataclass(frozen=True)
class ChangedAnswer:
    """The answer with one number changed.

    Attributes:
        before, after: the number.
    """

    path: str
    before: float
    after: float
    reply: Reply


def sensitivities(
    tree: Tree, changes: Sequence[NumberChange], folder: Path | None = None
) -> tuple[Reply, list[ChangedAnswer]]:
    """The answer as it is, and with each number changed alone.

    Raises:
        SilicastError: a path that leads to no number.
    """
    rows = []
    for change in changes:
        for share in change.shares:
            changed, before, after = _changed(tree, change.path, share)
            rows.append(ChangedAnswer(change.path, before, after, reply_to(changed, folder=folder)))
    return reply_to(tree, folder=folder), rows


def _changed(tree: Tree, path: str, share: float) -> tuple[Tree, float, float]:
    """The scenario with a number changed, and the number before and after."""
    if path.partition(".")[0] in fields_of(RawScenario):
        before = _number(_at(tree, path), path, "the scenario states no such number")
        after = _scaled(before, share, path)
        return with_fields(tree, {path: after}), before, after
    spec = tree.get("device")
    if not isinstance(spec, str | dict) or (isinstance(spec, str) and spec.endswith(".toml")):
        raise SilicastError(
            f"{path} is of a device file: change it there", field=FLAG, hint=EXAMPLE
        )
    table = {"base": spec} if isinstance(spec, str) else dict(spec)
    described = with_base(table)
    value = _at(described, path)
    if value is None:
        raise unknown_name(
            f"{path}: neither a field of scenarios nor of the device",
            FLAG,
            near(path, [name for name, _ in numbers_of(described) if "[" not in name]),
        )
    before = _number(value, path, "is no number")
    after = _scaled(before, share, path)
    return {**tree, "device": with_fields(table, {path: after})}, before, after


def _at(table: Any, path: str) -> Any:
    for step in path.split("."):
        table = table.get(step) if isinstance(table, Mapping) else None
    return table


def _number(value: Any, path: str, message: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SilicastError(f"{path}: {message}", field=FLAG, hint=EXAMPLE)
    return value


def _scaled(value: float, share: float, path: str) -> float:
    """The number changed; counts stay whole.

    Raises:
        SilicastError: a count that is too small to change by so little.
    """
    scaled = value * (1.0 + share)
    if not isinstance(value, int):
        return scaled
    if round(scaled) == value:
        raise SilicastError(
            f"{path} = {value} is a whole number, and {share:+.0%} is less than one of it",
            field=FLAG,
            hint="a larger change",
        )
    return round(scaled)
