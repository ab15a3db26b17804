"""`silicast runtime`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from silicast.app import status
from silicast.app.console import live_line, show, warn, write_lines

runtime = App(
    name="runtime",
    help="Find out what runtimes of whole networks do to neighbouring operators.",
    help_format="plaintext",
)


@runtime.command
def detect(
    name: str = "onnxruntime",
    /,
    *,
    operators: str | None = None,
    rounds: int = 300,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> int:
    """Find out which neighbouring operators a runtime runs as one, by timing test models.

    Writes minimal pairs of test models, times A, B and A + B on one thread of this machine, and
    states a rule only where times tell it clearly. Needs pip install 'silicast[runtimes]', or
    'silicast[litert]'.

    Args:
        name: onnxruntime, or litert.
        operators: first operators, separated by commas (conv,matmul); all if left out.
        rounds: of one pair, at most; more decide pairs that a busy machine hides.
        output: a TOML file of the rules, as catalog/runtimes has them; else they are printed.
    """
    from silicast.core.files import check_writable, write_atomically
    from silicast.measurement.runtimes.detect import detect as detected_rules
    from silicast.measurement.runtimes.detect import runtime_named

    if output is not None:
        check_writable(output)
    names = tuple(each.strip() for each in (operators or "").split(",") if each.strip())
    with live_line() as line:
        result = detected_rules(
            runtime_named(name),
            names,
            most_rounds=rounds,
            watch=lambda done, every: line(f"{done} of {every} pairs decided"),
        )
    for first, second in result.undecided():
        warn(f"undecided: {first}, then {second}; more --rounds, or a quieter machine")
    if output is None:
        write_lines(result.text().splitlines())
    else:
        write_atomically(output, result.text().encode())
        show(f"{output}: rules of {result.runtime} {result.version}, {result.target}")
    return status.ANSWERED
