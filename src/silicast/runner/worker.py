"""A process of a batch: takes lines on standard input, gives answers on standard output.

Messages are a length of four bytes and MessagePack. The process ends when its input does, so that
none is left behind whatever ends the one that started it.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import struct
from pathlib import Path
from typing import Any, BinaryIO, final

import msgspec

from silicast.runner.lines import Line
from silicast.runner.replies import Replied, Replies, Seconds, replies
from silicast.scenario.answer import Identity

LENGTH = struct.Struct("<I")
RARE_COLLECTIONS = 100_000
"""Allocations between two garbage collections: an answer makes few cycles."""


@final
class Start(msgspec.Struct, frozen=True, array_like=True):
    """What all lines have in common; paths as text.

    Attributes:
        is_sealed: lines are of strangers: nothing in them may open a file, and the process cannot.
        memory_bytes: of address space at most; 0 = as the system allows.
    """

    folder: str | None
    calibrations: list[str]
    is_sealed: bool = False
    memory_bytes: int = 0


@final
class LineBatch(msgspec.Struct, frozen=True, array_like=True, tag="lines"):
    """Lines to answer."""

    lines: list[Line]


@final
class SpaceText(msgspec.Struct, frozen=True, array_like=True, tag="space"):
    """A space to lay out, as JSON, and how many points it may have."""

    content: bytes
    most: int


@final
class Done(msgspec.Struct, frozen=True, array_like=True):
    """Answers to :class:`LineBatch` or :class:`SpaceText`, as of :class:`~.replies.Replied`;
    seconds by task. The first one is empty: the process has started.
    """

    rows: list[tuple[Identity, bool, bytes, bool]]
    spent: dict[str, tuple[int, float]]

    def replies(self) -> Replies:
        return Replies(
            [Replied(*row) for row in self.rows],
            {task: Seconds(*each) for task, each in self.spent.items()},
        )


def send(stream: BinaryIO, message: msgspec.Struct) -> None:
    """Writes one message; raises OSError where nobody reads."""
    content = msgspec.msgpack.encode(message)
    stream.write(LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def received(stream: BinaryIO, kind: Any) -> Any:
    """The next message, None at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    content = stream.read(length)
    return msgspec.msgpack.decode(content, type=kind) if len(content) == length else None


def main() -> None:
    """Answers messages until there are no more; what else is printed goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts the whole group
    gc.set_threshold(RARE_COLLECTIONS)
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    start = received(source, Start)
    if start is None:
        return
    folder = None if start.folder is None else Path(start.folder)
    calibrations = [Path(path) for path in start.calibrations]
    if start.memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (start.memory_bytes, start.memory_bytes))
    if start.is_sealed:
        from silicast.runner.sealed import seal

        seal()
    try:
        send(target, Done([], {}))
        while (work := received(source, LineBatch | SpaceText)) is not None:
            if isinstance(work, SpaceText):
                result = _laid_out(work)
            else:
                result = replies(work.lines, folder, calibrations, inline_only=start.is_sealed)
            rows = [(row.id, row.ok, row.line, row.is_lost) for row in result.rows]
            spent = {task: (each.cases, each.seconds) for task, each in result.spent.items()}
            send(target, Done(rows, spent))
    except BrokenPipeError:  # whoever started it is gone
        return


def _laid_out(space: SpaceText) -> Replies:
    from silicast.runner.space_layout import laid_out

    return Replies([laid_out(space.content, space.most)])


if __name__ == "__main__":
    main()
