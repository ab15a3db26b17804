"""Answers a small static batch of every model on every device and writes the table of coverage.

    python benchmarks/coverage.py            writes docs/reference/coverage.md
    python benchmarks/coverage.py --check    compares with the committed page

Every answer is checked: numbers finite, intervals ordered. Deterministic; two minutes on one core.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_index
from silicast.hardware.device import Device
from silicast.scenario.api import predict
from silicast.workload.models import model_names

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "coverage.md"
WORK = {"batch": 2, "input_len": 256, "output_len": 16}
LARGEST = 1e15


@dataclass
class Line:
    """What one device answers."""

    device: Device
    answered: int = 0
    fits: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def answer(device: str, model: str) -> tuple[bool, str]:
    """Whether the model fits the device, and why there is no answer ("")."""
    try:
        found = predict({"task": "inference", "device": device, "model": model, "workload": WORK})
    except SilicastError as error:
        return False, f"{error.kind}: {error.message}"
    for name, belief in found.metrics.items():
        if not 0.0 < belief.p05 <= belief.estimate <= belief.p95 < LARGEST:
            raise AssertionError(f"{model} on {device}: {name} = {belief}")
    return not any("does not fit" in text for text in found.warnings), ""


def lines() -> Iterator[Line]:
    """One line a device, in the order of the catalog."""
    index, models = device_index(), model_names()
    for name in index.names:
        line = Line(index.get(name))
        for model in models:
            fits, refused = answer(name, model)
            line.answered += not refused
            line.fits += fits
            if refused:
                line.refused[_cause(refused, name)] += 1
        yield line


def _cause(text: str, device: str) -> str:
    """A refusal without the device's name and without what it offers instead."""
    return text.partition(" (")[0].partition(" on ")[0].replace(device, "the device")


def page(found: list[Line], models: int) -> str:
    answered = sum(line.answered for line in found)
    causes: Counter[str] = Counter()
    for line in found:
        causes.update(line.refused)
    rows = [
        f"| {line.device.name} | {line.device.vendor} | {line.device.execution_model} "
        f"| {line.answered} | {line.fits} |"
        for line in sorted(found, key=lambda line: (line.device.vendor, line.device.name))
    ]
    refused = [f"| {cause} | {count} |" for cause, count in sorted(causes.items())]
    return "\n".join(
        [
            "# Coverage",
            "",
            (
                f"A static batch of every model of the catalog ({models}) on every device "
                f"({len(found)}): {answered:,} of {models * len(found):,} pairs are answered with "
                "an interval and a tier, the others say what is missing. "
                "`python benchmarks/coverage.py` writes this page."
            ),
            "",
            "| device | vendor | execution model | models answered | fit on one |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## What is missing",
            "",
            "| cause | pairs |",
            "|---|---|",
            *(refused or ["| nothing | 0 |"]),
            "",
        ]
    )


def main() -> int:
    text = page(list(lines()), len(model_names()))
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
