"""`--trace FILE`: the predicted timeline as a file for ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app.console import warn
from silicast.app.predict import Tree
from silicast.core.errors import SilicastError

TraceFile = Annotated[Path | None, Parameter(name="--trace")]


def write_trace(scenario: Tree, target: Path | None, file: Path | None = None) -> None:
    """Writes the timeline behind a scenario's answer; nothing where no file is named.

    Args:
        file: where the scenario stands; relative paths in it start there.

    Raises:
        SilicastError: the scenario cannot be answered, its task has no timeline, or the file
            cannot be written.
    """
    if target is None:
        return
    import msgspec

    from silicast.report.drawing.trace import trace_document
    from silicast.scenario.answerer import answerer_for
    from silicast.scenario.decode import decode

    requested = decode({**scenario, "why": "full"}, folder=file.parent if file else None)
    document = trace_document(answerer_for(requested.raw.task).trace(requested))
    try:
        target.write_bytes(msgspec.json.encode(document))
    except OSError as error:
        raise SilicastError(
            f"cannot be written: {error.strerror}", kind="io", field="--trace", file=str(target)
        ) from None
    count = len(document["traceEvents"])
    warn(f"{target}: {count:,} events; open it at https://ui.perfetto.dev")
