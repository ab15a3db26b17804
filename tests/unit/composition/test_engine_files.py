"""Engine files: names that nothing knows are errors of the file, not silent defaults."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from silicast.composition.engines.engine import engine_index, load_engine_file
from silicast.core.catalog import CATALOG
from silicast.core.errors import SilicastError
from silicast.distributed.ranks.plan import ContextExchange
from silicast.distributed.schedules.schedule import schedules

TEXT = (CATALOG / "engines" / "vllm.toml").read_text(encoding="utf-8")
FORMATS = """[kernels.formats.ampere.{0}]
{1} = "{2}"

[kernels.calls]"""


def written(tmp_path: Path, old: str, new: str) -> Path:
    assert old in TEXT
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "field", "hint"),
    [
        ('collectives = "vllm"', 'collectives = "vlm"', "collectives", "vllm"),
        ('moe = "vllm"', 'moee = "vllm"', "kernels.libraries.default.moee", "moe"),
        ('moe = "vllm"', 'moe = "vlllm"', "kernels.libraries.default.moe", "vllm"),
        ('gemm = ["quantize"]', 'gem = ["quantize"]', "kernels.calls.gem", "gemm"),
        ('gemm = ["quantize"]', 'gemm = ["quantise"]', "kernels.calls.gemm", "quantize"),
        ('moe = ["route"]', 'moe = ["rout"]', "kernels.calls_on.blackwell.moe", "route"),
        ("[kernels.calls]", '[kernels.names.hopper.mo]\nfp8 = "x"\n\n[kernels.calls]',
         "kernels.names.hopper.mo", "moe"),
        ("[kernels.calls]", '[kernels.names.hopper.moe]\nfp9 = "x"\n\n[kernels.calls]',
         "kernels.names.hopper.moe.fp9", "fp8"),
        ("[kernels.calls]", FORMATS.format("mo", "fp8", "bf16"),
         "kernels.formats.ampere.mo", "moe"),
        ("[kernels.calls]", FORMATS.format("moe", "fp9", "bf16"),
         "kernels.formats.ampere.moe.fp9", "fp8"),
        ("[kernels.calls]", FORMATS.format("moe", "fp8", "bf61"),
         "kernels.formats.ampere.moe.fp8", "bf16"),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_an_error_of_the_file(
    tmp_path: Path, old: str, new: str, field: str, hint: str
) -> None:
    path = written(tmp_path, old, new)
    with pytest.raises(SilicastError) as caught:
        load_engine_file(path)
    assert (caught.value.field, caught.value.file) == (field, str(path))
    assert hint in caught.value.hint


def test_the_same_file_without_the_mistake_loads(tmp_path: Path) -> None:
    path = written(tmp_path, "[kernels.calls]", FORMATS.format("moe", "fp8", "bf16"))
    assert load_engine_file(path).kernels.recipe("moe", "ampere", "fp8") == "bf16"


def test_schedules_and_exchanges_of_engines_exist() -> None:
    tables = [engine_index().get(name).parallel for name in engine_index().names]
    assert {name for each in tables for name in each.schedules} <= set(schedules())
    assert {name for each in tables for name in each.context} <= set(get_args(ContextExchange))
