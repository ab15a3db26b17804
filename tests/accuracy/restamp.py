"""Writes the hash of the present catalog into the committed results of the scorecard.

    python -m tests.accuracy.restamp

For changes of the catalog that change no prediction (a name, a file that moved). The figures stay:
``tests/accuracy`` recomputes a sample of each suite and compares. Whatever changes a prediction
needs ``silicast validate -o docs/accuracy``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from silicast.validation.scorecard.run import artefact_hash

RESULTS = Path(__file__).parents[2] / "docs" / "accuracy"


def main() -> int:
    """Replaces the hash in every result and its page, and nothing else."""
    present = artefact_hash()
    for result in sorted(RESULTS.glob("*.json")):
        known = json.loads(result.read_text(encoding="utf-8"))["artefacts"]
        for path in (result, result.with_suffix(".md")):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(known, present, 1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
