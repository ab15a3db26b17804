"""The points of a space as cases of a batch, each with a key that its content gives.

A key is a hash of the scenario, of the files that it names, and of the version, code and numbers
that answer it: the same question to the same Silicast has the same key everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import msgspec

import silicast
from silicast.core.errors import SilicastError, UnknownFieldError, errors_located
from silicast.core.hashing import files_hash
from silicast.exploration.scenario_space import ScenarioPoint, ScenarioSpace
from silicast.runner.lines import Line
from silicast.scenario.decode import decode
from silicast.scenario.run import package_hash
from silicast.scenario.set_fields import with_fields

_ENCODER = msgspec.json.Encoder(order="deterministic")
KEY_BYTES = 12
KERNEL, OP = "kernel.", "kernel.op"


@final
class PointCase(msgspec.Struct, frozen=True):
    """A point as a case.

    Attributes:
        code: its number in the space; key: of its content.
        fields: that vary; case: the scenario as one line of JSON, its id the key.
    """

    code: int
    key: str
    fields: dict[str, Any]
    case: bytes

    @property
    def line(self) -> Line:
        return self.code + 1, self.case


@final
class PointKeys:
    """Cases of points, and their keys.

    Args:
        folder: where relative paths of scenarios start.
        calibrations: files that every case rests on.
    """

    def __init__(self, folder: Path, calibrations: Sequence[Path] = ()) -> None:
        self._folder, self._named = folder, dict[str, str]()
        maker = {
            "version": silicast.__version__,
            "package": package_hash(),
            "calibrations": files_hash(calibrations),
        }
        self._start = hashlib.blake2b(_ENCODER.encode(maker), digest_size=KEY_BYTES)

    def case(self, base: Mapping[str, Any], point: ScenarioPoint) -> PointCase:
        """A point of a space over ``base``."""
        tree = with_fields(base, point.fields)
        content = _ENCODER.encode(tree)
        digest = self._start.copy()
        digest.update(content)
        for name in _texts(tree):
            digest.update(self._content(name))
        key = digest.hexdigest()
        case = b'{"id":"' + key.encode() + b'",' + content[1:]
        return PointCase(point.code, key, dict(point.fields), case)

    def _content(self, name: str) -> bytes:
        """The hash of the file that a text names; empty where it names none."""
        if name not in self._named:
            path = self._folder / name
            looks = "." in name or "/" in name
            try:
                is_file = looks and path.is_file()
            except (OSError, ValueError):
                is_file = False
            self._named[name] = files_hash([path]) if is_file else ""
        return self._named[name].encode()


def cases_of(
    space: ScenarioSpace, keys: PointKeys, shard: int = 0, shards: int = 1
) -> Iterator[PointCase]:
    """All legal points of a part of a space, in order; each content comes once."""
    seen = set[str]()
    for points in space.points(shard, shards):
        for point in points:
            case = keys.case(space.base, point)
            if case.key not in seen:
                seen.add(case.key)
                yield case


def check_fields(space: ScenarioSpace, folder: Path | None) -> None:
    """Refuses a space whose scenarios have a field that does not exist.

    Raises:
        SilicastError: names the field.
    """
    missing = set(space.fields)
    for points in space.points():
        for point in points:
            if missing & set(point.fields):
                missing -= set(point.fields)
                _check_point(space, point, folder)
            if not missing:
                return
        return


def _check_point(space: ScenarioSpace, point: ScenarioPoint, folder: Path | None) -> None:
    with errors_located(field="axis", file=space.file):
        tree = with_fields(space.base, point.fields)
    try:
        decode(tree, folder=folder)
    except SilicastError as error:
        refused = isinstance(error, UnknownFieldError) or error.field == "task"
        if KERNEL in error.field:  # sizes are those of the op
            refused &= OP not in space.fields and error.field in space.fields
        if refused:
            raise error.located(file=space.file) from None


def _texts(value: Any) -> Iterable[str]:
    """All texts in a tree, in order of their keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield from _texts(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
