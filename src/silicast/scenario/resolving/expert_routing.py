"""How tokens spread over experts: the field ``routing`` of a workload.

>>> routing_name(None)
'balanced'
>>> routing_name([3, 1])
'histogram:3,1'
"""

from __future__ import annotations

from collections.abc import Sequence

from silicast.core.errors import SilicastError
from silicast.kernels.experts.routing import check_distribution, histogram_name


def routing_name(
    stated: str | Sequence[float] | None, experts: int | None = None, field: str = "routing"
) -> str:
    """The name of a distribution of :mod:`silicast.kernels.experts.routing`.

    Args:
        stated: a name, or one share an expert; None = balanced.
        experts: that a histogram must have shares for, where they are known.
        field: where it is stated.

    Raises:
        SilicastError: no such distribution, shares that are none, or of another number of experts.
    """
    name = stated or "balanced"
    name = name.strip().casefold() if isinstance(name, str) else histogram_name(name)
    try:
        check_distribution(name)
    except SilicastError as error:
        raise SilicastError(error.message, field=field, hint=error.hint) from None
    shares = name.count(",") + 1
    if experts is not None and name.startswith("histogram:") and shares != experts:
        raise SilicastError(
            f"expected one share for each of {experts} experts, found {shares}",
            field=field,
            hint="of one rank's experts, where ranks share them",
        )
    return name
