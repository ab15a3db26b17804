"""Answers a small workload of every model on every device and writes the page of coverage.

    python benchmarks/coverage.py            writes docs/reference/coverage.md (also: make coverage)
    python benchmarks/coverage.py --again    the same, of every pair anew
    python benchmarks/coverage.py --check    compares with the committed page, every pair anew

Models that generate tokens answer a static batch, encoders one forward pass. Every answer is
checked: a tier, a domain, numbers finite, intervals ordered. Deterministic whatever the number of
processes. Cells are kept in ``results/coverage.json``, written after each device: only pairs whose
model or device is new or has changed are answered, and a run that was interrupted goes on. All of
them take about twenty CPU minutes, those of a new model seconds.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from silicast.app.api import Predicted, predict
from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically
from silicast.core.hashing import content_hash
from silicast.hardware.catalog import device_index
from silicast.hardware.device import Device
from silicast.workload.models.lookup import find_model, model_names, not_yet_models

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "coverage.md"
RECORD = Path(__file__).resolve().parent / "results" / "coverage.json"
BATCH = {"batch": 2, "input_len": 256, "output_len": 16}
PASS = {"mode": "inference", "batch": 2, "seq_len": 256}
LARGEST = 1e15
WORKERS = 2
TIERS = ("bound", "analytic", "cross-device", "scaled", "calibrated")
DOMAINS = ("in", "near", "out")

CAUSES: Mapping[str, str] = {
    "not published for": "stand-ins for numbers that nobody has published",
    "not every kernel was measured": "kernels that were not measured on the architecture",
    " units: computed in ": "formats without units, computed in wider ones",
    "multiplies": "formats that are slower than wider ones, computed in those",
    "is assumed": "16-bit checkpoints taken in the 16-bit format that the device has",
}
"""Part of a warning -> why an interval is wider than the kernels alone make it."""


@dataclass(frozen=True)
class Cell:
    """One model on one device: an answer, or the cause why there is none ("")."""

    family: str
    refused: str = ""
    fits: bool = False
    tier: str = ""
    domain: str = ""
    width: float = 0.0
    causes: tuple[str, ...] = ()


@dataclass
class Line:
    """What one device answers, a cell a model in the order of the catalog."""

    device: Device
    cells: list[Cell] = field(default_factory=list)

    @property
    def answered(self) -> list[Cell]:
        return [cell for cell in self.cells if not cell.refused]

    @property
    def fits(self) -> int:
        return sum(cell.fits for cell in self.cells)


def cell(device: str, model: str) -> Cell:
    """The checked answer of one pair.

    Raises:
        AssertionError: an answer without tier or domain, or with an interval out of order, or
            another exception than a named error.
    """
    config = find_model(model)
    scenario: dict[str, Any] = {"device": device, "model": model}
    if config.causal:
        scenario |= {"task": "inference", "workload": BATCH}
    else:
        scenario |= {"task": "graph", "workload": PASS}
    try:
        result = predict(scenario)
    except SilicastError as error:
        return Cell(config.family, refused=_cause(f"{error.kind}: {error.message}", device))
    except Exception as error:
        raise AssertionError(f"{model} on {device}: {error!r}") from error
    check(result, f"{model} on {device}")
    total = result.metrics["total_ms" if config.causal else "e2e_ms"]
    causes = tuple(
        cause for part, cause in CAUSES.items() if any(part in w for w in result.warnings)
    )
    return Cell(
        family=config.family, fits=not any("does not fit" in text for text in result.warnings),
        tier=result.tier, domain=result.domain, width=round(total.p95 / total.p05, 3),
        causes=causes,
    )  # fmt: skip


def check(predicted: Predicted, subject: str) -> None:
    """Every metric is a number with an ordered interval; tier and domain are named.

    Raises:
        AssertionError: naming ``what`` and the metric.
    """
    if predicted.tier not in TIERS or predicted.domain not in DOMAINS:
        raise AssertionError(f"{subject}: tier {predicted.tier!r}, domain {predicted.domain!r}")
    for name, belief in predicted.metrics.items():
        if not 0.0 < belief.p05 <= belief.estimate <= belief.p95 < LARGEST:
            raise AssertionError(f"{subject}: {name} = {belief}")


def _cause(text: str, device: str) -> str:
    """A refusal without the device's name and without what it offers instead."""
    return text.partition(" (")[0].partition(" on ")[0].replace(device, "the device")


