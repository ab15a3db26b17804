"""All forty scenarios of the suite, answered in full, as a page.

    python -m benchmarks.scenario_suite          answers all files, about 140 CPU seconds
    python -m benchmarks.scenario_suite n3.toml  answers some files again
    python -m benchmarks.scenario_suite --page   writes the page of the last answers alone

Every file of ``tests/scenarios/manifest.toml`` must answer every metric of its id; exit status 1 if
one does not. N6 needs SILICAST_DATA. Writes benchmarks/results/scenario_suite.json and
docs/reference/scenario-suite.md.
"""

from __future__ import annotations

import json
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import fitting
from silicast.core.files import write_atomically
from silicast.core.plain_data import read_scenario_file
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.run import reply_to

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "scenarios"
OUT = Path(__file__).parent / "results" / "scenario_suite.json"
PAGE = ROOT / "docs" / "reference" / "scenario-suite.md"
HEAD = """\
# The forty scenarios

Written by `python -m benchmarks.scenario_suite`, which answers every file of `tests/scenarios` in
full; do not edit. *Rests on* is `why.coverage` of the first file: the share of the predicted time
by [tier](answer.md), `given` where the scenario states a time. *Truth* names open measured rows
that can score the scenario, at least in part; where it is "none", only laws hold the answer.
Intervals are 90 %; values without one are reasons (`why`), not metrics. Where a device lacks memory
the row says by how much: its times are those of a device that had it.
"""


def main(arguments: list[str]) -> int:
    """Answers, writes, and says what is missing."""
    former: dict[str, Any] = {}
    if arguments:
        former = json.loads(OUT.read_text(encoding="utf-8"))
    if arguments != ["--page"]:
        chosen = set(arguments or files())
        names = [name for name in files() if name in chosen or name in former]
        fitting.write(OUT, {n: answered(n) if n in chosen else former[n] for n in names})
    results = json.loads(OUT.read_text(encoding="utf-8"))
    write_atomically(PAGE, page(manifest(), results).encode())
    lacking = [name for name, result in results.items() if not result["complete"]]
    for name in lacking:
        print(f"{name}: {results[name].get('error', 'lacks a metric')}")
    print(f"{len(results) - len(lacking)} of {len(results)} files answer every metric")
    return 1 if lacking else 0


def manifest() -> dict[str, dict[str, Any]]:
    """The scenarios by id."""
    text = (FOLDER / "manifest.toml").read_text(encoding="utf-8")
    scenarios: dict[str, dict[str, Any]] = tomllib.loads(text)["scenarios"]
    return scenarios


def files() -> list[str]:
    """The files of all scenarios, in order."""
    return [name for entry in manifest().values() for name in entry["files"]]


def value_at(reply: Answer, address: str) -> Belief | float | None:
    """A metric, or a number of ``why`` behind its path; None = the answer does not have it."""
    if not address.startswith("why."):
        return reply.metrics.get(address)
    value: Any = reply.why
    for key in address.split(".")[1:]:
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else None


def answered(name: str) -> dict[str, Any]:
    """What a file answers of the metrics of its scenario."""
    started = time.process_time()
    reply = reply_to(read_scenario_file(FOLDER / name), folder=FOLDER)
    print(f"{name}: {time.process_time() - started:.2f} s", flush=True)
    if not isinstance(reply, Answer):
        return {"complete": False, "error": reply.error.message}
    (entry,) = (each for each in manifest().values() if name in each["files"])
    values = {address: value_at(reply, address) for address in entry["metrics"]}
    excess = reply.why.get("memory_gb", {}).get("excess") or 0.0
    return ({"excess_gb": excess} if excess > 0.0 else {}) | {
        "complete": all(value is not None for value in values.values()),
        "tier": reply.tier,
        "domain": reply.domain,
        "coverage": reply.why["coverage"]["time_share"],
        "largest_unmodelled": reply.why["coverage"].get("largest_unmodelled"),
        "values": {
            address: [value.estimate, value.p05, value.p95] if isinstance(value, Belief) else value
            for address, value in values.items()
        },
    }


def page(scenarios: Mapping[str, Mapping[str, Any]], results: Mapping[str, Any]) -> str:
    """The page: a section for each scenario, a row for each of its metrics by file."""
    lines = [HEAD]
    for number, entry in scenarios.items():
        first = results[entry["files"][0]]
        lines.append(f"## {number}: {entry['title']}\n")
        lines.append(f"Truth: {entry['truth']}. {_rests_on(first)}\n")
        lines.append("| file | " + " | ".join(f"`{_short(m)}`" for m in entry["metrics"]) + " |")
        lines.append("|---" * (len(entry["metrics"]) + 1) + "|")
        for name in entry["files"]:
            values = results[name].get("values", {})
            cells = (_shown(values.get(metric)) for metric in entry["metrics"])
            excess = results[name].get("excess_gb")
            lacks = f", does not fit by {excess:.1f} GB" if excess else ""
            lines.append(f"| {name}{lacks} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _rests_on(result: Mapping[str, Any]) -> str:
    if not result.get("coverage"):
        return f"Not answered: {result.get('error')}"
    shares = ", ".join(f"{100 * v:.0f} % {k}" for k, v in result["coverage"].items())
    largest = result["largest_unmodelled"]
    unmodelled = ""
    if largest:
        name = largest.get("stage") or largest.get("operation")
        unmodelled = f" Largest unmodelled part: {name} ({100 * largest['time_share']:.1f} %)."
    domain = f"domain: {result['domain']}"
    return f"Rests on: {shares} (tier {result['tier']}, {domain}).{unmodelled}"


def _short(address: str) -> str:
    return address.removeprefix("why.")


def _shown(value: Any) -> str:
    if value is None:
        return "not answered"
    if isinstance(value, list):
        return f"{value[0]:.4g} ({value[1]:.4g} to {value[2]:.4g})"
    return f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
