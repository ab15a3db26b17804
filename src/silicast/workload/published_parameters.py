"""Our parameter counts beside published ones."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

from silicast.workload.counting import parameters
from silicast.workload.model import ModelConfig
from silicast.workload.model_file import ParametersTable

TOLERANCE = 0.005
"""Largest difference between our count and a published one."""


def counted_as(model: ModelConfig, stated: ParametersTable) -> int:
    """Parameters of ``model`` in the parts that the published count covers.

    >>> from silicast.workload.models import find_model
    >>> counted_as(find_model("Llama-3.1-8B"), ParametersTable(source=""))
    8030261248
    """
    table = model.vocab * model.hidden
    total = parameters(model, mtp=stated.mtp)
    total += 2 * table * model.mtp_layers if stated.mtp_copies else 0
    total -= 0 if stated.encoder else model.encoder_parameters
    return total - (0 if stated.embedding else table)


def difference(model: ModelConfig, stated: ParametersTable) -> float:
    """Relative difference of our count from the published one; 0 where the published one is
    rounded and ours rounds to it.

    Raises:
        ValueError: no count is stated.
    """
    ours = counted_as(model, stated)
    if stated.exact is not None:
        return ours / stated.exact - 1.0
    if stated.rounded is None:
        raise ValueError(f"no published count of {model.name}")
    printed = Decimal(stated.rounded[:-1])
    unit = {"B": 10**9, "M": 10**6, "T": 10**12}[stated.rounded[-1]]
    if (Decimal(ours) / unit).quantize(printed, ROUND_HALF_UP) == printed:
        return 0.0
    return float(Decimal(ours) / (printed * unit)) - 1.0
