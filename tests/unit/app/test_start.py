"""What the first answer from the shell needs."""

from __future__ import annotations

import os
import subprocess
import sys

FIRST = "infer --model Llama-3.1-8B --device h100 --batch 8 --input-len 1024 --output-len 128"
MOST_MODULES = 215
"""Of the package; 194 on 2026-12-01."""


def test_the_first_answer_imports_few_modules() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "silicast", *FIRST.split()]
    environment = {**os.environ, "SILICAST_CORE": "off", "SILICAST_CACHE": ""}
    run = subprocess.run(command, check=True, capture_output=True, env=environment, text=True)
    assert "Llama-3.1-8B on h100" in run.stdout
    imported = [line.rpartition("|")[2].strip() for line in run.stderr.splitlines()]
    own = [name for name in imported if name.split(".")[0] == "silicast"]
    assert 100 < len(own) <= MOST_MODULES
