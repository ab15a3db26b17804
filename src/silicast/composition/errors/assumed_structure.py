"""What it costs in certainty that the structure of a model was assumed."""

from __future__ import annotations

import math

from silicast.composition.errors.error_correlation import constants
from silicast.core.prediction import Z90, Quantity

REMARK = (
    "the model's structure is assumed: intervals of time and of memory are widened for it, alone "
    "by a factor of {:.2f}"
)


def structure_factor() -> float:
    """p95 over the estimate where nothing but the structure is uncertain: a judged spread of
    ``structure_log_sd`` (catalog/physics/uncertainty.json).
    """
    return math.exp(Z90 * float(constants()["structure_log_sd"]))


def structure_remark() -> str:
    """The warning that states the factor."""
    return REMARK.format(structure_factor())


def with_assumed_structure(memory: Quantity) -> Quantity:
    """Memory of a model whose structure was assumed: its weights and cache are as uncertain."""
    factor = structure_factor()
    return Quantity(memory.estimate, memory.p05 / factor, memory.p95 * factor)
