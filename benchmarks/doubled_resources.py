"""Doubles each resource of a design: what is reported to bind must matter, all else must not.

    nice python -m benchmarks.doubled_resources [SEEDS]

Random weight-stationary chips and products, those of ``tests/unit/accelerator/design/
test_reasons.py``. All that is reported to bind is doubled, and of what takes turns each alone: the
time must fall by 5 % or more. Each other number of the chip is doubled alone: the time must not
fall by more than 5 %. Chips that load weights behind the work already, and are bound by it, have
nothing to be doubled.
Writes ``benchmarks/results/doubled_resources.json``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from silicast.core.files import write_atomically
from tests.unit.accelerator.design.test_reasons import (
    MATTERS,
    TWICE,
    binding,
    chip,
    drawn,
    times,
    with_more,
)

RESULT = Path(__file__).parent / "results" / "doubled_resources.json"


def doubled(seed: int) -> list[dict[str, Any]]:
    """A row for each doubling: what, whether it is reported to bind, and time after over before."""
    design, sizes = drawn(seed)
    before = times(chip(**design), *sizes)
    reasons = binding(before)
    bound = {TWICE.get(reason) for reason in reasons}
    others = {number: reason for reason, number in TWICE.items() if number not in bound}
    trials = [(reasons, True), *(([reason], False) for reason in others.values())]
    # What adds to the time helps alone, too, where nothing else is nearly as busy.
    also = dict(before.also_bound_by()[0])
    if also and all(also.values()):
        trials += [([reason], True) for reason in reasons]
    rows = []
    for more, binds in trials:
        changed = with_more(design, more)
        if changed is None:
            continue
        after = float(times(chip(**changed), *sizes).estimate_s[0])
        ratio = round(after / float(before.estimate_s[0]), 4)
        rows.append({"seed": seed, "doubled": more, "binds": binds, "ratio": ratio})
    return rows


def main(seeds: int) -> None:
    start = time.process_time()
    rows: list[dict[str, Any]] = []
    bound = 0
    for seed in range(seeds):
        more = doubled(seed)
        bound += any(row["binds"] for row in more)
        rows += more
    binds = [row for row in rows if row["binds"]]
    others = [row for row in rows if not row["binds"]]
    table = {
        "chips": seeds,
        "nothing_to_double": seeds - bound,
        "said_to_bind": len(binds),
        "does_not_matter": [row for row in binds if row["ratio"] > 1 - MATTERS],
        "not_said_to_bind": len(others),
        "matters": [row for row in others if row["ratio"] < 1 - MATTERS],
        "cpu_s": round(time.process_time() - start, 1),
    }
    write_atomically(RESULT, (json.dumps(table, indent=2) + "\n").encode())
    print({key: len(v) if isinstance(v, list) else v for key, v in table.items()})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
