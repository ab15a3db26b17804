"""Exit statuses of the command, as docs/reference/cli.md lists them."""

from __future__ import annotations

from silicast.core.errors import ErrorKind

ANSWERED = 0
BAD_INPUT = 2
NOT_ANSWERED = 3
"""Some cases failed, a threshold was missed, or the question is right but has no answer yet."""
INTERNAL = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
"""Of a batch that nobody reads any longer; as shells count it."""


def of_error(kind: ErrorKind) -> int:
    """The status for a question that was refused: is the input wrong, or is the answer missing?

    >>> of_error("unknown_name"), of_error("not_yet")
    (2, 3)
    """
    return NOT_ANSWERED if kind in {"not_yet", "unsupported"} else BAD_INPUT
