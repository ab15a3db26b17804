"""Whether two versions simulate alike: every time, step, gap and block of random simulations.

    python -m benchmarks.same_simulations write OUT.json [COUNT]    with each version
    python -m benchmarks.same_simulations compare OLD.json NEW.json

Simulations are those of ``tests/property/serving_cases.py``: random traffic, limits, layouts, pools
and policies with plain prices, by seed. Of each a digest of everything that was observed is
written; ``compare`` exits with status 1 if two differ.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from silicast.serving.statistics.records import Records
from tests.property.serving_cases import random_case

COUNT = 3_000


def digest(records: Records) -> str:
    """Of all that a simulation observed."""
    sequences = records.sequences
    columns = (
        records.sent_ns, records.arrived_ns, records.scheduled_ns, records.first_ns,
        records.done_ns, records.replica, records.moving_ns, records.log.table(),
        *records.gaps.table(), sequences.todo, sequences.cached, sequences.made, sequences.held,
        sequences.preemptions, sequences.reused, sequences.loaded, sequences.swaps,
        np.array([records.verified, records.accepted, records.end_ns]),
    )  # fmt: skip
    whole = hashlib.sha256()
    for each in columns:
        whole.update(np.ascontiguousarray(each, dtype=np.int64).tobytes())
    return whole.hexdigest()


def main(arguments: list[str]) -> int:
    """Runs one of the two commands of the module's docstring."""
    if arguments[:1] == ["write"] and len(arguments) in (2, 3):
        count = int(arguments[2]) if len(arguments) == 3 else COUNT
        digests = [digest(random_case(seed).run()) for seed in range(count)]
        Path(arguments[1]).write_text(json.dumps(digests, indent=0) + "\n", encoding="utf-8")
        return 0
    if arguments[:1] == ["compare"] and len(arguments) == 3:
        old, new = (json.loads(Path(each).read_text("utf-8")) for each in arguments[1:])
        pairs = list(zip(old, new, strict=True))
        other = [
            seed for seed, (old_bytes, new_bytes) in enumerate(pairs) if old_bytes != new_bytes
        ]
        print(f"{len(other)} of {len(pairs)} differ {other[:10]}")
        return int(bool(other))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
