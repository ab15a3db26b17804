"""How the lines of a batch are cut into pieces."""

from __future__ import annotations

import io

import pytest

from silicast.runner.lines import CaseLines
from silicast.runner.workers import LONG_PIECE_S, PIECE_S, PIECES_LEFT, Workers


@pytest.mark.parametrize(
    ("processes", "cases", "seconds"),
    [
        (1, 100, LONG_PIECE_S),  # nobody else waits for a share
        (2, 100, 100 * PIECE_S / 4 / (2 * PIECES_LEFT)),
        (2, 1000, LONG_PIECE_S),
        (2, 8, PIECE_S),
    ],
)
def test_a_piece_is_as_long_as_leaves_several_for_each_process(
    processes: int, cases: int, seconds: float
) -> None:
    lines = CaseLines(io.BytesIO(b"{}\n" * cases))
    pieces = Workers(lines, None, [], processes).pieces()
    piece, rows = next(pieces)
    assert len(piece) == len(rows) == int(seconds / (PIECE_S / 4))
    pieces.close()  # type: ignore[attr-defined]
