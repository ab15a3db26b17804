"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.scenario.kernel_tables._spec import BATCH, SIZE, WIDTH, Lowering, OpSpec

ENGINES = ("vllm", "sglang", "trtllm")
"""Libraries whose quantised products take 16-bit activations and quantise them in the call."""


def _product(case: Lowering) -> None:
    if "includes_quantize" not in case.table:
        library = case.table.get("library", "")
        case.flags["includes_quantize"] = str(library).casefold() in ENGINES


OPS: Mapping[str, OpSpec] = {
    "gemm": OpSpec(
        "m x k times k x n, batch times; includes_quantize: activations are quantised by the call",
        {"m": SIZE, "n": SIZE, "k": SIZE},
        {"batch": (SIZE, 1)},
        flags={"includes_quantize": False},
        lower=_product,
    ),
    "conv2d": OpSpec(
        "convolution of a batch of images",
        {
            "batch": BATCH, "in_channels": WIDTH, "out_channels": WIDTH, "height": WIDTH,
            "width": WIDTH, "kernel": (1, 4096),
        },
        {"stride": ((1, 4096), 1), "padding": ((0, 4096), 0), "groups": (WIDTH, 1)},
    ),
}  # fmt: skip