Cells = dict[str, Cell]
"""Hash of a model -> its cell on one device."""


@cache
def model_hash(name: str) -> str:
    """Of all that is known of a model."""
    return content_hash([name, repr(find_model(name))])


def device_hash(name: str) -> str:
    """Of all that is known of a device."""
    return content_hash([name, repr(device_index().get(name))])


def cells_of(device: str, cells: Cells) -> Cells:
    """The line of one device; the unit of work of a process.

    Args:
        known: cells that need no answer.
    """
    return {
        key: cells.get(key) or cell(device, model)
        for model in model_names()
        for key in (model_hash(model),)
    }


class Record:
    """Cells by the hashes of device and model, in a file of a line a device."""

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        self._path = path
        self._cells: dict[str, Cells] = {}
        if not anew and path.exists():
            table = json.loads(path.read_text(encoding="utf-8"))
            kinds = [Cell(**{**kind, "causes": tuple(kind["causes"])}) for kind in table["kinds"]]
            for device, row in table["devices"].items():
                pairs = zip(table["models"], row, strict=False)
                self._cells[device] = {
                    model: replace(kinds[one[0]], width=one[1]) for model, one in pairs if one
                }

    def of(self, device: str) -> Cells:
        """Known cells of a device."""
        return self._cells.get(device_hash(device), {})

    def put(self, device: str, cells: Cells) -> None:
        """Keeps the cells of a device, in the file too."""
        self._cells[device_hash(device)] = cells
        kinds: dict[str, int] = {}
        models = sorted({model for row in self._cells.values() for model in row})
        lines = []
        for key, row in sorted(self._cells.items()):
            coded = [
                [kinds.setdefault(_kind(each), len(kinds)), each.width]
                if (each := row.get(model))
                else None
                for model in models
            ]
            lines.append(f"{json.dumps(key)}: {json.dumps(coded, separators=(',', ':'))}")
        told, rows = ",\n".join(kinds), ",\n".join(lines)
        heads = f'"models": {json.dumps(models)},\n"kinds": [\n{told}\n]'
        text = f'{{{heads},\n"devices": {{\n{rows}\n}}}}\n'
        write_atomically(self._path, text.encode("utf-8"))


def _kind(each: Cell) -> str:
    """A cell without its width: few kinds differ."""
    return json.dumps(asdict(replace(each, width=0.0)))


def lines(workers: int = WORKERS, record: Record | None = None) -> list[Line]:
    """One line a device, in the order of the catalog.

    Args:
        record: of known cells; None = all are answered.
    """
    names, table = device_index().names, dict[str, Cells]()
    with ProcessPoolExecutor(max_workers=min(workers, os.cpu_count() or 1)) as pool:
        requested = {}
        for name in names:
            answered = record.of(name) if record else {}
            if all(model_hash(model) in answered for model in model_names()):
                table[name] = answered
            else:
                requested[pool.submit(cells_of, name, answered)] = name
        for done in as_completed(requested):
            table[requested[done]] = done.result()
            if record:
                record.put(requested[done], done.result())
    return [
        Line(device_index().get(name), [table[name][model_hash(m)] for m in model_names()])
        for name in names
    ]


