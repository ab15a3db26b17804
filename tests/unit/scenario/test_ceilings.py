"""What measured kernels reached: beside every kernel, and in whole models where it is asked for."""

from __future__ import annotations

from typing import Any

from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run

DECODE = {
    "op": "attention_decode", "batch": 8, "kv_len": 4096, "num_heads": 32, "num_kv_heads": 8,
    "head_dim": 128,
}  # fmt: skip


def kernel(device: str, **fields: Any) -> Answer:
    return run(
        decode({"task": "kernel", "device": device, "workload": {"kernel": DECODE}, **fields})
    )


def model(**fields: Any) -> Answer:
    workload = {"batch": 4, "input_len": 512, "output_len": 32}
    tree = {"task": "inference", "model": "Llama-3.1-8B", "device": "H100", "workload": workload}
    return run(decode({**tree, **fields}))


def named(tree: Any, name: str) -> list[dict[str, Any]]:
    value = [tree] if tree["name"] == name else []
    for part in tree.get("parts", ()):
        value += named(part, name)
    return value


def test_a_measured_kernel_has_a_ceiling_between_its_bound_and_itself_or_a_little_above() -> None:
    why = kernel("H100").why
    assert why["of_bound"] <= why["of_ceiling"] < 1.5


def test_other_architectures_and_the_analytic_tier_have_none() -> None:
    assert "of_ceiling" not in kernel("MI300X").why
    assert "of_ceiling" not in kernel("H100", tier="analytic").why


def test_models_have_them_where_they_are_asked_for_and_nothing_else_changes() -> None:
    short, full = model(), model(why="full")
    assert short.metrics == full.metrics
    assert not any("of_ceiling" in leaf for leaf in named(short.why, "attention_decode"))
    leaves = named(full.why, "attention_decode")
    assert leaves
    assert all(leaf["of_bound"] <= leaf["of_ceiling"] < 1.5 for leaf in leaves)
