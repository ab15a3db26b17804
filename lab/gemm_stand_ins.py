"""What unmeasured architectures take for products, made again from the constants that are shipped.

    python -m lab.gemm_stand_ins

The last step of stage ``gemm`` alone: where only the rule of the averages changed
(:func:`lab.gemm_problem.scaled`), what was fitted on measured architectures stays as it is.
"""

from __future__ import annotations

import sys

import msgspec

from lab import fitting
from lab.artefacts import state_content
from lab.fit_gemm import STAND_IN, with_stand_in
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.gemm import bf16_rows, vidur_rows
from silicast.core.catalog import CATALOG
from silicast.core.files import write_atomically

FILE = CATALOG / "physics" / "gemm.json"
ROUNDING = 2e-3
"""Shipped constants are rounded: their averages differ from the shipped ones in the last digit."""


def main() -> None:
    """Writes the averages that moved into the file of constants, and prints how many did."""
    content = msgspec.json.decode(FILE.read_bytes())
    tables = content["architectures"]
    fitted = {name: table for name, table in tables.items() if name not in STAND_IN.values()}
    data = data_folder()
    parts = bf16_rows(data) + vidur_rows(data)
    moved = 0
    for name, table in with_stand_in(content["default"], fitted, parts).items():
        for constant, value in fitting.rounded(table).items():
            before = tables[name].get(constant)
            if before is None or abs(value - before) > ROUNDING * abs(before):
                tables[name][constant] = value
                moved += 1
    text = msgspec.json.format(msgspec.json.encode(content), indent=1)
    write_atomically(FILE, text + b"\n")
    state_content("physics/gemm")
    sys.stdout.write(f"{moved} constants of unmeasured architectures moved\n")


if __name__ == "__main__":
    main()
