"""From Python: what ``silicast nas`` does, with an accuracy that is a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from silicast.app.arguments import described

if TYPE_CHECKING:
    from silicast.measurement.calibrating.sampled_search import SampledSearch


@described()
def nas(
    space: str,
    /,
    *,
    device: str,
    samples: str | Path | Sequence[str | Path] = (),
    budget_ms: float | None = None,
    accuracy: str | Path | Callable[[Sequence[str]], Sequence[float]] | None = None,
    evaluations: int = 20_000,
    top: int = 10,
    seed: int = 0,
) -> SampledSearch:
    """The networks of a search space that are best within a budget of time on a device.

    Args:
        space: nasbench201 or fbnet.
        device: that runs them: any name.
        samples: tables of latencies of about ten networks on the device (columns model and
            latency_ms), or calibrations made of such.
        budget_ms: most time of one inference.
        accuracy: a table of networks (columns model and accuracy) to choose from, or a function of
            names; left out, the networks with most multiplications within the budget are searched.
        evaluations: networks that a search looks at, at most.
        top: networks that are returned.

    Raises:
        SilicastError: an unknown space, samples that cannot be right, or a budget without samples
            of a device that is not known.

    >>> import silicast
    >>> best = silicast.nas("nasbench201", device="my board", top=1)
    >>> best.names[0].count("nor_conv_3x3"), best.networks.evaluated
    (6, 15625)
    """
    from silicast.measurement.calibrating.sampled_search import search_space

    files = [samples] if isinstance(samples, str | Path) else list(samples)
    return search_space(
        space,
        device,
        [Path(each) for each in files],
        budget_ms=budget_ms,
        accuracy=Path(accuracy) if isinstance(accuracy, str | Path) else accuracy,
        evaluations=evaluations,
        count=top,
        seed=seed,
    )
