"""The configuration of a kernel: what its author, or a tuner, chose beside the sizes.

A configuration is a kind (how the kernel is written: Triton, CUTLASS, Tensile, loops of a CPU) and
named values. It is part of an op's identity (``Variant.config``); an op without one runs with what
its library picks.

>>> read_configuration({"tile_m": 64, "tile_n": 128, "tile_k": 64, "warps": 4, "stages": 3}).label
'triton 64x128x64 group 1 warps 4 stages 3 split 1'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from silicast.core.errors import SilicastError, unknown_name

Pairs = tuple[tuple[str, int | str], ...]
"""A configuration as an op's variant carries it: sorted names and values."""

POWERS = tuple(1 << i for i in range(4, 10))
MOST = 1 << 20


@final
@dataclass(frozen=True)
class Setting:
    """One value of a kind of configuration.

    Attributes:
        choices: allowed words, or allowed numbers; () = whole numbers from ``least`` on.
        least: the smallest number.
        default: where it is left out; None = it must be given.
        label: before its value in a configuration's label; "" = with the tile.
    """

    choices: tuple[int | str, ...] = ()
    least: int = 1
    default: int | str | None = None
    label: str = ""


_TILE = {name: Setting(POWERS) for name in ("tile_m", "tile_n", "tile_k")}
KINDS: Mapping[str, Mapping[str, Setting]] = {
    "triton": {
        **_TILE, "group_m": Setting(default=1, label="group"),
        "warps": Setting((1, 2, 4, 8, 16), default=4, label="warps"),
        "stages": Setting(default=3, label="stages"),
        "split_k": Setting(default=1, label="split"),
    },
    "cutlass": {
        **{name: Setting(least=8) for name in _TILE},
        "cluster_m": Setting((1, 2, 4, 8), default=1, label="cluster"),
        "cluster_n": Setting((1, 2, 4, 8), default=1, label="by"),
        "schedule": Setting(
            ("basic", "pingpong", "cooperative", "stream_k"), default="cooperative",
            label="schedule",
        ),
    },
    "tensile": {
        "tile_m": Setting(least=4), "tile_n": Setting(least=4),
        "depth_u": Setting(least=4, default=32, label="depth"),
        "split_k": Setting(default=1, label="gsu"),
    },
    "loops": {
        "tile_m": Setting(), "tile_n": Setting(), "tile_k": Setting(),
        "order": Setting(("mnk", "mkn", "nmk", "nkm", "kmn", "knm"), default="mnk", label="order"),
        "unroll": Setting((1, 2, 4, 8, 16), default=4, label="unroll"),
        "vector": Setting((1, 4, 8, 16, 32), default=8, label="vector"),
        "threads": Setting(default=1, label="threads"),
    },
}  # fmt: skip
"""Kind -> its values, in the order of its label."""

MARKS = {"cluster_m": "cutlass", "schedule": "cutlass", "depth_u": "tensile", "order": "loops",
         "unroll": "loops", "vector": "loops"}  # fmt: skip
"""Values that only one kind has: a table that has one need not name the kind."""


@final
@dataclass(frozen=True, slots=True)
class Configuration:
    """One configuration.

    Attributes:
        kind: see :data:`KINDS`.
        values: of every setting of the kind.
    """

    kind: str
    values: tuple[tuple[str, int | str], ...]

    def number(self, name: str, default: int = 1) -> int:
        """A numeric value; ``default`` where the kind has none of that name."""
        found = dict(self.values).get(name, default)
        return found if isinstance(found, int) else default

    def word(self, name: str) -> str:
        """A value that is a word, "" where the kind has none of that name."""
        return str(dict(self.values).get(name, ""))

    @property
    def pairs(self) -> Pairs:
        """As an op's variant carries it."""
        return tuple(sorted((*self.values, ("kind", self.kind))))

    @property
    def label(self) -> str:
        """For people."""
        found = dict(self.values)
        tile = "x".join(str(found[n]) for n in ("tile_m", "tile_n", "tile_k") if n in found)
        rest = [
            f"{setting.label} {found[name]}"
            for name, setting in KINDS[self.kind].items()
            if setting.label
        ]
        return " ".join((self.kind, tile, *rest))


def read_configuration(table: Mapping[str, Any], field: str = "configuration") -> Configuration:
    """A configuration from a table of values.

    Raises:
        SilicastError: an unknown kind or value, one that is missing, or none of those allowed.

    >>> read_configuration({"kind": "cutlass", "tile_m": 128, "tile_n": 256, "tile_k": 64}).kind
    'cutlass'
    """
    given = dict(table)
    kind = given.pop("kind", None) or next((k for n, k in MARKS.items() if n in given), "triton")
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise unknown_name(f"unknown kind {kind!r}", f"{field}.kind", f"one of {known}")
    settings = KINDS[kind]
    for name in given:
        if name not in settings:
            known = ", ".join(settings)
            raise unknown_name(
                f"{kind} configurations have no {name!r}", f"{field}.{name}", f"they have {known}"
            )
    values = tuple(
        (name, _value(given.get(name, setting.default), setting, f"{field}.{name}"))
        for name, setting in settings.items()
    )
    return Configuration(kind, values)


def _value(value: object, setting: Setting, field: str) -> int | str:
    if value is None:
        raise SilicastError("is missing", field=field, hint=_allowed(setting))
    whole = isinstance(value, int) and not isinstance(value, bool)
    good = value in setting.choices if setting.choices else whole
    if good and isinstance(value, int):
        good = whole and setting.least <= value <= MOST
    if not good or not isinstance(value, (int, str)):
        raise SilicastError(f"expected {_allowed(setting)}, found {value!r}", field=field)
    return value


def _allowed(setting: Setting) -> str:
    if setting.choices:
        return "one of " + ", ".join(str(choice) for choice in setting.choices)
    return f"a whole number from {setting.least} on"


def of_pairs(pairs: Pairs) -> Configuration:
    """The configuration of an op's variant.

    >>> one = read_configuration({"tile_m": 16, "tile_n": 64, "tile_k": 128})
    >>> of_pairs(one.pairs) == one
    True
    """
    found = dict(pairs)
    kind = str(found.pop("kind"))
    return Configuration(kind, tuple((name, found[name]) for name in KINDS[kind]))
