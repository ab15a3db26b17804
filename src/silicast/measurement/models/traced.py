"""The op graph of a measured program, kept beside the file of measurements."""

from __future__ import annotations

from pathlib import Path

from silicast.measurement.models.case import Case, Place
from silicast.workload.front_ends import graph_of
from silicast.workload.op_graph import write_op_graph


def graph_folder(measurements: Path) -> Path:
    """Where op graphs of a file of measurements are.

    >>> graph_folder(Path("runs/epyc.jsonl")).as_posix()
    'runs/epyc.graphs'
    """
    return measurements.with_suffix(".graphs")


def traced(case: Case, dtype: str, measurements: Path) -> str:
    """Writes the program's op graph, from tensors without data.

    Returns:
        Its path from the file of measurements.

    Raises:
        SilicastError: it cannot be exported, or the folder cannot be written.
    """
    program = case.program(Place("meta", dtype))
    graph = graph_of(program.traced or program.module, program.args, name=case.name)
    folder = graph_folder(measurements)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.joinpath(f"{case.name}-{dtype}.json")
    write_op_graph(graph, path)
    return f"{folder.name}/{path.name}"
