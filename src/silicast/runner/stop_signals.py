"""Signals that end work in good order: the first lets it finish what runs, the second stops it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[Callable[[], str]]:
    """A function that returns the name of a received SIGINT or SIGTERM, "" = none; the second
    signal interrupts at once. Outside the main thread no signals are received.
    """
    received: list[str] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(signal.Signals(number).name)

    main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if main else ()
    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield lambda: "".join(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
