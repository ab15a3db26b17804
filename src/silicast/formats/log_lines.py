"""Lines of a program's output, without what a launcher or a log puts before each of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST_LABEL = 100


def without_labels(lines: Sequence[str], header: re.Pattern[str]) -> list[str]:
    """Lines without the label that stands before the line which ``header`` is known by.

    Numbers in a label may differ from line to line: a rank, a time, a process. Lines that have no
    such label stay as they are.

    >>> without_labels(["[1,0]<stdout>: # size", "[1,0]<stdout>: 8", "a"], re.compile("# size"))
    ['# size', '8', 'a']
    """
    label = _label(lines, header)
    if label is None:
        return list(lines)
    return [line[match.end() :] if (match := label.match(line)) else line for line in lines]


def _label(lines: Sequence[str], header: re.Pattern[str]) -> re.Pattern[str] | None:
    """What stands before the header, with any numbers; None = no header, or nothing."""
    for line in lines:
        match = header.search(line)
        if match is not None and match.start() <= LONGEST_LABEL:
            label = line[: match.start()].rstrip()
            if not label:
                return None
            return re.compile(r"\d+".join(map(re.escape, re.split(r"\d+", label))) + r"[ \t]?")
    return None
