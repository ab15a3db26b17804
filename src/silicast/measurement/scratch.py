"""Calibrations that are tried: each a file of its own, as a scenario would name it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from silicast.core.calibration import Calibration, save_calibration


@final
@dataclass(frozen=True)
class Scratch:
    """A folder that is gone afterwards."""

    folder: Path
    written: list[Path] = field(default_factory=list)

    def file(self, calibration: Calibration) -> Path:
        """A calibration as a file that no other was before."""
        path = self.folder / f"{len(self.written)}.json"
        self.written.append(path)
        save_calibration(calibration, path)
        return path


@contextmanager
def scratch() -> Iterator[Scratch]:
    """A folder for calibrations that are tried."""
    with tempfile.TemporaryDirectory(prefix="silicast-") as folder:
        yield Scratch(Path(folder))
