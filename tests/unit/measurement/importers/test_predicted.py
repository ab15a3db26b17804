"""What a benchmark tool wrote is predicted from its own settings, every metric of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.measurement.importers.files import import_files, save
from silicast.validation.measured import score_measured
from tests.unit.measurement.importers import samples as s


@pytest.mark.parametrize("content", [s.VLLM, s.SGLANG, s.GENAI, s.AIPERF, s.TRTLLM])
def test_every_metric_is_predicted(tmp_path: Path, content: dict[str, Any]) -> None:
    source = s.written(tmp_path, "bench.json", content)
    fields = {} if "backend" in content or "engine" in content else {"engine.name": "vllm"}
    rows = tmp_path / "rows.jsonl"
    save(import_files([source], device="h100", fields=fields), rows)
    result = score_measured([rows])
    assert result.groups
    assert not result.reasons
    assert not any(group.unanswered for group in result.groups)
