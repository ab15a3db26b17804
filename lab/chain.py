"""The chain from measured tables to shipped numbers: its stages, and the files that they make.

``lab/chain.toml`` declares the stages. An artefact is named by its folder and file:
``physics/gemm`` (constants of kernels), ``held_out/gemm`` (the same without an architecture),
``learned/gemm`` (trees).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, final

import msgspec

from lab.reads import numbers_hash
from lab.scorecard import held_out, tuning_held_out
from silicast.core.catalog import CATALOG
from silicast.core.compiled import INDEX
from silicast.core.decode import Strict
from silicast.core.errors import SilicastError

CHAIN = Path(__file__).with_name("chain.toml")
FOLDERS: Mapping[str, Path] = {
    "physics": CATALOG / "physics",
    "learned": CATALOG / "learned",
    "tuning": CATALOG / "tuning",
    "edge": CATALOG / "edge",
    "held_out": held_out.FOLDER,
    "held_out_sizes": held_out.SHORT.parent,
    "held_out_devices": held_out.OF_DEVICES.parent,
    "held_out_tuning": tuning_held_out.FOLDER,
}
CARDS_OF_HELD_OUT = held_out.FOLDER.with_name("held_out_provenance.json")
"""Files of held-out constants have no card: their provenance stands here, by name."""


@final
class Stage(Strict, frozen=True):
    """One step of the chain.

    Attributes:
        commands: modules of lab/ with their arguments, one after the other.
        makes: artefacts that they write.
        after: stages whose artefacts they read.
        code: further modules that decide what they find, beside what they import.
        also_reads: artefacts of stages that it does not come after, on which it rests nevertheless.
    """

    commands: list[str]
    makes: list[str]
    after: list[str] = []
    code: list[str] = []
    also_reads: list[str] = []

    @property
    def modules(self) -> list[str]:
        """Modules whose code decides what the stage makes."""
        return [*(command.split()[0] for command in self.commands), *self.code]


@cache
def stages() -> Mapping[str, Stage]:
    """All stages by name; each stands below those that it comes after.

    Raises:
        SilicastError: the file is broken: an unknown stage, or an artefact that two stages make.
    """
    stages = msgspec.convert(tomllib.loads(CHAIN.read_text(encoding="utf-8")), dict[str, Stage])
    makers: dict[str, str] = {}
    seen: set[str] = set()
    for name, stage in stages.items():
        unknown = sorted(set(stage.after) - seen)
        if unknown:
            raise SilicastError(
                f"stage {name} comes after {', '.join(unknown)}, which is not above it",
                file=str(CHAIN),
                field=f"{name}.after",
                hint="name stages that stand above",
            )
        for artefact in stage.makes:
            if artefact in makers:
                raise SilicastError(
                    f"{artefact} is made by {makers[artefact]} and by {name}",
                    file=str(CHAIN),
                    field=f"{name}.makes",
                    hint="let one stage make it",
                )
            makers[artefact] = name
        seen.add(name)
    return stages


def maker_of(artefact: str) -> str:
    """The stage that makes an artefact; "" if none does."""
    return next((name for name, stage in stages().items() if artefact in stage.makes), "")


def before(name: str) -> set[str]:
    """All stages that a stage comes after, directly or not."""
    before: set[str] = set()
    waiting = list(stages()[name].after)
    while waiting:
        stage = waiting.pop()
        if stage not in before:
            before.add(stage)
            waiting += stages()[stage].after
    return before


def made_later(name: str) -> set[str]:
    """Artefacts that a stage does not see: not its own, of no stage before it, not declared."""
    earlier = before(name) | {name}
    seen = {artefact for stage in earlier for artefact in stages()[stage].makes}
    every = {artefact for stage in stages().values() for artefact in stage.makes}
    return every - seen - set(stages()[name].also_reads)


def path_of(artefact: str) -> Path:
    """The JSON file of an artefact; trees have their tensors beside it."""
    folder, _, name = artefact.partition("/")
    return FOLDERS[folder] / f"{name}.json"


def artefact_named(path: Path) -> str:
    """The artefact that a file belongs to; "" if it is none."""
    for folder, position in FOLDERS.items():
        if path.parent == position.resolve() and path.suffix in (".json", ".safetensors"):
            return f"{folder}/{path.stem}"
    return ""


def shipped() -> list[str]:
    """Artefacts that are there; files that are written from TOML are none."""
    return sorted(
        f"{folder}/{path.stem}"
        for folder, position in FOLDERS.items()
        for path in position.glob("*.json")
        if path.name != INDEX
    )


def read(artefact: str) -> dict[str, Any]:
    """The content of an artefact's JSON file."""
    table: dict[str, Any] = msgspec.json.decode(path_of(artefact).read_bytes())
    return table


def content(artefact: str) -> str:
    """Hash of an artefact's numbers, without its card: date, scores and notes do not count."""
    return numbers_hash(path_of(artefact))


def with_stages(names: Iterable[str]) -> set[str]:
    """Stages by their own names or by those of artefacts that they make.

    Raises:
        SilicastError: a name that is neither.
    """
    distinct = set()
    for name in names:
        stage = name if name in stages() else maker_of(name)
        if not stage:
            raise SilicastError(
                f"no stage or artefact {name!r}",
                kind="unknown_name",
                field="stage",
                hint=f"one of {', '.join(stages())}",
            )
        distinct.add(stage)
    return distinct
