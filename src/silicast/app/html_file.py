"""`--html FILE`: an answer as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app.console import warn
from silicast.app.predict import Tree
from silicast.core.errors import SilicastError

HtmlFile = Annotated[Path | None, Parameter(name="--html")]


def write_html(scenario: Tree, reply: Tree, target: Path | None, more: Sequence[str] = ()) -> None:
    """Writes the page of an answer; nothing where no file is named or nothing was answered.

    Args:
        more: what else was asked of it, a line each.

    Raises:
        SilicastError: it cannot be written.
    """
    if target is None or not reply["ok"]:
        return
    from silicast.report.answers import title
    from silicast.report.drawing.page import answer_page, write_page

    write_page(target, answer_page(title(scenario), reply, more))
    warn(f"{target}: the report")


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
