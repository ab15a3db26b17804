"""Cases of the public scorecard, made from the measured tables; they are written, never committed.

Whole models on measured machines: static batches, servers and training steps, but none on which
numbers of ours were fitted. Ids are hashes, in whose order cases stand, so that nothing of a case
tells where its truth is.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from lab.scorecard.model_suite import Case
from lab.scorecard.suites import (
    end_to_end,
    graph,
    mlperf,
    serving,
    serving_disaggregated,
    splitwise,
    training,
)
from silicast.core.files import write_atomically
from silicast.core.hashing import content_hash
from silicast.core.metrics import metric_of
from silicast.validation.leaderboard import TruthHead, TruthLine
from silicast.validation.submissions import SubmissionCard

SUITES: Mapping[str, Callable[[Path], list[Case]]] = {
    "end-to-end": end_to_end.cases,
    "graph": graph.cases,
    "mlperf": mlperf.cases,
    "serving": serving.cases,
    "serving-disaggregated": serving_disaggregated.cases,
    "splitwise": splitwise.cases,
    "training": training.cases,
}
PEER_CARDS = "peers"
FITTED = {"split": "fitted", "pair": "train"}
"""Labels of rows that numbers of ours were fitted on."""


def write_cases(folder: Path, data: Path, salt: str) -> dict[str, int]:
    """Writes ``cases.jsonl``, ``truths.jsonl`` and ``peers/NAME.csv`` with cards."""
    (folder / PEER_CARDS).mkdir(parents=True, exist_ok=True)
    cases: dict[str, bytes] = {}
    truths: dict[str, bytes] = {}
    peers: dict[str, list[tuple[str, str, float]]] = defaultdict(list)
    for suite, make in SUITES.items():
        for case in make(data):
            if any(case.labels.get(name) == label for name, label in FITTED.items()):
                continue
            measured = {
                name: value
                for name, value in case.measured.items()
                if math.isfinite(value) and metric_of(name) is not None
            }
            identity = content_hash([suite, dict(case.scenario), salt])
            if not measured or identity in cases:
                continue
            cases[identity] = msgspec.json.encode({"id": identity, **case.scenario})
            truths[identity] = msgspec.json.encode(
                TruthLine(identity, measured, _labels(suite, case))
            )
            for metric, names in case.peers.items():
                for name, value in names.items():
                    if metric in measured and math.isfinite(value) and value > 0.0:
                        peers[name].append((identity, metric, value))
    head = msgspec.json.encode(TruthHead(salt))
    _write(folder / "cases.jsonl", [cases[name] for name in sorted(cases)])
    _write(folder / "truths.jsonl", [head, *(truths[name] for name in sorted(truths))])
    for name, rows in peers.items():
        _write_peer(folder / PEER_CARDS / re.sub(r"\W+", "-", name.casefold()), name, rows)
    return {"cases": len(cases), "peers": len(peers)}


def _labels(suite: str, case: Case) -> dict[str, str]:
    scenario: Mapping[str, Any] = case.scenario
    engine = scenario.get("engine", "")
    if isinstance(engine, Mapping):
        engine = f"{engine.get('name', '')} {engine.get('version', '')}".strip()
    others = {name: value for name, value in scenario.items() if name not in ("device", "cluster")}
    return {
        "suite": suite,
        "device": str(scenario.get("device", "")),
        "model": str(scenario.get("model", "")),
        "engine": str(engine),
        "choice": content_hash(others),
    }


def _write(path: Path, lines: list[bytes]) -> None:
    write_atomically(path, b"\n".join(lines) + b"\n")


def _write_peer(path: Path, name: str, rows: list[tuple[str, str, float]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("id", "metric", "estimate"))
    writer.writerows(rows)
    write_atomically(path.with_suffix(".csv"), text.getvalue().encode())
    card = SubmissionCard(name, "stored predictions")
    write_atomically(path.with_suffix(".card.json"), msgspec.json.encode(card))
