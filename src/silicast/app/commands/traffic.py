"""`silicast traffic`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Json


@described()
def traffic(
    file: Path,
    /,
    *,
    model: str | None = None,
    device: str | None = None,
    only: str | None = None,
    skip_bad_rows: Annotated[bool, Parameter(negative="")] = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    json: Json = False,
) -> int:
    """Fit the traffic of a trace or log: lengths, arrivals, shared prefixes, time of tools.

    Args:
        file: a trace as `silicast serve --trace` takes it, spans of OpenTelemetry (JSON),
            conversations of ShareGPT, traces of agents (Weka, AgentX; a file or a folder), or
            /metrics of vLLM or SGLang as text.
        only: the name of one trace, in a file of several (column trace).
        output: a TOML file for a scenario of task serving with this traffic.
    """
    from silicast.core.files import write_atomically
    from silicast.report.tasks.traffic import scenario_text, traffic_data, traffic_report
    from silicast.scenario.seen_traffic import seen_traffic

    if output is not None:
        _check_names(model, device)
    data = traffic_data(seen_traffic(file, only or "", skip_bad_rows=skip_bad_rows))
    if output is not None:
        write_atomically(output, scenario_text(data, model, device).encode())
        warn(f"{output}: a scenario with this traffic")
    if json:
        write_json(data)
    else:
        show(traffic_report(data))
    return status.ANSWERED


def _check_names(model: str | None, device: str | None) -> None:
    """Refuses names that the written scenario would be refused for."""
    from silicast.hardware.catalog import find_device
    from silicast.workload.models.lookup import find_model

    if device:
        find_device(device)
    if model:
        find_model(model)