def page(items: Sequence[Line]) -> str:
    cells = [cell for line in items for cell in line.cells]
    answered = [cell for cell in cells if not cell.refused]
    models = len(items[0].cells) if items else 0
    fitting = sum(cell.fits for cell in answered)
    return "\n".join(
        [
            "# Coverage",
            "",
            (
                f"Every model of the catalog ({models}) on every device ({len(items)}): "
                f"{len(answered):,} of {len(cells):,} pairs are answered with an interval, a tier "
                f"and a domain; {fitting:,} of them fit on one device, the others say what would. "
                "Models that generate tokens answer a static batch (2 prompts of 256 tokens, 16 "
                "tokens each), encoders one forward pass. `make coverage` writes this page, and "
                "`make nightly` checks it."
            ),
            "",
            "## By device",
            "",
            (
                "Answered models, those that fit on one device, and how sure the answers are: "
                "answers whose kernels were all measured on the architecture in like sizes (in), "
                "close to those (near) or not (out), and the median ratio of p95 to p05 of the "
                "total time."
            ),
            "",
            "| device | vendor | execution model | answered | fits | in | near | out | p95 / p05 |",
            "|---|---|---|---:|---:|---:|---:|---:|---:|",
            *_device_rows(items),
            "",
            "## By family of models",
            "",
            "Pairs of a model of the family and a device of the vendor: answered, of all.",
            "",
            *_family_rows(items),
            "",
            "## Tiers",
            "",
            "| tier | pairs |",
            "|---|---:|",
            *_counted(cell.tier for cell in answered),
            "",
            "## What widens",
            "",
            "Why intervals are wider than kernels alone make them; an answer may have several.",
            "",
            "| cause | pairs |",
            "|---|---:|",
            *_counted(cause for cell in answered for cause in cell.causes),
            "",
            "## What is missing",
            "",
            "| cause | pairs |",
            "|---|---:|",
            *(_counted(cell.refused for cell in cells if cell.refused) or ["| nothing | 0 |"]),
            "",
            *_not_yet(),
        ]
    )


def _device_rows(items: Sequence[Line]) -> list[str]:
    rows = []
    for line in sorted(items, key=lambda line: (line.device.vendor, line.device.name)):
        domains = Counter(cell.domain for cell in line.answered)
        widths = sorted(cell.width for cell in line.answered)
        width = f"{widths[len(widths) // 2]:.1f}" if widths else "-"
        counts = " | ".join(str(domains[name]) for name in DOMAINS)
        rows.append(
            f"| {line.device.name} | {line.device.vendor} | {line.device.execution_model} "
            f"| {len(line.answered)} | {line.fits} | {counts} | {width} |"
        )
    return rows


def _family_rows(items: Sequence[Line]) -> list[str]:
    vendors = sorted({line.device.vendor for line in items})
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for line in items:
        for each in line.cells:
            pair = counts[each.family, line.device.vendor]
            pair[0] += not each.refused
            pair[1] += 1
    families = sorted({family for family, _ in counts})
    rows = [f"| family | {' | '.join(vendors)} |", "|---|" + "---:|" * len(vendors)]
    for family in families:
        shown = (counts[family, vendor] for vendor in vendors)
        rows.append(f"| {family} | {' | '.join(_of(*pair) for pair in shown)} |")
    return rows


def _of(answered: int, pairs: int) -> str:
    return f"all {pairs:,}" if answered == pairs else f"{answered:,} of {pairs:,}"


def _counted(names: Iterable[str]) -> list[str]:
    counter = Counter(names)
    return [f"| {name} | {count:,} |" for name, count in sorted(counter.items())]


def _not_yet() -> list[str]:
    missing = not_yet_models()
    if not missing:
        return []
    return [
        "Models that are known by name and not modelled:", "",
        *(f"- {name}: {why}" for name, why in sorted(missing.items())), "",
    ]  # fmt: skip


def main() -> int:
    check_page = "--check" in sys.argv
    text = page(lines(record=None if check_page else Record(RECORD, anew="--again" in sys.argv)))
    if check_page:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
