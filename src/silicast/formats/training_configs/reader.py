"""What reads the training configuration of another tool, and the one that understands a file.

A tool is one module of this package that subclasses :class:`TrainingConfig` and registers itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from silicast.core.errors import SilicastError
from silicast.core.plain_data import MAX_TOML_BYTES
from silicast.core.registry import Registry
from silicast.formats.source import Source

Tree = dict[str, Any]
MOST_FILES = 16
SUFFIXES = (".json", ".toml", ".yaml", ".yml", ".sh", ".bash", ".txt", ".args")
"""Of files that are read in a folder."""


class TrainingConfig(ABC):
    """Reads the configuration of one tool.

    Class attributes:
        name: of the tool; files: what it needs, for people.
    """

    name: ClassVar[str]
    files: ClassVar[str]

    @abstractmethod
    def recognises(self, files: Sequence[Source]) -> bool:
        """Whether the files are of this tool, by their content."""

    @abstractmethod
    def read(self, files: Sequence[Source], devices: int = 0) -> tuple[Tree, list[str]]:
        """The scenario, and remarks: what was assumed, and each field that could not be used.

        Args:
            devices: that the user states beside the files; 0 = none.

        Raises:
            SilicastError: a field is missing or wrong; names file and field.
        """


_KNOWN: Registry[TrainingConfig] = Registry(
    "silicast.formats.training_configs", "training configuration", "format"
)
register = _KNOWN.register


def is_training_config(*paths: Path) -> bool:
    """Whether a tool recognises the files; False too where they cannot be read.

    Raises:
        SilicastError: kind "unsupported": a library that reads them is not installed.
    """
    try:
        files = _opened(paths)
        return any(tool.recognises(files) for tool in _KNOWN.all().values())
    except SilicastError as error:
        if error.kind == "unsupported":  # a library is missing: whoever reads says which
            raise
        return False


def read_training_config(*paths: Path, devices: int = 0) -> tuple[Tree, list[str]]:
    """The scenario of task ``training`` that another tool's configuration describes.

    Args:
        paths: its files, or one folder that holds them.
        devices: that the run has, where the files leave it to their launcher; 0 = as they state.

    Returns:
        The scenario as a plain tree, without what the files do not state (often the device), and
        remarks: what was assumed, and each field that was not used.

    Raises:
        SilicastError: no tool recognises the files, or one of their fields is wrong.
    """
    files = _opened(paths)
    tool = next((each for each in _KNOWN.all().values() if each.recognises(files)), None)
    if tool is None:
        known = "; ".join(f"{each.name}: {each.files}" for each in _KNOWN.all().values())
        raise SilicastError(
            "is no training configuration that is known", file=str(paths[0]), hint=known
        )
    scenario, remarks = tool.read(files, devices)
    remark = [f"read as a configuration of {tool.name}", *remarks]
    if "device" not in scenario:
        remark.append("device: not stated; name it")
    return {"format": 1, "task": "training", **scenario}, remark


def _opened(paths: Sequence[Path]) -> list[Source]:
    items = []
    for path in paths:
        if path.is_dir():
            items += sorted(p for p in path.iterdir() if p.suffix.casefold() in SUFFIXES)
        else:
            items.append(path)
    if not items:
        named = str(paths[0]) if paths else ""
        raise SilicastError("holds no configuration", kind="io", file=named)
    if len(items) > MOST_FILES:
        raise SilicastError(
            f"holds {len(items)} files", kind="limit", file=str(paths[0]), hint="name the ones"
        )
    return [Source(path, MAX_TOML_BYTES, "a configuration of training") for path in items]


def parallel_of(**degrees: int | bool) -> Tree:
    """Degrees without those that are 1; whether states and tokens are shared is always stated.

    >>> parallel_of(tp=8, pp=1, sp=False, zero=0), parallel_of(tp=1, dp=2, sp=False, zero=1)
    ({'tp': 8, 'sp': False, 'zero': 0}, {'dp': 2, 'zero': 1})
    """
    parallel = {
        name: value for name, value in degrees.items() if name in ("sp", "zero") or value != 1
    }
    if "tp" not in parallel:
        parallel.pop("sp", None)
    return parallel
