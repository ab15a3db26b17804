"""`silicast explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show
from silicast.app.flags import BatchFlags, Calibrations, Degrees, Json, inference_scenario
from silicast.app.html_file import TraceFile, write_trace
from silicast.app.predict import Tree, predicted, print_reply, read_scenario, with_calibrations
from silicast.core.errors import SilicastError, unknown_name


@described()
def explain(
    scenario: Path | None = None,
    /,
    batch_flags: BatchFlags | None = None,
    degrees: Degrees | None = None,
    *,
    device: str | None = None,
    depth: int = 4,
    pipes: Annotated[bool, Parameter(negative="")] = False,
    calibration: Calibrations = None,
    trace: TraceFile = None,
    json: Json = False,
) -> int:
    """Show where the time goes, what bounds each part, and how far it is from the bound; or what a
    metric means, as in `silicast explain ttft_p99`.

    Args:
        scenario: a scenario file, or a metric; or give the flags of `silicast infer`.
        depth: levels of the tree to show.
        pipes: a line also for everything that a kernel waits for.
        trace: a file to write the predicted timeline to, for ui.perfetto.dev.
    """
    if depth < 1:
        raise SilicastError(f"expected at least 1, found {depth}", field="--depth")
    if scenario is None:
        tree = _from_flags(batch_flags, degrees, device)
    elif batch_flags is None and degrees is None and device is None:
        if not scenario.exists() and _explained(str(scenario)):
            return status.ANSWERED
        tree = read_scenario(scenario)
    else:
        raise SilicastError(
            "a scenario file and flags are both given", field="explain", hint="keep one of them"
        )
    tree = {"why": "full", **with_calibrations(tree, calibration)}
    reply = predicted(tree, scenario)
    if reply["ok"]:
        write_trace(tree, trace, scenario)

    from silicast.report.answers import explanation

    return print_reply(
        reply,
        lambda answer: explanation(tree, answer, depth=depth, pipes=pipes),
        json=json,
        file=scenario,
    )


def _explained(word: str) -> bool:
    """Shows what a metric, or a word of a screen, means, if it is one."""
    from silicast.core.metrics import METRICS, TERMS, meaning, metrics_named, term_named
    from silicast.core.naming import near

    lines = [meaning(metric) for metric in metrics_named(word)]
    if term := term_named(word):
        lines.insert(0, f"{word}: {term}")
    if lines:
        show("\n".join(lines))
    elif word.replace("-", "_").replace(" ", "_").isidentifier():
        words = (*TERMS, *METRICS)
        raise unknown_name(f"neither a file nor a metric: {word:.80}", "", near(word, words))
    return bool(lines)


def _from_flags(
    batch_flags: BatchFlags | None, degrees: Degrees | None, device: str | None
) -> Tree:
    for flag, value in (("--model", batch_flags), ("--device", device)):
        if value is None:
            raise SilicastError(
                "is missing", field=flag, hint="give --model and --device, or a scenario file"
            )
    assert batch_flags is not None
    assert device is not None
    return inference_scenario(batch_flags, (degrees or Degrees()).given, device)
