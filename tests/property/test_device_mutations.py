"""Every number of a device file, changed in every bad way: named precisely, or a lawful answer."""

from __future__ import annotations

import copy
import math
import re
import tomllib
from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from
from silicast.hardware.check import check_device
from silicast.hardware.device import Device
from silicast.hardware.device_file import numbers_of
from silicast.hardware.index import DEVICES
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch

FILES = ("nvidia-h100-sxm-80gb", "amd-mi300x", "google-tpu-v6e", "amd-epyc-9654")
RELATED = 1e3
"""A factor that limits may not catch, but that relations between numbers do where it matters."""


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((DEVICES / f"{name}.toml").read_text(encoding="utf-8"))


CASES = [(name, path) for name in FILES for path, _ in numbers_of(_read(name))]


def _bent(name: str, path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(_read(name))
    steps = [int(a) if a else b for a, b in re.findall(r"\[(\d+)\]|\.?([^.\[\]]+)", path)]
    position: Any = data
    for step in steps[:-1]:
        position = position[step]
    position[steps[-1]] = value
    return data


def _value(name: str, path: str) -> float:
    return dict(numbers_of(_read(name)))[path]


def _error(data: dict[str, Any]) -> SilicastError | None:
    try:
        device = device_from(data, file="mine.toml")
    except SilicastError as error:
        return error
    _lawful(device)
    return None


def _lawful(device: Device) -> None:
    for op in (
        Op.make("gemm", m=512, n=4096, k=4096),
        Op.make("rmsnorm", tokens=512, hidden=4096),
        Op.make("attention_decode", batch=4, q_len=1, kv_len=4096, num_heads=32, num_kv_heads=8),
    ):
        model = implementation_for(op.family, device.execution_model)
        assert model is not None
        result = model.times(OpBatch.from_ops([op]), device)
        times = (result.bound_s, result.p05_s, result.estimate_s, result.p95_s)
        row = [float(each[0]) for each in times]
        assert row == sorted(row), op
        assert 0.0 < row[2] < math.inf
        assert np.isfinite(row).all()


@pytest.mark.parametrize(("name", "path"), CASES)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, "12", [], {}, True], ids=repr)
def test_what_is_no_number_is_named_where_it_stands(name: str, path: str, wrong: Any) -> None:
    error = _error(_bent(name, path, wrong))
    assert error is not None
    assert error.field == path
    assert error.file == "mine.toml"
    assert error.hint


@pytest.mark.parametrize(("name", "path"), CASES)
@pytest.mark.parametrize("factor", [-1, 0, 1e10, 1e-10])
def test_absurd_numbers_are_named_where_they_stand(name: str, path: str, factor: float) -> None:
    """Factors of ten thousand millions are those of bytes for gigabytes, and more."""
    old = _value(name, path)
    whole = isinstance(old, int) and not path.endswith(("_gb", "_mib", "_kib", "_per_s", "_mhz"))
    new = int(old * factor) if whole else old * factor
    error = _error(_bent(name, path, new))
    if error is None:  # a cap or a latency of 0 and the like may be lawful: the answer then is
        assert factor == 0
        return
    assert error.field == path
    assert "expected" in error.message or "Expected" in error.message
    assert error.hint


@pytest.mark.parametrize(("name", "path"), CASES)
def test_a_wrong_unit_is_named_or_the_answer_is_lawful(name: str, path: str) -> None:
    old = _value(name, path)
    for factor in (RELATED, 1 / RELATED, 1.024, 1.073741824):
        new = type(old)(old * factor) if isinstance(old, int) else old * factor
        error = _error(_bent(name, path, new or 1))
        if error is not None:  # of this number, or of one that it must agree with
            assert error.field.partition(".")[0] in ("compute", "memory", "clocks", "power",
                                                     "links", "default_gpus_per_node")  # fmt: skip
            assert "expected" in error.message
            assert error.hint


@pytest.mark.parametrize("name", FILES)
def test_bytes_for_gigabytes_are_recognised(name: str) -> None:
    path = "memory.dram.bandwidth_gb_per_s"
    error = _error(_bent(name, path, _value(name, path) * 1e9))
    assert error is not None
    assert "1e+09 times as large" in error.message


@pytest.mark.parametrize("name", FILES)
def test_every_table_refuses_what_it_does_not_know(name: str) -> None:
    """A misspelt field is answered with the right one of its own table."""
    for path, value in numbers_of(_read(name)):
        position, _, field = path.rpartition(".")
        if not position or position.endswith("pipes") or ".pipes." in path or "[" in field:
            continue
        error = _error(_bent(name, f"{position}.{field}x", value))
        assert error is not None
        assert error.field == f"{position}.{field}x"
        assert "unknown field" in error.message
        assert f"did you mean {field}" in error.hint


@pytest.mark.parametrize("name", FILES)
def test_the_battery_reports_the_same_field(name: str) -> None:
    for path, value in numbers_of(_read(name)):
        problems = check_device(_bent(name, path, -value))
        assert path in [problem.field for problem in problems]
