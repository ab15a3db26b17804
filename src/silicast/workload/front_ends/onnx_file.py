"""ONNX files: shapes by onnx's own inference, weights never loaded.

Reshapes, and the arithmetic on shapes that runs on the host, make no node; every other operator
does. Chains that every runtime joins are one node: the erf form of GELU, and the quantise and
dequantise pairs around a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError
from silicast.workload.front_ends.registry import reads
from silicast.workload.graph import Graph

NEEDS_ONNX = "pip install 'silicast[onnx]'"
OLDEST_OPSET = 9
"""Operators before it lack rules of shapes that later ones have."""


@reads(".onnx")
def read_onnx(path: Path, symbols: Mapping[str, int], training: bool = False) -> Graph:
    """The graph of an ONNX file.

    Args:
        symbols: sizes of dynamic dimensions: by their name in the file ("batch_size"), by input
            and axis ("input_ids.0"), or as "batch" and "seq_len" where just one dynamic dimension
            stands first, or second, in inputs.
        training: makes no difference: a file holds the forward pass.

    Raises:
        SilicastError: onnx is missing; the file is not one, or of a version that is not read; a
            dynamic dimension has no value; a node's sizes cannot be found, or nodes wait for each
            other.
    """
    del training
    try:
        import onnx
    except ImportError:
        raise SilicastError(
            "onnx is not installed", kind="unsupported", field="onnx", hint=NEEDS_ONNX
        ) from None
    from silicast.workload.front_ends.onnx_graph import graph_of_model
    from silicast.workload.front_ends.onnx_shapes import with_shapes

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's errors have no common type
        raise SilicastError(
            f"is not an ONNX file ({type(error).__name__})", field="graph", file=str(path),
            hint="expected a serialised ModelProto, as torch.onnx.export writes it",
        ) from None  # fmt: skip
    try:
        _check_version(model, onnx.defs.onnx_opset_version())
        return graph_of_model(with_shapes(model, symbols), path.stem)
    except SilicastError as error:
        raise SilicastError(
            error.message, kind=error.kind, field=error.field, hint=error.hint, file=str(path)
        ) from None


def _check_version(model: Any, newest: int) -> None:
    if not model.graph.node:
        raise SilicastError("holds no nodes", field="graph", hint="export a model, not weights")
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and not OLDEST_OPSET <= entry.version <= newest:
            raise SilicastError(
                f"opset {entry.version}; {OLDEST_OPSET} to {newest} are read", kind="unsupported",
                field="opset_import",
                hint="convert it with onnx.version_converter, or export with opset_version=17",
            )  # fmt: skip
