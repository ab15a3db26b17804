"""`--html FILE`: an answer as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app.console import warn
from silicast.app.predict import Tree

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
