"""Rules that times tell of ONNX Runtime on this CPU, against its own optimised graphs.

    python -m benchmarks.runtime_rules         writes benchmarks/results/runtime_rules.json

A pair is joined in truth if the graph that the runtime writes of A + B has fewer operators than
those of A and of B together. Needs the extra ``runtimes``; some minutes of one core.
"""

from __future__ import annotations

import json
from pathlib import Path

from silicast.core.files import write_atomically
from silicast.measurement.runtimes.detect import detect
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


def main() -> None:
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
    text = json.dumps(result, indent=1)
    write_atomically(RESULT, f"{text}\n".encode())
    print(text)
    print(detected.text())
    for pair, each in detected.findings.items():
        print(pair, each)


if __name__ == "__main__":
    main()
