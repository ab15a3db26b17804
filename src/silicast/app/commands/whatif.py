"""`silicast whatif`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, write_json
from silicast.app.flags import Json


@described()
def whatif(
    trace: Path,
    /,
    *,
    device: str,
    batch: str = "",
    plan: str = "",
    traced: str = "",
    format_: Annotated[str, Parameter(name="--format")] = "",
    json: Json = False,
) -> int:
    """Predict what a traced run would take on another device, at another batch, on many GPUs.

    Each measured kernel is multiplied by the ratio of its predictions for both devices; what was
    not understood is named, with its share.

    Args:
        trace: a timeline of the PyTorch profiler (JSON, with record_shapes=True), of Nsight
            Systems (SQLite), or a rank of a measured Chakra trace (.et).
        batch: sequences that were traced and that are asked for, as in 8:32.
        plan: GPUs that share the run, as in tp=2,dp=4,pp=2,micro_batches=8: kernels are cut and
            collectives inserted. A replica and a micro-batch are one traced batch.
        traced: the device of the trace, where the file does not name it.
        format_: the tool, if it cannot be recognised by the file.
    """
    from silicast.measurement.what_if.scaled_trace import scaled_trace
    from silicast.report.measurements.what_if import what_if_table, what_if_values

    result = scaled_trace(trace, device, traced, format_, batch, plan)
    if json:
        write_json(what_if_values(result))
    else:
        show(what_if_table(result))
    return status.ANSWERED
