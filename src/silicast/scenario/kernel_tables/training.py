"""Ops that only training runs."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.scenario.kernel_tables._spec import ELEMENTS, SIZE, TOKENS, OpSpec

OPS: Mapping[str, OpSpec] = {
    "optimizer": OpSpec(
        "one update of `elements` parameters",
        {"elements": ELEMENTS},
        words={"kind": ("adam", "adamw", "sgd", "sgd_momentum", "lion", "muon", "adafactor")},
    ),
    "cross_entropy": OpSpec(
        "loss of rows of logits", {"rows": TOKENS, "vocab": SIZE}, flags={"backward": False}
    ),
}
