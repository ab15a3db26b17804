"""Ops that only training runs."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.core.errors import require
from silicast.scenario.kernels.tables._spec import (
    BATCH,
    DIRECTION,
    ELEMENTS,
    PASSES,
    SIZE,
    TOKENS,
    WIDTH,
    Lowering,
    OpSpec,
)

OPTIMIZERS = ("adam", "adamw", "sgd", "sgd_momentum", "lion", "muon", "adafactor")


def _optimizer(case: Lowering) -> None:
    """The kind becomes a flag; Muon's matrices are assumed where their shape is not given."""
    kind = str(case.words.pop("kind", "adamw"))
    shape = [name for name in ("rows", "cols") if name in case.dims]
    for name in shape:
        require(
            kind == "muon",
            f"{kind} does not depend on {name}",
            name,
            "only muon multiplies matrices",
        )
    case.flags[kind] = True
    case.flags["assumed_shape"] = kind == "muon" and not shape
    if len(shape) == 1:  # square
        (side,) = shape
        case.dims["cols" if side == "rows" else "rows"] = case.dims[side]


OPS: Mapping[str, OpSpec] = {
    "optimizer": OpSpec(
        "one update of `elements` parameters; rows and cols: of muon's matrices",
        {"elements": ELEMENTS},
        {"rows": (WIDTH, None), "cols": (WIDTH, None)},
        flags={"master": True, "fp32_states": True, "fp32_grads": False},
        words={"kind": OPTIMIZERS},
        lower=_optimizer,
    ),
    "gated_mlp": OpSpec(
        "an MLP with a gate: three products and the activation",
        {"tokens": TOKENS, "hidden": WIDTH, "intermediate": WIDTH},
        words={DIRECTION: PASSES},
    ),
    "linear_preference_loss": OpSpec(
        "a last linear layer with a loss of pairs of answers (CPO, ORPO, SimPO)",
        {"sequences": BATCH, "length": TOKENS, "hidden": WIDTH, "vocab": SIZE},
        words={DIRECTION: PASSES},
    ),
    "linear_cross_entropy": OpSpec(
        "a last linear layer with the loss of its logits",
        {"tokens": TOKENS, "hidden": WIDTH, "vocab": SIZE},
        words={DIRECTION: PASSES},
    ),
    "cross_entropy": OpSpec(
        "loss of rows of logits; backward: their gradient too",
        {"rows": TOKENS, "vocab": SIZE},
        flags={"backward": False},
        words={DIRECTION: PASSES},
    ),
}
