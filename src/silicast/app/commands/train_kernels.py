"""`silicast train-kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import show, warn


def train_kernels(
    *families: str, output: Annotated[Path | None, Parameter(alias="-o")] = None
) -> int:
    """Train the corrections of kernel models from measured rows, and write their artefacts.

    Reads the measured tables in SILICAST_DATA. The same rows give the same bytes.

    Args:
        families: op families, all that there are rows for if none is named.
        output: a folder to write to; the catalog's own if none is given.
    """
    from silicast.validation.checkout import needs_checkout

    with needs_checkout():
        from silicast.validation.scorecard.suite import data_folder
        from silicast.validation.scorecard.training import train_kernels as train

        cards = train(data_folder(), families, output=output, report=warn)
    for card in cards:
        for one in card.trained:
            before, after = one.scores["analytic"], one.scores["learned"]
            show(f"{card.family} {one.key}: {one.rows} rows, mean APE {before} % to {after} %")
    return status.ANSWERED
