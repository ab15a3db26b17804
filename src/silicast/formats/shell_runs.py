"""What a shell script carries out and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final


@final
@dataclass(frozen=True)
class ShellRun:
    """A command that a script carries out.

    Attributes:
        words: of the command; assigned: variables that have values for it alone.
        variables: of the shell that carries it out, as they are then.
        exported: names of them that a program which the shell starts has too.
        around: words of the commands that start that shell, without its script; () = the script's.
        apart: the shell is on another machine, or in a container.
        loops: variable of each loop around it ("" = none) -> how often it runs, 0 = not known.
    """

    words: list[str]
    assigned: Mapping[str, str]
    variables: Mapping[str, str | list[str]]
    around: tuple[str, ...] = ()
    apart: bool = False
    loops: Mapping[str, int] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()


def option_count(words: Sequence[str]) -> int:
    """Long options among words."""
    return sum(word.startswith("--") for word in words)
