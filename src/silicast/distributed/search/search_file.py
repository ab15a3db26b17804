"""A search that can be interrupted: what its full predictions said, in a file.

The file states the inputs of its search; another search is refused with the input that differs. It
is written anew after each plan, beside the old one and renamed over it, so that whenever a search
ends the file holds all plans that it had finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

from silicast.core.decode import Strict, Terse, decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded, write_atomically
from silicast.core.prediction import PICOSECONDS

if TYPE_CHECKING:
    from silicast.distributed.step.step import DistributedStep

FORMAT = 1
KIND = "search of plans"
NAME_ANOTHER = "name another file, or remove this one"
LARGEST = 1 << 24
"""Bytes of a file."""


@final
class Priced(Terse, frozen=True):
    """What the full prediction of a plan says, as far as plans are compared by it.

    Attributes:
        step_ps: whole picoseconds of a step; ``parts_ps``: of its parts, by name.
        refused: why there is none; "" = there is.
    """

    step_ps: int = 0
    parts_ps: dict[str, int] = {}
    refused: str = ""

    @staticmethod
    def from_distributed_step(distributed_step: DistributedStep) -> Priced:
        part = distributed_step.step.part
        return Priced(part.exposed_ps, {each.name: each.exposed_ps for each in part.children})

    @property
    def seconds(self) -> float:
        return self.step_ps / PICOSECONDS


Kept = MutableMapping[str, Priced]
"""What full predictions said, by the plan."""


@final
class _Content(Strict, frozen=True):
    kind: str
    format: int
    inputs: dict[str, Any]
    plans: dict[str, Priced]


@final
@dataclass(frozen=True, eq=False)
class SearchFile(MutableMapping[str, Priced]):
    """What full predictions said, by the plan; kept in a file as soon as it is added.

    Attributes:
        inputs: everything that decides what a full prediction says.
    """

    path: Path
    inputs: dict[str, Any]
    _plans: dict[str, Priced]

    @staticmethod
    def open(path: Path, inputs: Mapping[str, Any]) -> SearchFile:
        """The file of a search; made with the first plan if there is none.

        Args:
            inputs: plain tables.

        Raises:
            SilicastError: it cannot be read or is none (kind "io"), or is of other inputs.
        """
        table: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(inputs))
        try:
            if not path.exists():
                return SearchFile(path, table, {})
            text = read_bounded(path, LARGEST, "a search")
        except SilicastError as error:
            raise _none(path, error.message) from None
        try:
            content = decode_json(text, _Content, page="docs/how-to/predict-training.md")
        except SilicastError as error:
            hint = f"{error.hint}; {NAME_ANOTHER}"
            raise SilicastError(
                f"holds no search: {error.message}",
                kind="io",
                field=error.field,
                hint=hint,
                file=str(path),
            ) from None
        if (content.kind, content.format) != (KIND, FORMAT):
            raise _none(path, f"holds {content.kind[:40]!r} of format {content.format}")
        field, theirs, ours = _difference(content.inputs, table, "") or ("", None, None)
        if field:
            raise SilicastError(
                f"{path} holds another search: {_shown(theirs)} there, {_shown(ours)} here",
                field=field,
                hint="name another file, or remove this one to search anew",
            )
        return SearchFile(path, table, content.plans)

    def __getitem__(self, key: str) -> Priced:
        return self._plans[key]

    def __setitem__(self, key: str, value: Priced) -> None:
        self._plans[key] = value
        self._write()

    def __delitem__(self, key: str) -> None:
        del self._plans[key]
        self._write()

    def __iter__(self) -> Iterator[str]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)

    def _write(self) -> None:
        content = msgspec.json.encode(_Content(KIND, FORMAT, self.inputs, self._plans))
        write_atomically(self.path, msgspec.json.format(content, indent=1) + b"\n")


def _none(path: Path, message: str) -> SilicastError:
    return SilicastError(message, kind="io", file=str(path), hint=NAME_ANOTHER)


def _difference(theirs: Any, ours: Any, location: str) -> tuple[str, Any, Any] | None:
    """The first field in which two trees differ, and its two values.

    >>> _difference({"a": {"b": 1}}, {"a": {"b": 2}}, "")
    ('a.b', 1, 2)
    """
    if theirs == ours:
        return None
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return location, theirs, ours
    result = (
        _difference(theirs.get(name), ours.get(name), f"{location}.{name}" if location else name)
        for name in dict.fromkeys((*ours, *theirs))
    )
    return next(each for each in result if each is not None)


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{value!r:.60}"
