"""Writes the constants that are judged, not fitted: ``lab/judged.toml`` -> ``catalog/physics/``.

python -m lab.judged
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from lab import fitting

JUDGED = Path(__file__).with_name("judged.toml")


def main() -> None:
    for name, table in tomllib.loads(JUDGED.read_text(encoding="utf-8")).items():
        about = fitting.card("python -m lab.judged", ["none: judged"], "none", notes=table["why"])
        tables = table.get("architectures", {})
        physics = fitting.physics(about, table["default"], tables, table.get("fallback"))
        fitting.write(fitting.PHYSICS / f"{name}.json", physics)


if __name__ == "__main__":
    main()
