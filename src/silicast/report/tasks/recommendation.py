"""A recommended plan, how surely it keeps its objective, and why the others lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import listing
from silicast.scenario.answers.plan.serving_plans import LEAST_CONFIDENCE

SHOWN_WARNINGS = 6


def recommendation_report(answer: Mapping[str, Any], top: int = 8) -> RenderableType:
    """The best plan, a table of the others, and what to know.

    Args:
        top: plans of the table.
    """
    search = answer["why"]["recommendation"]
    head = answer["why"]["deployment"]
    parts: list[RenderableType] = [
        Text(f"{head['model']} on {head['device']}, {head['engine']}, {head['format']}", "bold"),
        Text(
            f"{search['rate_per_s']:.4g} requests/s, "
            + ", ".join(_limit(name, ms) for name, ms in search["limits_ms"].items())
            + f", at most {_devices(search['devices_at_most'])}"
        ),
        Text(""),
        *(Text(line) for line in recommendation_lines(answer)),
        Text(""),
        _table(search["candidates"][:top], list(search["limits_ms"])),
        Text(
            f"{search['considered']} plans in closed form, {search['simulated']} simulated with the"
            " same requests, those with a confidence also with intervals",
            "dim",
        ),
    ]
    for reason, count in list(search["cannot_run"].items())[:top]:
        parts.append(Text(f"{count} cannot run: {reason}", "dim"))
    warnings: Sequence[str] = answer["warnings"]
    parts += [Text(f"warning: {line}", "yellow") for line in warnings[:SHOWN_WARNINGS]]
    return Group(*parts)


def recommendation_lines(answer: Mapping[str, Any]) -> list[str]:
    """The best plan in words.

    >>> belief = {"estimate": 21.0, "p05": 20.0, "p95": 22.0}
    >>> best = {"plan": "tp 2 x 3", "gpus": 6, "confidence": 0.97, "fewest_devices": 0.9}
    >>> why = {"recommendation": {"best": best, "limits_ms": {"tpot_p99_ms": 40.0}}}
    >>> for line in recommendation_lines({"why": why, "metrics": {"tpot_p99_ms": belief}}):
    ...     print(line)
    take tp 2 x 3: 6 devices, and it keeps the objective with 97 % confidence
      tpot p99 21.0 ms (90 %: 20.0 to 22.0), at most 40 ms
    """
    search, metrics = answer["why"]["recommendation"], answer["metrics"]
    best = search["best"]
    sure = f"{_share(best['confidence'])} confidence"
    devices = _devices(best["gpus"])
    lines = [f"take {best['plan']}: {devices}, and it keeps the objective with {sure}"]
    if best["confidence"] < LEAST_CONFIDENCE:
        lines = [f"no plan keeps the objective; nearest is {best['plan']}: {devices}, {sure}"]
    for name, limit in search["limits_ms"].items():
        if name in metrics:
            b = metrics[name]
            words = name.removesuffix("_ms").replace("_", " ")
            lines.append(
                f"  {words} {rounded(b['estimate'])} ms (90 %: {rounded(b['p05'])} to "
                f"{rounded(b['p95'])}), at most {limit:g} ms"
            )
    if fewer := search.get("fewer_devices"):
        lines.append(
            f"  fewer devices keep it with {_share(fewer['at_most'])} probability at most; nearest "
            f"is {fewer['plan']}: {_devices(fewer['gpus'])}"
        )
    if "cost_per_million_output_tokens" in metrics:
        b = metrics["cost_per_million_output_tokens"]
        lines.append(
            f"  {rounded(b['estimate'])} for a million output tokens (90 %: {rounded(b['p05'])} to "
            f"{rounded(b['p95'])})"
        )
    return lines


def _table(rows: Sequence[Mapping[str, Any]], limits: Sequence[str]) -> RenderableType:
    columns = {"plan": "left", "GPUs": "right"}
    columns |= {f"{n.removesuffix('_ms').replace('_', ' ')}\nms": "right" for n in limits}
    columns |= {"confi-\ndence": "right", "on the\nfront": "right", "why not": "left"}
    cells = []
    for row in rows:
        values = [row["statistics"].get(name) for name in limits]
        cells.append(
            [
                row["plan"],
                f"{row['gpus']}",
                *("" if value is None else rounded(value) for value in values),
                _share(row.get("confidence")),
                _share(row.get("on_front")),
                row["why_not"],
            ]
        )
    return listing(columns, cells)


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


def _share(value: float | None) -> str:
    """A probability in words; no prediction is certain.

    >>> _share(0.97), _share(0.9999), _share(0.0001), _share(None)
    ('97 %', '> 99 %', '< 1 %', '')
    """
    if value is None:
        return ""
    if value > 0.995:
        return "> 99 %"
    return "< 1 %" if value < 0.005 else f"{100 * value:.0f} %"


def _limit(name: str, ms: float) -> str:
    return f"{name.removesuffix('_ms').replace('_', ' ')} at most {ms:g} ms"
