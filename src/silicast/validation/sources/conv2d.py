"""Rows of convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.hardware.catalog import find_device
from silicast.learning.boosting import Settings
from silicast.learning.training import MeasuredKernels
from silicast.validation.source import Source
from silicast.validation.suites import _conv_rows

SETTINGS = Settings(trees=200, depth=4, rate=0.1, prior=8.0, rows=0.6, columns=0.4)
"""A few hundred rows of an architecture: shallow trees, each of most rows."""


def _convolutions(data: Path) -> Iterator[MeasuredKernels]:
    for rows in _conv_rows.load_rows(data):
        if find_device(rows.device).execution_model == "simt":
            yield MeasuredKernels(rows.batch, rows.device, rows.measured_us * 1e-6, rows.held)


SOURCES = (
    Source(
        "conv2d",
        (_conv_rows.TABLE,),
        "one layer in four, whatever its batch, by hash",
        _convolutions,
        SETTINGS,
    ),
)
