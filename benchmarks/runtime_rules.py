"""Rules that times tell of runtimes on this CPU; of ONNX Runtime against its own optimised graphs.

    python -m benchmarks.runtime_rules         writes benchmarks/results/runtime_rules.json
    python -m benchmarks.runtime_rules litert  adds those of LiteRT

A pair of ONNX Runtime is joined in truth if the graph that it writes of A + B has fewer operators
than those of A and of B together. LiteRT writes none: its rules are reported, with how often three
detections say the same of a pair. Needs the extra ``runtimes`` or ``litert``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from silicast.core.files import write_atomically
from silicast.measurement.runtimes.detect import detect, runtime_named
from silicast.measurement.runtimes.minimal_pairs import Pair, pairs
from silicast.measurement.runtimes.onnx_runtime import OnnxRuntime

RESULT = Path(__file__).with_name("results") / "runtime_rules.json"


def joined_by(runtime: OnnxRuntime) -> set[Pair]:
    """Pairs that the runtime's own graphs join."""
    alone = {name: len(runtime.own_operators((name,))) for pair in pairs() for name in pair}
    return {
        (one, two)
        for one, two in pairs()
        if len(runtime.own_operators((one, two))) < alone[one] + alone[two]
    }


def litert() -> dict[str, object]:
    """What three detections in a row tell of LiteRT."""
    runs = [detect(runtime_named("litert")) for _ in range(3)]
    decided = [[each.decision for each in run.findings.values()] for run in runs]
    alike = sum(len(set(one)) == 1 for one in zip(*decided, strict=True))
    first = runs[0]
    return {
        "runtime": f"{first.runtime} {first.version}",
        "pairs": len(first.findings),
        "alike_in_three": alike,
        "undecided": [len(run.undecided()) for run in runs],
        "operator_us": [round(run.operator_us, 3) for run in runs],
        "rules": {one: sorted(then) for one, then in first.rules().items()},
    }


def main() -> None:
    if sys.argv[1:] == ["litert"]:
        former = json.loads(RESULT.read_text(encoding="utf-8")) | {"litert": litert()}
        text = json.dumps(former, indent=1)
        write_atomically(RESULT, f"{text}\n".encode())
        print(text)
        return
    runtime = OnnxRuntime()
    truth = joined_by(runtime)
    detected = detect(runtime, watch=lambda done, every: print(done, every, flush=True))
    joined = {pair for pair, each in detected.findings.items() if each.decision == "joined"}
    result = {
        "runtime": f"{runtime.name} {runtime.version}",
        "pairs": len(detected.findings),
        "rules": len(truth),
        "rules_seen": len(joined & truth),
        "rules_seen_pct": round(100.0 * len(joined & truth) / len(truth), 1),
        "invented": sorted(" ".join(pair) for pair in joined - truth),
        "missed": sorted(" ".join(pair) for pair in truth - joined),
        "undecided": sorted(" ".join(pair) for pair in detected.undecided()),
        "rounds": sum(each.rounds for each in detected.findings.values()),
    }
    former = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    text = json.dumps(former | result, indent=1)
    write_atomically(RESULT, f"{text}\n".encode())
    print(text)
    print(detected.text())
    for pair, each in detected.findings.items():
        print(pair, each)


if __name__ == "__main__":
    main()
