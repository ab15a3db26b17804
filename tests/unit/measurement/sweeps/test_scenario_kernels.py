"""Kernels of a scenario: all of its time, in tables that can be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.measurement.sweeps.scenario_kernels import kernels_of_scenario, table_of, used_kernels
from silicast.scenario.decode import decode
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.scenario.run import run

LLAMA = {"device": "H100", "model": "Llama-3.1-8B"}
INFERENCE = {"task": "inference", **LLAMA, "workload": {"batch": 4, "input_len": 512,
                                                        "output_len": 33}}  # fmt: skip


def _sum_ms(tree: dict[str, Any]) -> float:
    return 1e3 * sum(each.seconds for each in used_kernels(decode(tree)))


def test_kernels_of_a_batch_take_its_time() -> None:
    answer = run(decode(INFERENCE))
    # without the host and what clocks change
    assert 0.8 < _sum_ms(INFERENCE) / answer.metrics["total_ms"].estimate <= 1.02


def test_kernels_of_a_pass_take_its_time() -> None:
    tree = {"task": "graph", "device": "A100-SXM-80GB", "model": "bert-large",
            "workload": {"mode": "training", "batch": 8, "seq_len": 512}}  # fmt: skip
    answer = run(decode(tree))
    assert 0.8 < _sum_ms(tree) / answer.metrics["e2e_ms"].estimate <= 1.02


def test_kernels_of_a_training_step_are_those_of_all_its_passes() -> None:
    work = {"seq_len": 1024, "micro_batch": 1, "global_batch": 8}
    tree = {"task": "training", **LLAMA, "workload": work}
    once = {**tree, "workload": {**work, "global_batch": 4}}  # both accumulate
    assert _sum_ms(tree) == pytest.approx(2 * _sum_ms(once))


def test_a_kernel_is_its_own_only_kernel(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    kernel = 'kernel = {op = "softmax", rows = 8, cols = 4096, dtype = "fp32"}'
    file.write_text(f'task = "kernel"\ndevice = "H100"\n{kernel}\n')
    assert kernels_of_scenario(file) == [
        {"op": "softmax", "cols": 4096, "rows": 8, "dtype": "fp32"}
    ]


def test_tables_are_read_as_kernels_longest_first() -> None:
    used = used_kernels(decode({**INFERENCE, "parallel": {"tp": 2}}))
    assert [each.seconds for each in used] == sorted((e.seconds for e in used), reverse=True)
    assert len({each.op for each in used}) == len(used)
    tables = {each.op.family: table_of(each.op) for each in used}
    assert tables.pop("all_reduce") is None
    decode_table = tables["attention_decode"]
    assert decode_table is not None
    assert decode_table["batch"] == 4
    for family, table in tables.items():
        if table is not None:
            assert kernel_case(table).op.family == family


def test_ragged_batches_keep_their_lengths() -> None:
    work = {"input_lens": [100, 300], "output_len": 1}
    tables = [table_of(each.op) for each in used_kernels(decode({**INFERENCE, "workload": work}))]
    (prefill,) = [each for each in tables if each and each["op"] == "attention_prefill"]
    assert prefill["q_len"] == [100, 300]


def test_other_tasks_say_which_are_answered() -> None:
    tree = {"task": "collective", "device": "H100",
            "workload": {"op": "all_reduce", "bytes": 1024, "gpus": 2}}  # fmt: skip
    with pytest.raises(SilicastError, match="task collective") as error:
        used_kernels(decode(tree))
    assert error.value.kind == "not_yet"
    assert "inference" in error.value.hint
