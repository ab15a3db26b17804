"""Predictions as if an architecture, or long messages, had never been measured.

``held_out/<physics group>.json`` holds, for each architecture, the constants that were fitted
without any row of it (``lab/fit_*.py``). Chips of one architecture are left out together;
``held_out_devices`` holds those of collectives without one device, where others of its architecture
have the same link. ``held_out_sizes`` holds constants and corrections of collectives that were
fitted on short messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import final

import msgspec

from lab.scorecard.suite import resting
from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, decode_json
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import Physics, has_physics, load_physics, replaced
from silicast.kernels.physics.measured_range import PHYSICS as KNOWLEDGE
from silicast.kernels.physics.unseen import BOARDS
from silicast.learning.artefact import Artefact, read_artefact
from silicast.learning.tiers import Evidence

FOLDER = Path(__file__).parent / "held_out"
JUDGED = "software_log_sd"
OF_DEVICES = Path(__file__).parent / "held_out_devices" / "communication.json"
SHORT = Path(__file__).parent / "held_out_sizes" / "communication.json"


@final
class Body(Strict, frozen=True):
    """Constants without an architecture, as :class:`~silicast.kernels.physics.constants.Physics`
    has them.
    """

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
    page = "docs/explanation/shipped-numbers.md"
    held_out = decode_json(path.read_bytes(), dict[str, Body], file=str(path), page=page)
    for architecture, body in held_out.items():
        if architecture in body.architectures:
            raise SilicastError(
                f"constants without {architecture} hold some of its own",
                file=str(path),
                field=architecture,
                hint="make them again: make artefacts",
            )
    return held_out


def groups() -> tuple[str, ...]:
    """Physics groups with constants, and with those of held-out architectures, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json") if has_physics(path.stem)))


def constants_without(group: str, architecture: str) -> Physics:
    """The constants of a physics group that were fitted without an architecture's rows."""
    return _physics(group, held_out(group)[architecture])


@contextmanager
def unmeasured(architecture: str, also: str = "") -> Iterator[None]:
    """Inside, kernels of an architecture are predicted from those of others, in the analytic tier.

    Args:
        also: a second architecture that is left out: its constants become the geometric means of
            those that remain. What all architectures share was fitted with its rows.
    """
    table = {}
    for group in groups():
        body = held_out(group).get(architecture)
        if body is not None:
            rule = body.fallback.get(architecture)
            table[group] = _physics(group, _without(body, also, rule) if also else body)
    # which boards were measured is forgotten too
    table[BOARDS] = _bare(BOARDS, architecture, also)
    with replaced(table), resting(Evidence(learned=False)):
        yield


@contextmanager
def unknown_architecture(architecture: str) -> Iterator[None]:
    """The same with no constants of the architecture at all.

    Where none were fitted without it, its own are taken out, those of its boards by name too, and
    those of architectures that were never measured are used.
    """
    bare = {}
    without = groups()
    for path in sorted((CATALOG / "physics").glob("*.json")):
        group = path.stem
        if has_physics(group) and not (group in without and architecture in held_out(group)):
            bare[group] = _bare(group, architecture)
    with unmeasured(architecture), replaced(bare):
        yield


def _bare(group: str, *architectures: str) -> Physics:
    """Constants of a group without what some architectures and their boards have for their own."""
    physics = load_physics(group)
    others = {
        name: table
        for name, table in physics.architectures.items()
        if not any(_is_of(name, architecture) for architecture in architectures)
    }
    if group == KNOWLEDGE:
        # how far libraries of its maker may be off is no measurement of it
        judged = {a: physics.architectures.get(a, {}).get(JUDGED) for a in architectures}
        others |= {a: {JUDGED: value} for a, value in judged.items() if value is not None}
    return msgspec.structs.replace(physics, architectures=others)


def _is_of(name: str, architecture: str) -> bool:
    """Whether constants are an architecture's or one of its boards'."""
    if name == architecture:
        return True
    try:
        return find_device(name).architecture == architecture
    except SilicastError:  # of a class of architectures
        return False


@cache
def collectives_without() -> Mapping[str, Physics]:
    """Device -> constants of collectives that were fitted without its rows."""
    bodies = msgspec.json.decode(OF_DEVICES.read_bytes(), type=dict[str, Body])
    return {device: _physics("communication", body) for device, body in bodies.items()}


def constants_of_short_messages() -> Physics:
    """Constants of collectives that were fitted on short messages only."""
    return _physics("communication", msgspec.json.decode(SHORT.read_bytes(), type=Body))


@cache
def corrections_of_short_messages() -> Artefact:
    """Corrections that were trained with them."""
    return read_artefact(SHORT.with_name("collective.json"))


def _physics(group: str, body: Body) -> Physics:
    physics = load_physics(group)
    return msgspec.structs.replace(
        physics, default=body.default, architectures=body.architectures, fallback=body.fallback
    )


def _without(body: Body, architecture: str, rule: str | None) -> Body:
    """A body without one more architecture, which has the same fallback."""
    others = {a: table for a, table in body.architectures.items() if a != architecture}
    default = dict(body.default)
    for name in body.architectures.get(architecture, {}):
        values = [table[name] for table in others.values() if table.get(name, 0.0) > 0.0]
        if values and name in default and default[name] > 0.0:
            default[name] = math.exp(math.fsum(map(math.log, values)) / len(values))
    stand_in = {architecture: rule} if rule else {}
    return Body(default, others, {**body.fallback, **stand_in})
