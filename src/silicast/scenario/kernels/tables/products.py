"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.core.dtypes import RECIPES
from silicast.core.errors import SilicastError, require
from silicast.kernels.engine_kernels import kernels_of
from silicast.kernels.products.sparsity import FLAG
from silicast.scenario.kernels.tables._spec import BATCH, SIZE, WIDTH, Lowering, OpSpec
from silicast.scenario.reading.kinds_of_names import dtype_name
from silicast.workload.libraries.catalog import library_names


def _product(case: Lowering) -> None:
    """Engines' quantised products take 16-bit activations and quantise them in the call."""
    if not case.flags[FLAG]:
        del case.flags[FLAG]  # an op says only that it is sparse
    if "includes_quantize" not in case.table:
        name, dtype = str(case.table.get("library", "")), str(case.table.get("dtype", "bf16"))
        case.flags["includes_quantize"] = quantizes(name, dtype)


def quantizes(library: str, dtype: str) -> bool:
    """Whether a library's product in a format quantises its activations unless it is told not to.

    Raises:
        SilicastError: unknown format.
    """
    if library not in library_names():
        return False
    engine = kernels_of(library_names().canonical(library))
    return engine.holds("gemm", "quantize") and RECIPES[dtype_name(dtype, "dtype")].quantizes


_PAIRS = ("kernel", "stride", "padding")
"""Sizes of both sides of a window; ``kernel_h``, ``stride_w``, ... are those of one side."""


def _convolution(case: Lowering) -> None:
    """Filter, stride and padding are stated for both sides at once or for each; the filter must fit
    into the padded image, and groups must divide the channels.
    """
    for name in _PAIRS:
        sides = [f"{name}_{side}" for side in "hw"]
        if all(side in case.dims for side in sides):
            case.dims.pop(name, None)
        elif name not in case.dims:
            raise SilicastError("is missing", field=name, hint=f"or {' and '.join(sides)}")
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
        "m x k times k x n, batch times; includes_quantize: activations are quantised by the call; "
        "sparse_2_4: two weights in four are zero and left out",
        {"m": SIZE, "n": SIZE, "k": SIZE},
        {"batch": (SIZE, 1)},
        flags={"includes_quantize": False, FLAG: False},
        lower=_product,
    ),
    "conv2d": OpSpec(
        "convolution of a batch of images, or one of its two gradients; kernel_h, stride_w, ...: "
        "where the sides differ",
        {
            "batch": BATCH, "in_channels": WIDTH, "out_channels": WIDTH, "height": WIDTH,
            "width": WIDTH,
        },
        {
            "kernel": ((1, 4096), None), "stride": ((1, 4096), 1), "padding": ((0, 4096), 0),
            "groups": (WIDTH, 1),
            "kernel_h": ((1, 4096), None), "kernel_w": ((1, 4096), None),
            "stride_h": ((1, 4096), None), "stride_w": ((1, 4096), None),
            "padding_h": ((0, 4096), None), "padding_w": ((0, 4096), None),
        },
        flags={"backward_data": False, "backward_weights": False},
        lower=_convolution,
    ),
}  # fmt: skip
