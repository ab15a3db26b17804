"""Ending a sweep from outside: Ctrl-C or a batch system's SIGTERM end it after the row at hand."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@final
class Stop:
    """Whether somebody asked to end; true once they did."""

    def __init__(self) -> None:
        self.asked = ""

    def __call__(self) -> bool:
        """Whether to end."""
        return bool(self.asked)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Within, the first of the signals is noted and the second interrupts at once.

    Outside the main thread nothing is caught.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = signal.Signals(number).name

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
