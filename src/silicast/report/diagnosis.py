"""A diagnosed kernel for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.learning.kernel_causes import CAUSES
from silicast.report.tables import Facts, figure, listing
from silicast.scenario.diagnosis import Diagnosis

SMALLEST_SHARE = 0.0005
"""Causes of less are not shown."""


def diagnosis_report(title: str, found: Diagnosis) -> RenderableType:
    """Achieved, ceiling and bound; causes; the faster configuration."""
    facts = Facts(title)
    facts.add("measured", f"{figure(found.measured_us)} us")
    facts.add(
        "bound", f"{figure(found.bound_us)} us ({found.bound_by}): "
        f"{100.0 * found.achieved:.0f} % of its speed achieved",
    )  # fmt: skip
    if found.ceiling_us is not None:
        facts.add("ceiling", f"{figure(found.ceiling_us)} us: quick kernels of such sizes")
    facts.add("usual", f"{figure(found.predicted_us)} us: what the library's choice usually takes")
    ran = "likeliest" if found.assumed else "stated"
    facts.add("ran", f"{found.configuration.label} ({ran})")
    rows = [
        [CAUSES[name], figure(value), f"{100.0 * value / found.measured_us:.1f}"]
        for name, value in found.causes_us.items()
        if abs(value) > SMALLEST_SHARE * found.measured_us
    ]
    table = listing({"where the time goes": "left", "us": "right", "%": "right"}, rows)
    return Group(facts.rendered(), Text(), table, Text(), *_advice(found))


def _advice(found: Diagnosis) -> Iterator[Text]:
    best = found.faster
    if best is None:
        yield Text("no configuration is expected to be faster")
    else:
        yield Text(f"faster: {best.configuration.label}", "bold")
        yield Text(
            f"{figure(best.estimate_us)} us ({figure(best.p05_us)}-{figure(best.p95_us)}), saves "
            f"{best.gain_pct:.1f} % ({best.gain_p05_pct:.1f}-{best.gain_p95_pct:.1f}); more than "
            f"5 % with a chance of {100.0 * best.chance:.0f} %"
        )
    for text in found.warnings:
        yield Text(f"! {text}", "yellow")


def model_line(gain: dict[str, float]) -> Text:
    """What a model gains by it."""
    return Text(
        f"in the model: {figure(gain['saved_us'])} us a step saved of {figure(gain['step_us'])} "
        f"({gain['saved_pct']:.1f} %), TPOT {gain['tpot_ms']:.3f} -> {gain['tpot_then_ms']:.3f} ms"
    )
