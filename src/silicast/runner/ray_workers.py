"""Lines of a batch over a cluster of Ray (https://docs.ray.io), an optional package.

A task of Ray answers lines that take about :data:`CHUNK_S`. One that dies is given to another
worker, there in a process of its own for the cases, so that the case that ends processes is named;
if that worker dies too, its lines are lost. Nodes must have the same Silicast and see the same
files.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

from silicast.core.errors import SilicastError, unsupported
from silicast.core.packages import missing_package
from silicast.runner.lines import CaseSource, Line
from silicast.runner.replies import Replied, broken, stated_id
from silicast.runner.workers import NO_LIMITS, LinePieces, PointLimits, Workers
from silicast.scenario.answer import Identity
from silicast.scenario.run import package_hash

CHUNK_S = 10.0
CONNECT_S = 10.0
HUNG_S = 3600.0
"""Of a case, once a worker died of the lines that it is in, where no limit is stated."""
QUEUED = 2
"""Tasks, for each processor of the cluster, that run or wait."""
LOOK_S = 1.0
"""Between two looks at whether the work is to end."""
TRIES = 2
FLAG = "--ray"

Answered = tuple[str, list[tuple[Identity, bool, bytes, bool]], dict[str, float]]
"""Hash of the package that answered, answers as of Replied, and seconds a case by task."""


@final
class _ReadyLines:
    """Lines that are all there."""

    handle = None
    ended = True

    def __init__(self, lines: Sequence[Line]) -> None:
        self.waiting = deque(lines)

    def has_more(self) -> bool:
        return False

    def read(self) -> None:
        return


def answered(
    lines: list[Line], folder: str, calibrations: list[str], limits: PointLimits
) -> Answered:
    """What a task of Ray does."""
    ready = _ReadyLines(lines)
    work = Workers(ready, Path(folder), [Path(each) for each in calibrations], 1, limits)
    rows = [row for _, rows in work.pieces() for row in rows]
    plain = [(row.id, row.ok, row.line, row.is_lost) for row in rows]
    return package_hash(), plain, dict(work.cost.seconds)


@final
class RayWorkers:
    """Answers lines on a cluster of Ray, in the order in which they are finished.

    Args:
        address: of the cluster: HOST:PORT, or auto for the one of this machine.
        lines, folder, calibrations, limits: as of :class:`~.workers.Workers`.

    Raises:
        SilicastError: Ray is not installed, or nothing answers there.
    """

    def __init__(
        self,
        address: str,
        lines: CaseSource,
        folder: Path,
        calibrations: Sequence[Path],
        limits: PointLimits = NO_LIMITS,
    ) -> None:
        self._ray = connected(address)
        self._lines, self._cut, self._limits = lines, LinePieces(lines), limits
        self._where = str(folder.absolute()), [str(path.absolute()) for path in calibrations]
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(answered)
        self._running: dict[Any, tuple[list[Line], int]] = {}

    def pieces(self) -> Iterator[tuple[list[Line], list[Replied]]]:
        """Lines and their answers, a piece at a time.

        Raises:
            SilicastError: a node has another Silicast.
        """
        try:
            while True:
                self._give()
                if not self._running:
                    return
                ended, _ = self._ray.wait(list(self._running), timeout=LOOK_S)
                for task in ended:
                    yield from self._taken(task)
        finally:
            for task in self._running:
                self._ray.cancel(task, force=True)

    def _give(self) -> None:
        processors = int(self._ray.cluster_resources().get("CPU", 1))
        while len(self._running) < QUEUED * max(processors, 1):
            piece = self._cut.next(CHUNK_S)
            if not piece:
                return
            self._try(piece, 1)

    def _try(self, piece: list[Line], number: int) -> None:
        limits = self._limits or (NO_LIMITS if number == 1 else PointLimits(HUNG_S))
        self._running[self._task.remote(piece, *self._where, limits)] = piece, number

    def _taken(self, task: Any) -> Iterator[tuple[list[Line], list[Replied]]]:
        piece, number = self._running.pop(task)
        try:
            package, rows, seconds = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:  # the task ran, and raised
            raise SilicastError(
                f"a worker failed: {' '.join(str(error.cause).split())[:200]}",
                kind="io",
                field=FLAG,
                hint="install the same Silicast on all nodes, and share the files of the sweep",
            ) from None
        except self._ray.exceptions.RayError as error:
            if number < TRIES:
                self._try(piece, number + 1)
                return
            message = f"{TRIES} workers of Ray ended: {type(error).__name__}"
            lost = [broken(message, stated_id(line)) for line in piece]
            yield piece, [Replied.from_reply(each, is_lost=True) for each in lost]
            return
        if package != package_hash():
            raise unsupported(
                f"a node has package {package}, this one {package_hash()}",
                FLAG,
                "install the same Silicast on all nodes",
            )
        self._cut.cost.note(seconds)
        yield piece, [Replied(*row) for row in rows]


def connected(address: str) -> Any:
    """The package ray, connected to a cluster; a connection that there is, is used.

    Raises:
        SilicastError: it is not installed, or nothing answers at the address.
    """
    try:
        import ray
        import ray.exceptions
    except ImportError:
        otherwise = "take --shard, which needs no package"
        raise missing_package("ray", field=FLAG, otherwise=otherwise) from None
    if ray.is_initialized():
        return ray
    if address != "auto":
        _check_address(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_answer(address, " ".join(str(error).split())[:120]) from None
    return ray


def _check_address(address: str) -> None:
    """Ray itself waits far longer for a cluster that is not there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise SilicastError(
            f"expected HOST:PORT or auto, found {address!r}", field=FLAG, hint="such as head:6379"
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_answer(address, str(error)) from None


def _no_answer(address: str, why: str) -> SilicastError:
    return SilicastError(
        f"no cluster of Ray answers at {address}: {why}",
        kind="io",
        field=FLAG,
        hint="start one with `ray start --head`, or leave --ray out",
    )
