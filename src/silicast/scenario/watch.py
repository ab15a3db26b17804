"""What a caller is told while an answer is worked out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from silicast.scenario.answers.serving.served import Served


@final
@dataclass(frozen=True)
class ProgressWatch:
    """By default nothing is told.

    Attributes:
        simulated: is given the requests on their replicas before task ``serving`` simulates them.
        searched: is told how many of how many plans task ``plan`` predicted in full.
        resume: file in which a search keeps plans that were predicted in full, and from which the
            same search goes on.
    """

    simulated: Callable[[Served], None] = lambda _served: None
    searched: Callable[[int, int], None] = lambda _done, _count: None
    resume: Path | None = None
