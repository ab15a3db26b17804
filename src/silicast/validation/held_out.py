"""Predictions as if an architecture had never been measured, for scores on what it then gets.

``held_out/<physics group>.json`` holds, for each architecture, the constants that were fitted
without any row of it (``benchmarks/fit_*.py --transfer``). Sister chips share an architecture, so
leaving it out leaves all of them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import final

import msgspec

from silicast.core.errors import SilicastError
from silicast.kernels.physics import Physics, load_physics, replaced
from silicast.learning.tiers import Evidence
from silicast.validation.suite import resting

FOLDER = Path(__file__).parent / "held_out"


@final
class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constants without an architecture, as :class:`~silicast.kernels.physics.Physics` has them."""

    default: dict[str, float]
    architectures: dict[str, dict[str, float]]
    fallback: dict[str, str] = {}


@cache
def held_out(group: str) -> Mapping[str, Body]:
    """Architecture -> the constants of a physics group without it; empty if none were fitted.

    Raises:
        SilicastError: the file is broken; names it.
    """
    path = FOLDER / f"{group}.json"
    if not path.is_file():
        return {}
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Body])
    except msgspec.DecodeError as error:
        raise SilicastError(f"holds no constants: {error}", file=str(path)) from None
    for architecture, body in found.items():
        if architecture in body.architectures:
            raise SilicastError(
                f"constants without {architecture} hold some of its own", file=str(path),
                field=architecture, hint="fit them again with --transfer",
            )  # fmt: skip
    return found


def groups() -> tuple[str, ...]:
    """Physics groups with constants of held-out architectures, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


@contextmanager
def unmeasured(architecture: str, also: str = "") -> Iterator[None]:
    """Inside, kernels of an architecture are predicted from those of others, in the analytic tier.

    Args:
        also: a second architecture that its own rows no longer apply to: its constants become the
            geometric means of those that remain. What all share was fitted with its rows.
    """
    found = {}
    for group in groups():
        body = held_out(group).get(architecture)
        if body is not None:
            rule = body.fallback.get(architecture)
            found[group] = _physics(group, _without(body, also, rule) if also else body)
    with replaced(found), resting(Evidence(learned=False)):
        yield


def _physics(group: str, body: Body) -> Physics:
    own = load_physics(group)
    return msgspec.structs.replace(
        own, default=body.default, architectures=body.architectures, fallback=body.fallback
    )


def _without(body: Body, architecture: str, rule: str | None) -> Body:
    """A body without one more architecture, for which the same stands in."""
    others = {a: table for a, table in body.architectures.items() if a != architecture}
    default = dict(body.default)
    for name in body.architectures.get(architecture, {}):
        values = [table[name] for table in others.values() if table.get(name, 0.0) > 0.0]
        if values and name in default and default[name] > 0.0:
            default[name] = math.exp(math.fsum(map(math.log, values)) / len(values))
    stand_in = {architecture: rule} if rule else {}
    return Body(default, others, {**body.fallback, **stand_in})
