"""`silicast nas`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Count, Json


@described()
def nas(
    space: str,
    /,
    *,
    device: str,
    samples: Annotated[list[Path] | None, Parameter(negative="")] = None,
    budget: str | None = None,
    accuracy: Path | None = None,
    evaluations: int = 20_000,
    top: Count = 10,
    seed: int = 0,
    json: Json = False,
) -> int:
    """Search the networks of a space that a device runs within a budget of time.

    Args:
        space: nasbench201 or fbnet.
        device: that runs them: any name; of those whose latencies the space's tables hold
            (pixel3, raspi4, RTX 2080 Ti, ...) no samples are needed.
        samples: latencies of about ten networks on the device: a table with the columns model and
            latency_ms, or a calibration that `silicast calibrate` made of one. Without, a device
            of the catalog is predicted by its kernels, for ranks: a framework may take many times
            as long; of any other, networks are ranked by what known devices take.
        budget: most time of one inference, such as 20ms; without samples or a table it holds for
            a runtime that folds norms alone.
        accuracy: a table of networks (columns model and accuracy) to choose from; left out, the
            networks with most multiplications within the budget are searched.
        evaluations: networks that a search looks at, at most.
        top: networks that are listed.
    """
    from silicast.measurement.calibrating.sampled_search import search_space
    from silicast.report.measurements.sampled_search import search_data, search_parts
    from silicast.scenario.reading.numbers import milliseconds

    result = search_space(
        space,
        device,
        tuple(samples or ()),
        budget_ms=None if budget is None else milliseconds(budget, "--budget"),
        accuracy=accuracy,
        evaluations=evaluations,
        count=top,
        seed=seed,
    )
    for line in result.notes:
        warn(line)
    if json:
        write_json(search_data(result))
    else:
        show(*search_parts(result))
    return status.ANSWERED
