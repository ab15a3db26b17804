"""Timeloop: its mapper as a program on the path."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar, final

from silicast.accelerator.counting.cost import Objective
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.mapper.task import TIMELOOP, described
from silicast.accelerator.peers.peer import PEERS, Peer, PeerAnswer
from silicast.accelerator.timeloop.statistics import read_statistics
from silicast.core.errors import unsupported

PROGRAM = "timeloop-mapper"
STATISTICS = "timeloop-mapper.stats.txt"
LIMIT_S = 3600


@final
@PEERS.register
class TimeloopPeer(Peer):
    """Its own search, by the mapper section of its own description."""

    name: ClassVar[str] = "timeloop"
    install: ClassVar[str] = (
        f"build it (github.com/NVlabs/timeloop) so that {PROGRAM} is on the path"
    )

    def is_installed(self) -> bool:
        return shutil.which(PROGRAM) is not None

    def answer(self, chip: Path, einsum: Einsum, objective: Objective) -> PeerAnswer:  # noqa: ARG002
        """See :meth:`Peer.answer`; the objective is that of the description."""
        folder = chip if chip.is_dir() else chip.parent
        if described(folder).einsum.bounds != einsum.bounds:
            raise unsupported(
                "maps the problem of its own description",
                "op",
                "compare a layer with the sizes of that problem",
                file=str(folder),
            )
        files = [folder / name for name in (TIMELOOP, "ERT.yaml", "ART.yaml")]
        with tempfile.TemporaryDirectory() as position:
            words = [PROGRAM, *(str(f.absolute()) for f in files if f.is_file()), "-o", position]
            done = subprocess.run(  # noqa: S603 - a program that the user installed
                words, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=position
            )
            if done.returncode or not (Path(position) / STATISTICS).is_file():
                raise unsupported(
                    f"{PROGRAM} failed: {done.stderr.strip()[-200:]}", "engine", file=str(folder)
                )
            statistics = read_statistics(Path(position) / STATISTICS)
        return PeerAnswer("timeloop", statistics.energy_uj * 1e6, statistics.cycles)
