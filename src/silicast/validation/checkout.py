"""The measured suites: part of the repository, not of an installed package.

A checkout names in its ``pyproject.toml``, as ``scorecard`` of ``[tool.silicast]``, the module that
runs them. An installed package lies beside no such file, and has none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from silicast.core.decode import read_toml
from silicast.core.errors import SilicastError
from silicast.core.packages import missing_package

ROOT = Path(__file__).resolve().parents[3]
"""Of the checkout, where the package runs from one."""


class Scorecard(Protocol):
    """What the module that runs the suites offers; all suites are meant where none is named."""

    def expense(self, names: Iterable[str] = (), limit: int | None = None) -> list[str]:
        """Sentences for a user where a run will take long."""
        raise NotImplementedError

    def foretold_s(
        self, names: Iterable[str] = (), limit: int | None = None
    ) -> dict[str, float | None]:
        """Seconds that each suite will take on this machine; None of one that was never timed."""
        raise NotImplementedError

    def run(
        self,
        names: Iterable[str] = (),
        *,
        data: Path | None = None,
        limit: int | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> list[dict[str, Any]]:
        """The results, one mapping a suite; ``progress`` hears (suite, done, all)."""
        raise NotImplementedError

    def claims(self) -> list[dict[str, str]]:
        """Claims about tools, recounted from the measured tables, as cells by column."""
        raise NotImplementedError

    def public_cases(self, folder: Path, salt: str) -> dict[str, int]:
        """Writes cases without truths (``cases.jsonl``), their truths (``truths.jsonl``) and what
        peers predict of them into a folder; returns how many there are of each.
        """
        raise NotImplementedError

    def threshold_failures(self, result: Mapping[str, Any]) -> list[str]:
        """Sentences on thresholds that a result misses."""
        raise NotImplementedError

    def save(self, result: Mapping[str, Any], folder: Path) -> Path:
        """Writes a result as JSON and as a page."""
        raise NotImplementedError

    def table(self, result: Mapping[str, Any]) -> Any:
        """A result as a drawing for the console."""
        raise NotImplementedError


@contextmanager
def scorecard() -> Iterator[Scorecard]:
    """The module that runs the suites of this checkout.

    Raises:
        SilicastError: there is no checkout, or pyarrow, which reads the measured tables, is not
            installed.
    """
    name = _provider()
    if not name:
        raise SilicastError(
            "the measured suites are not part of the installed package",
            kind="io",
            hint="run this in a checkout of the repository; FILE.toml and --measured FILE work",
        )
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    try:
        yield cast("Scorecard", import_module(name))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pyarrow":
            raise missing_package("pyarrow", "reading measured tables") from None
        raise


def _provider() -> str:
    """The module that ``pyproject.toml`` of the checkout names; "" without one."""
    path = ROOT / "pyproject.toml"
    if not path.is_file():
        return ""
    settings = read_toml(path).get("tool", {}).get("silicast", {})
    return str(settings.get("scorecard", ""))
