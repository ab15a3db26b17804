"""The suite of unseen boards reads rows of every source above the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.scorecard.suites.unseen import ABOVE_KERNELS

pytestmark = pytest.mark.data


@pytest.mark.parametrize("place", range(len(ABOVE_KERNELS)))
def test_every_source_has_rows_of_the_boards_asked_for(place: int, data: Path) -> None:
    score = ABOVE_KERNELS[place]
    assert [scored.metric for scored in score(data, 200, lambda _: True)]
    assert not list(score(data, 200, lambda _: False))
