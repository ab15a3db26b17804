"""Recurrent layers: the whole call of a library, forward or one of its gradients."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.core.errors import require
from silicast.kernels.recurrent.recurrent_layers import PERSISTENT
from silicast.scenario.kernels.tables._spec import Lowering, OpSpec, Range

WIDTH: Range = (1, 1 << 16)
ANY_WIDTH: Range = (0, 1 << 16)
LENGTH: Range = (1, 1 << 20)


def _lower(case: Lowering) -> None:
    """At most one gradient; a projection is narrower than the units."""
    require(
        not (case.flags["backward_data"] and case.flags["backward_weights"]),
        "both gradients are asked for",
        "backward_weights",
        "each is a call of its own: ask twice",
    )
    require(
        not (case.flags[PERSISTENT] and case.flags["backward_weights"]),
        "gradients of weights have no steps that could hold them",
        PERSISTENT,
        "leave it out",
    )
    if "projection" in case.dims:
        projection, hidden = case.whole("projection"), case.whole("hidden")
        require(
            projection < hidden,
            f"projection = {projection} is not below hidden = {hidden}",
            "projection",
            "the projected state is narrower; leave it out for a plain layer",
        )


def _layer(meaning: str, *, projects: bool = False) -> OpSpec:
    projection: dict[str, tuple[Range, int | None]] = {"projection": (WIDTH, None)}
    return OpSpec(
        f"{meaning}; input = 0 leaves out the products of the inputs; persistent: one kernel holds "
        "the weights where they fit",
        {"batch": WIDTH, "steps": LENGTH, "hidden": WIDTH, "input": ANY_WIDTH},
        projection if projects else {},
        flags={"backward_data": False, "backward_weights": False, PERSISTENT: False},
        lower=_lower,
    )


OPS: Mapping[str, OpSpec] = {
    "lstm": _layer("a layer of an LSTM over all steps, or one of its gradients", projects=True),
    "gru": _layer("the same of a GRU"),
    "rnn": _layer("the same of a plain recurrent layer"),
}
