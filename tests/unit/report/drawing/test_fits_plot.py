"""The drawing of what fits: its words, and nothing where nothing fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.report.tasks.fits import draw_fits

pytest.importorskip("matplotlib")


def row(model: str, tokens_per_s: float) -> dict[str, Any]:
    speed = {"estimate": tokens_per_s, "p05": 0.8 * tokens_per_s, "p95": 1.2 * tokens_per_s}
    sizes = {"memory_gb": 20.0, "weights_gb": 15.0, "kv_cache_gb": 4.0, "usable_gb": 24.0}
    return {"model": model, "device": "a card", "weights": "Q4_K_M", "tokens_per_s": speed, **sizes}


@pytest.mark.parametrize(("by_model", "ending"), [(True, "svg"), (False, "svg"), (True, "png")])
def test_each_pair_is_drawn(tmp_path: Path, by_model: bool, ending: str) -> None:
    path = tmp_path / f"fits.{ending}"
    draw_fits([row("one", 50.0), row("other", 90.0)], path, by_model=by_model)
    assert path.stat().st_size > 1000
    again = tmp_path / f"again.{ending}"
    draw_fits([row("one", 50.0), row("other", 90.0)], again, by_model=by_model)
    assert path.read_bytes() == again.read_bytes()


def test_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="nothing fits"):
        draw_fits([], tmp_path / "fits.svg", by_model=True)
