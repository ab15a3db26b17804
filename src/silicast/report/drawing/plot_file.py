"""Drawings in files: their formats, and the same bytes every time."""

from __future__ import annotations

import io
import math
from html import escape
from pathlib import Path
from typing import Any, Final

from silicast.core.errors import SilicastError
from silicast.core.files import writing
from silicast.core.packages import missing_package

ENDINGS: Final = (".svg", ".png", ".pdf", ".html")
PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<body style="margin: 1rem; background: #fff">
{svg}</body></html>
"""


def check_plot(path: Path) -> None:
    """Refuses what could not be drawn, before anything is simulated.

    Raises:
        SilicastError: an ending that names no format, or matplotlib is not there.
    """
    if path.suffix not in ENDINGS:
        raise SilicastError(
            f"{path.name}: the ending {path.suffix!r} names no format of drawings",
            field="--plot",
            hint=f"one of {', '.join(ENDINGS)}",
        )
    figure_class()


def save_plot(figure: Any, path: Path) -> None:
    """Writes a figure in the format that the ending names.

    Raises:
        SilicastError: it cannot be written.
    """
    with writing(path) as file:
        if path.suffix == ".html":
            file.write(_page(figure, path.stem).encode())
            return
        figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=_undated(path.suffix))


def _page(figure: Any, title: str) -> str:
    """A page that holds the drawing and nothing else."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata=_undated(".svg"))
    text = drawn.getvalue()
    return PAGE.format(title=escape(title), svg=text[text.index("<svg") :])


def time_tick(seconds: float, _place: int | None = None) -> str:
    """A number at an axis of seconds that goes over decades.

    >>> time_tick(0.02), time_tick(0.5), time_tick(3.0), time_tick(0.07)
    ('20 ms', '500 ms', '3 s', '')
    """
    first = seconds / 10.0 ** math.floor(math.log10(seconds) + 1e-9)
    if not any(math.isclose(first, digit) for digit in (1, 2, 3, 5)):
        return ""
    return f"{seconds:g} s" if seconds >= 1.0 else f"{seconds * 1e3:g} ms"


def figure_class() -> Any:
    """The class of figures; no display is needed."""
    try:
        from matplotlib import rcParams
        from matplotlib.figure import Figure
    except ImportError:
        otherwise = "leave --plot out: the curve is drawn in text"
        raise missing_package("matplotlib", "a drawing", "--plot", otherwise) from None
    rcParams["svg.hashsalt"] = "silicast"
    return Figure


def _undated(ending: str) -> dict[str, None]:
    """The same bytes every time: formats write the date unless told not to."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending, {})
