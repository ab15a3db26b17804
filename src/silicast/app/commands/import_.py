"""`silicast import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import show, warn
from silicast.app.flags import key_values


def import_(
    files: list[Path],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    format_: Annotated[str, Parameter(name="--format")] = "",
    device: str = "",
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
) -> int:
    """Import measurements of other tools: profiles, and benchmarks of servers and collectives.

    The rows calibrate a device and score predictions; rows that could not be identified are listed
    in the same file.

    Args:
        files: Nsight Systems (SQLite, CSV), Nsight Compute (CSV), PyTorch profiler (JSON),
            nccl-tests, vllm bench serve, sglang.bench_serving, GenAI-Perf, AIPerf, guidellm,
            trtllm-bench, or a table of kernels (CSV, JSON Lines, Parquet).
        output: the file of measurements to write or to continue.
        format_: the tool, if it cannot be recognised by the file.
        device: that was measured, if the file does not state it: catalog name, or path to a device
            file.
        set_: field=value that the files do not state, such as parallel.tp=2 or
            workload.arrival.concurrency=8; may be given several times.
    """
    from silicast.measurement.importers.files import import_files, save
    from silicast.report.imported import imported_lines, is_understood

    fields = key_values(set_ or [], "--set", "--set parallel.tp=2")
    found = import_files(files, name=format_, device=device, fields=fields)
    save(found, output)
    for line in imported_lines(found):
        show(line)
    understood = is_understood(found)
    if not understood:
        warn("no row can be predicted: see the reasons above")
    return status.ANSWERED if understood else status.NOT_ANSWERED
