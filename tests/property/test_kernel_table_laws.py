"""An op said as a kernel table is read back as the same op, for every op there is."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.kernels.kernel_case import OPS, kernel_case
from silicast.scenario.kernels.kernel_table_of import kernel_table_of
from silicast.workload.graphs.op import Op, Variant

DRAWS = 150
COMMON: dict[str, tuple[Any, ...]] = {
    "dtype": ("bf16", "fp8", "fp32"), "library": ("vllm", "torch", "trtllm"),
    "library_version": ("1.2",), "variant": ("a_kernel", "prefill_kernel"),
    "launch": ("graph", "stream", "profiler"), "cache": ("cold", "warm", "between"),
}  # fmt: skip
WORDS: dict[str, tuple[Any, ...]] = {
    "distribution": ("balanced", "power_law_1.2", "uniform"), "kv_dtype": ("fp8", "bf16"),
    "kv_cache_dtype": ("fp8", "bf16"), "gemm_type": ("fp8_block", "bf16"), "mla_dtype": ("fp8",),
}  # fmt: skip
SKIPPED = ("model", "architecture", "model_name", "op_name")


def _size(draw: random.Random, low: int, high: int) -> int:
    return min(max(low, draw.choice((1, 2, 4, 8, 64, 128, 1000, 4096))), high)


def _table(draw: random.Random, name: str) -> dict[str, Any]:
    """A table that may contradict itself."""
    spec = OPS[name]
    table: dict[str, Any] = {"op": name}
    count = draw.randint(1, 3) if draw.random() < 0.3 else 0
    ranges = dict(spec.required)
    ranges |= {n: each for n, (each, _) in spec.optional.items() if draw.random() < 0.5}
    for size, (low, high) in ranges.items():
        value: Any = _size(draw, low, high)
        if count and size in spec.lists:
            value = [_size(draw, low, high) for _ in range(count)]
        table[size] = value
    for flag in spec.flags:
        if draw.random() < 0.5:
            table[flag] = draw.random() < 0.5
    for word in (*spec.words, *spec.dtypes):
        if word not in SKIPPED and draw.random() < 0.5:
            table[word] = draw.choice(WORDS.get(word) or spec.words[word])
    for column, values in COMMON.items():
        if draw.random() < 0.3:
            table[column] = draw.choice(values)
    return table


@pytest.mark.parametrize("name", OPS)
def test_every_op_is_said_as_it_is_read(name: str) -> None:
    draw, read = random.Random(f"said {name}"), 0
    for _ in range(DRAWS):
        table = _table(draw, name)
        try:
            op = kernel_case(table).op
        except SilicastError:
            continue  # sizes that contradict each other
        read += 1
        remark = kernel_table_of(op)
        assert kernel_case(remark).op == op, (table, remark)
        assert kernel_table_of(kernel_case(remark).op) == remark
    assert read >= DRAWS // 20, f"{name}: only {read} tables were read"


def test_a_module_without_its_indexer_and_a_histogram_come_back() -> None:
    tables = (
        {"op": "dsa_module", "batch_size": 2, "num_heads": 16, "isl": 1, "step": 100,
         "op_name": "dsa_generation_module_skip_indexer"},
        {"op": "moe", "tokens": 8, "experts": 4, "topk": 2, "hidden": 64, "intermediate": 64,
         "distribution": [3, 1.5, 1, 1], "activation": "relu2"},
    )  # fmt: skip
    for table in tables:
        op = kernel_case(table).op
        assert kernel_case(kernel_table_of(op)).op == op


def test_what_a_table_has_no_word_for_is_refused() -> None:
    plain = Op.make("gemm", Variant(flags=(("includes_quantize", False),)), m=8, n=8, k=8, batch=1)
    strange = replace(plain, variant=replace(plain.variant, flags=(("transposed", True),)))
    for op, remarks in (
        (strange, "transposed"),
        (Op.make("all_reduce", bytes=8, gpus=2), "no kernel table"),
        (Op.make("rmsnorm", tokens="tokens", hidden=8, residual=0), "only the batch knows"),
    ):
        with pytest.raises(SilicastError, match=remarks):
            kernel_table_of(op)
