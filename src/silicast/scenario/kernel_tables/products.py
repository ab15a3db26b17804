"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.scenario.kernel_tables._spec import BATCH, SIZE, WIDTH, Lowering, OpSpec
from silicast.scenario.strict import require

ENGINES = ("vllm", "sglang", "trtllm")
"""Libraries whose quantised products take 16-bit activations and quantise them in the call."""


def _product(case: Lowering) -> None:
    if "includes_quantize" not in case.table:
        library = case.table.get("library", "")
        case.flags["includes_quantize"] = str(library).casefold() in ENGINES


def _convolution(case: Lowering) -> None:
    """The filter must fit into the padded image, and groups must divide the channels."""
    for side, size in (("h", "height"), ("w", "width")):
        taps, padding = (
            case.whole(f"{name}_{side}" if f"{name}_{side}" in case.dims else name)
            for name in ("kernel", "padding")
        )
        room = case.whole(size) + 2 * padding
        require(
            taps <= room,
            f"a filter of {taps} does not fit into {size} = {room} with padding",
            "kernel",
            "a convolution gives at least one result",
        )
    for name in ("in_channels", "out_channels"):
        groups = case.whole("groups")
        require(
            case.whole(name) % groups == 0, f"groups = {groups} does not divide {name}", "groups"
        )
    require(
        not (case.flags["backward_data"] and case.flags["backward_weights"]),
        "both gradients are asked for",
        "backward_weights",
        "each is a kernel of its own: ask twice",
    )


OPS: Mapping[str, OpSpec] = {
    "gemm": OpSpec(
        "m x k times k x n, batch times; includes_quantize: activations are quantised by the call",
        {"m": SIZE, "n": SIZE, "k": SIZE},
        {"batch": (SIZE, 1)},
        flags={"includes_quantize": False},
        lower=_product,
    ),
    "conv2d": OpSpec(
        "convolution of a batch of images, or one of its two gradients; kernel_h, stride_w, ...: "
        "where the sides differ",
        {
            "batch": BATCH, "in_channels": WIDTH, "out_channels": WIDTH, "height": WIDTH,
            "width": WIDTH, "kernel": (1, 4096),
        },
        {
            "stride": ((1, 4096), 1), "padding": ((0, 4096), 0), "groups": (WIDTH, 1),
            "kernel_h": ((1, 4096), None), "kernel_w": ((1, 4096), None),
            "stride_h": ((1, 4096), None), "stride_w": ((1, 4096), None),
            "padding_h": ((0, 4096), None), "padding_w": ((0, 4096), None),
        },
        flags={"backward_data": False, "backward_weights": False},
        lower=_convolution,
    ),
}  # fmt: skip
