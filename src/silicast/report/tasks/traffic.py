"""A traffic that was seen, as a scenario states it, and how far that is from what was seen."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.core.toml_text import toml_lines
from silicast.report.drawing.tables import listing
from silicast.scenario.seen_traffic import SeenTraffic
from silicast.serving.traffic.fitting import FittedValues


def traffic_data(seen: SeenTraffic) -> dict[str, Any]:
    """The same for programs."""
    fitted = seen.fitted
    parts = {
        "input_len": fitted.inputs,
        "output_len": fitted.outputs,
        "gaps": fitted.arrivals,
        "tool_time": fitted.tool_s,
    }
    return {
        "kind": seen.kind,
        "requests": fitted.requests,
        "workload": fitted.workload(),
        "think_time_s": fitted.tool_s.fields["think_time_s"] if fitted.tool_s else None,
        "prefix_share": fitted.prefix_share,
        "busiest_tenth": round(fitted.busiest, 3),
        "errors": {name: _error(each) for name, each in parts.items() if each is not None},
        "remarks": list(seen.remarks),
    }


def _error(part: FittedValues) -> dict[str, float]:
    errors = {name: round(value, 4) for name, value in part.errors.items()}
    return {"distance": round(part.distance, 4), **errors}


def traffic_report(data: dict[str, Any]) -> RenderableType:
    """The same for people."""
    columns = {"": "left", "as stated": "left", "distance": "right"}
    columns |= dict.fromkeys(("mean", "p50", "p90", "p99"), "right")
    rows = []
    distributions = data["workload"] | {
        "gaps": data["workload"]["arrival"],
        "tool_time": {"think_time_s": data["think_time_s"]},
    }
    for name, errors in data["errors"].items():
        words = " ".join(
            str(value) if key == "kind" else f"{key} {value:g}"
            for key, value in distributions[name].items()
        )
        parts = [f"{errors[n]:+.0%}" if n in errors else "" for n in ("mean", "p50", "p90", "p99")]
        rows.append([name.replace("_", " "), words, f"{errors['distance']:.2f}", *parts])
    lines = [f"{data['requests']:,} requests: {data['kind']}"]
    tail = []
    if data["prefix_share"] is not None:
        tail.append(f"{data['prefix_share']:.0%} of prompt tokens began an earlier prompt")
    tail.append("distance: of the distribution functions, 0 to 1; per cent: the fit over the seen")
    return Group(*map(Text, lines), listing(columns, rows), *map(Text, [*tail, *data["remarks"]]))


def scenario_text(data: dict[str, Any], model: str | None, device: str | None) -> str:
    """A scenario of task serving in TOML; without model or device, they are left to be stated."""
    tree: dict[str, Any] = {"task": "serving"}
    tree |= {name: value for name, value in (("model", model), ("device", device)) if value}
    tree["workload"] = data["workload"]
    lines = toml_lines(tree, lambda _key, value, path: isinstance(value, dict) and not path)
    return "\n".join(lines) + "\n"
