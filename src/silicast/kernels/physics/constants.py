"""Physical constants of kernels (launch time, achievable fractions of peak) per architecture.

They are estimated from measured kernels by ``lab/fit_*.py`` and shipped as data files,
``catalog/physics/<family group>.json``, each with a card: data, split, scores, date. Code holds
none of them, and a device file never holds them either.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, final

import msgspec

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.core.provenance import Provenance


@final
class PhysicsCard(Strict, frozen=True):
    """Where constants come from: data, split, fitting command, scores and date, and what they were
    made from (None = not recorded).
    """

    data: list[str]
    split: str
    command: str
    date: str
    scores: dict[str, Any] = {}
    notes: str = ""
    provenance: Provenance | None = None


@final
class Physics(Strict, frozen=True, dict=True):
    """Constants of one family group.

    Attributes:
        format: version of this file's layout.
        architectures: architecture -> constant name -> value.
        fallback: architecture -> the one whose constants stand in where it has none.
        default: constants for architectures that nothing stands in for.
        refined: architecture -> constants put over all of these; "" = over those of every other
            architecture. No file holds them here: see :data:`WHOLE_MODELS`.
    """

    format: int
    card: PhysicsCard
    default: dict[str, float]
    architectures: dict[str, dict[str, float]]
    fallback: dict[str, str] = {}
    refined: dict[str, dict[str, float]] = {}

    def constants(self, architecture: str) -> Mapping[str, float]:
        """All constants for ``architecture``: its own, else its stand-in's, else the default; the
        same table whenever it is asked for.
        """
        cached = self._known.get(architecture)
        if cached is not None:
            return cached
        name = architecture
        if name not in self.architectures:
            name = self.fallback.get(architecture, "")
        over = self.refined.get(architecture, self.refined.get("", {}))
        table = {**self.default, **self.architectures.get(name, {}), **over}
        return self._known.setdefault(architecture, table)

    @cached_property
    def _known(self) -> dict[str, Mapping[str, float]]:
        return {}

    def is_measured(self, architecture: str) -> bool:
        """Whether kernels of this very architecture were measured."""
        return architecture in self.architectures


WHOLE_MODELS = "whole_models"
"""The group of constants, named ``<group>.<constant>``, that no kernel was measured for on an
architecture: they are estimated from times of whole models, last of all, and put over the others.
"""

NO_CONSTANTS = Physics(1, PhysicsCard([], "", "", ""), {}, {})


@cache
def has_physics(group: str) -> bool:
    """Whether there is a constants file of that name, or :func:`replaced` put one in its place;
    not if it put :data:`NO_CONSTANTS` there.
    """
    if group in _REPLACED:
        return _REPLACED[group] is not NO_CONSTANTS
    return (CATALOG / "physics" / f"{group}.json").is_file()


@cache
def load_physics(group: str) -> Physics:
    """The constants file ``catalog/physics/<group>.json``, or what :func:`replaced` put there, with
    what whole models showed of it.
    """
    value = _REPLACED.get(group) or _shipped(group)
    return value if group == WHOLE_MODELS else _with_whole_models(group, value)


def _with_whole_models(group: str, physics: Physics) -> Physics:
    """A group's constants, some of them replaced by those that only whole models could show."""
    if not has_physics(WHOLE_MODELS):
        return physics
    shown, start = load_physics(WHOLE_MODELS), f"{group}."
    names = {*shown.architectures, *shown.fallback, ""}
    refined = {
        name: {
            key.removeprefix(start): value
            for key, value in shown.constants(name).items()
            if key.startswith(start)
        }
        for name in names
    }
    if not any(refined.values()):
        return physics
    return msgspec.structs.replace(physics, refined=refined)


def shipped_provenance(group: str) -> Provenance | None:
    """What the shipped constants of a group were made from; None = not recorded."""
    return _shipped(group).card.provenance if has_physics(group) else None


def constants_of(group: str, architecture: str) -> Mapping[str, float]:
    """The constants of a group for an architecture.

    Those of architectures that multiply with MFMA instructions are fitted apart and lie in
    ``<group>_mfma.json``, where there is one.
    """
    return _known_by(group, architecture).constants(architecture)


def measured_constants(group: str, architecture: str) -> Mapping[str, float]:
    """What was measured on this very architecture; empty if nothing was.

    >>> bool(measured_constants("gemm", "cdna3")), bool(measured_constants("gemm", "rdna3"))
    (True, False)
    """
    return _known_by(group, architecture).architectures.get(architecture, {})


def is_measured(group: str, architecture: str) -> bool:
    """Whether this very architecture was measured; all of its constants may be the usual ones.

    >>> is_measured("sparse", "hopper"), is_measured("sparse", "volta")
    (True, False)
    """
    return _known_by(group, architecture).is_measured(architecture)


def _known_by(group: str, architecture: str) -> Physics:
    """The constants file of a group that is about an architecture."""
    name = f"{group}_mfma"
    if has_physics(name):
        apart = load_physics(name)
        if architecture in apart.architectures or architecture in apart.fallback:
            return apart
    return load_physics(group)


def shared_errors(family: str, c: Mapping[str, float]) -> dict[str, float]:
    """Log sd of the errors that all kernels of a family share, by factor."""
    return {f"family:{family}": c["family_log_sd"], "device": c["device_log_sd"]}


@contextmanager
def replaced(groups: Mapping[str, Physics]) -> Iterator[None]:
    """Inside, the named groups have other constants: for scores on what they were not fitted on.

    Kernel models remember what they made of constants; all that is forgotten at both ends. Not for
    threads that predict at the same time.
    """
    before = dict(_REPLACED)
    _REPLACED.update(groups)
    _forget()
    try:
        yield
    finally:
        _REPLACED.clear()
        _REPLACED.update(before)
        _forget()


def are_replaced() -> bool:
    """Whether some constants are not those of the catalog (:func:`replaced`)."""
    return bool(_REPLACED)


_REPLACED: dict[str, Physics] = {}
_PACKAGES = ("kernels", "communication", "learning", "composition", "serving")
_RESTING = tuple(f"silicast.{x}." for x in _PACKAGES)
"""Packages that may remember what they made of constants."""


@cache
def _shipped(group: str) -> Physics:
    content = (CATALOG / "physics" / f"{group}.json").read_bytes()
    return msgspec.json.decode(content, type=Physics)


def forget_files() -> None:
    """Reads the files of constants anew: for a process that has written some."""
    _shipped.cache_clear()
    has_physics.cache_clear()
    _forget()


def _forget() -> None:
    """Empties the memories of all kernel models and of what rests on them, not those of files: of
    functions, and what modules keep that have a function ``forget``.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(_RESTING):
            members = [x for x in vars(module).values() if getattr(x, "__module__", "") == name]
            for value in members:
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
                elif getattr(value, "__name__", "") == "forget":
                    value()
