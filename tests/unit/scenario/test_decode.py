"""Decoding: each field of the contract, and errors that name field, finding and remedy."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.core.naming import near
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.run import run

KERNEL: dict[str, Any] = {
    "format": 1,
    "task": "kernel",
    "device": "H100",
    "workload": {"kernel": {"op": "gemm", "m": 8, "n": 4096, "k": 4096, "dtype": "bf16"}},
}
INFERENCE: dict[str, Any] = {
    "task": "inference",
    "device": "H100",
    "model": "Llama-3.1-8B",
    "workload": {"batch": 2, "input_len": 16, "output_len": 8},
}
SERVING: dict[str, Any] = {
    "task": "serving",
    "device": "H100",
    "model": "Llama-3.1-8B",
    "workload": {
        "arrival": {"kind": "closed", "concurrency": 8},
        "input_len": 128,
        "output_len": 32,
    },
}
SPLIT: dict[str, Any] = {**SERVING, "pools": {"a": {"role": "prefill"}, "b": {"role": "decode"}}}
TRAINING: dict[str, Any] = {
    "task": "training",
    "device": "H100",
    "model": "Llama-3.1-8B",
    "workload": {"seq_len": 4096, "global_batch": 64},
}


def changed(base: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with the value at a dotted path replaced; None removes it."""
    tree = copy.deepcopy(base)
    table = tree
    *outer, last = path.split(".")
    for name in outer:
        table = table.setdefault(name, {})
    if value is None:
        table.pop(last)
    else:
        table[last] = value
    return tree


def error_of(tree: dict[str, Any]) -> SilicastError:
    with pytest.raises(SilicastError) as caught:
        decode(tree)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("base", [KERNEL, INFERENCE, SERVING, TRAINING])
def test_plain_cases_decode(base: dict[str, Any]) -> None:
    assert decode(base).raw.task == base["task"]


def test_every_field_of_the_contract_decodes() -> None:
    tree = {
        **SERVING,
        "format": 1,
        "id": "x",
        "seed": 7,
        "cluster": {
            "gpus": 64,
            "gpus_per_node": 8,
            "intra_node": "nvlink",
            "inter_node": {"kind": "ib", "bandwidth_gb_per_s": 50.0, "latency_us": 3},
        },
        "host": {"cpu": "EPYC 9654", "factor": 1.2},
        "limits": {"power_w": 500, "clock_mhz": 1500},
        "precision": {
            "weights": "fp8",
            "activations": "fp8",
            "kv_cache": "fp8",
            "recipe": "fp8_block",
            "group_size": 128,
        },
        "parallel": {
            "tp": 2,
            "pp": 2,
            "dp": 2,
            "ep": 2,
            "cp": 1,
            "sp": True,
            "attention_dp": 2,
            "zero": 0,
            "virtual_stages": 2,
        },
        "engine": {"name": "vllm", "version": "0.11", "options": {"block_size": 16}},
        "pools": {
            "a": {
                "device": {"name": "x"},
                "count": 2,
                "model": {"base": "Llama-3.1-8B"},
                "parallel": {"tp": 2},
                "engine": "sglang",
                "role": "prefill",
            },
            "b": {"role": "decode"},
        },
        "links": {"kv": {"from": "a", "to": "b", "kind": "rdma"}},
        "speculative": {"method": "draft", "draft": "Llama-3.2-1B", "k": 4, "acceptance": 0.8},
        "lora": {"rank": 16, "targets": ["q_proj"], "adapters": 4},
        "colocation": {"mode": "mps", "shares": {"a": 0.5, "b": 0.5}},
        "calibration": ["a.json", "b.json"],
        "tier": "analytic",
    }
    scenario = decode(tree)
    assert scenario.links["kv"].source == "a"
    assert scenario.pools["b"].count == 1
    assert scenario.engine is not None
    assert scenario.engine.options == {"block_size": 16}


@pytest.mark.parametrize(
    "tree",
    [
        KERNEL,
        {**KERNEL, "workload": KERNEL["workload"]["kernel"]},
        {"task": "kernel", "device": "H100", "kernel": KERNEL["workload"]["kernel"]},
    ],
)
def test_the_three_places_of_a_kernel_are_the_same(tree: dict[str, Any]) -> None:
    assert decode(tree).kernel == decode(KERNEL).kernel


def test_one_pool_is_the_short_form() -> None:
    pool = {"device": "H100", "model": "Llama-3.1-8B", "parallel": {"tp": 2}, "engine": "vllm"}
    long = decode({"task": "inference", "pools": {"a": pool}, "workload": INFERENCE["workload"]})
    short = decode({"task": "inference", **pool, "workload": INFERENCE["workload"]})
    assert long == short
    two = decode({"task": "inference", "pools": {"a": {**pool, "count": 2}},
                  "workload": INFERENCE["workload"]})  # fmt: skip
    assert two.pools["a"].count == 2


@pytest.mark.parametrize(
    ("pools", "overridden"),
    [
        ({"a": {"device": "H100"}}, ("device",)),
        ({"a": {"device": "H100"}, "b": {"device": "A100"}}, ("device",)),
        ({"a": {"device": "H100"}, "b": {}}, ()),  # b takes the one at the top
        ({"a": {"device": "A100"}}, ()),
        ({"a": {"device": "H100", "parallel": {"tp": 2}}}, ("device",)),
    ],
)
def test_fields_at_the_top_that_all_pools_override_are_known(
    pools: dict[str, Any], overridden: tuple[str, ...]
) -> None:
    tree = {**SERVING, "device": "A100", "pools": pools}
    assert decode(tree).overridden == overridden


def test_a_field_that_no_pool_uses_is_remarked() -> None:
    tree = {**INFERENCE, "device": "A100", "pools": {"a": {"device": "H100"}}}
    remark = "device at the top is not used: every pool states its own"
    assert remark in run(decode(tree)).warnings
    assert remark not in run(decode({**tree, "device": "H100"})).warnings


def test_traces_have_rows_as_tables_or_lists() -> None:
    for row in ({"arrival_s": 0.5, "input_len": 3, "output_len": 4}, [0.5, 3, 4]):
        arrival = {"kind": "trace", "rows": [row]}
        assert decode(changed(SERVING, "workload.arrival", arrival))
    arrival = {"kind": "trace", "rows": [[0.5, 0, 4]]}
    assert error_of(changed(SERVING, "workload.arrival", arrival)).field.startswith(
        "workload.arrival.rows[0]"
    )


def test_an_objective_may_name_its_statistic() -> None:
    assert decode(changed(SERVING, "workload.slo", {"ttft_p99_ms": 500, "tpot_mean_ms": 30}))


def test_a_bare_engine_is_a_table_with_that_name() -> None:
    a, b = decode({**SERVING, "engine": "vllm"}), decode({**SERVING, "engine": {"name": "vllm"}})
    assert a.engine == b.engine


@pytest.mark.parametrize(
    ("base", "path", "value", "field", "words"),
    [
        (KERNEL, "devise", "x", "devise", "did you mean device"),
        (KERNEL, "task", "kernels", "task", "did you mean kernel?"),
        (KERNEL, "task", 3, "task", "expected"),
        (KERNEL, "format", 2, "format", "expected 1, found 2"),
        (KERNEL, "tier", "analytical", "tier", "did you mean analytic?"),
        (KERNEL, "device", None, "device", "is missing"),
        (KERNEL, "device", 3, "device", "expected text or a table, found 3"),
        (KERNEL, "device", "", "device", "expected text"),
        (KERNEL, "seed", -1, "seed", "found -1"),
        (KERNEL, "workload", None, "workload.kernel", "is missing"),
        (KERNEL, "workload.kernel.op", "gem", "workload.kernel.op", "did you mean gemm"),
        (KERNEL, "workload.kernel.mm", 3, "workload.kernel.mm", "did you mean m"),
        (KERNEL, "workload.kernel.m", 0, "workload.kernel.m", "expected 1 to"),
        (KERNEL, "workload.kernel.m", -5, "workload.kernel.m", "found -5"),
        (KERNEL, "workload.kernel.m", 8.5, "workload.kernel.m", "whole number"),
        (KERNEL, "workload.kernel.m", True, "workload.kernel.m", "whole number, found true"),
        (KERNEL, "workload.kernel.m", "8", "workload.kernel.m", "found '8'"),
        (KERNEL, "workload.kernel.m", 10**15, "workload.kernel.m", "expected 1 to"),
        (KERNEL, "workload.kernel.m", [8], "workload.kernel.m", "found a list of 1"),
        (KERNEL, "workload.kernel.m", None, "workload.kernel.m", "is missing"),
        (KERNEL, "workload.kernel.dtype", "bf61", "workload.kernel.dtype", "did you mean bf16"),
        (KERNEL, "workload.kernel.library", "cublass", "workload.kernel.library", "cublas"),
        (KERNEL, "workload.kernel.launch", "eager", "workload.kernel.launch", "graph"),
        (KERNEL, "workload.kernel.cache", "hot", "workload.kernel.cache", "cold, warm"),
        (KERNEL, "workload.kernels", {}, "workload.kernels", "workload.kernel"),
        (KERNEL, "kernel", {"op": "gemm"}, "workload", "both given"),
        (KERNEL, "host.factor", 0, "host.factor", "found 0"),
        (KERNEL, "limits.power", 300, "limits.power", "did you mean power_w"),
        (KERNEL, "precision.weights", "bf61", "precision.weights", "did you mean bf16"),
        (
            INFERENCE,
            "precision",
            {"recipe": "fp8", "weights": "bf16"},
            "precision.weights",
            "bf16 contradicts recipe = fp8, whose weights are fp8",
        ),
        (
            KERNEL,
            "pools.a.precision",
            {"recipe": "bf16", "activations": "fp8"},
            "precision.activations",
            "keep one of the two",
        ),
        (KERNEL, "parallel", 8, "parallel", "expected a table, found 8"),
        (KERNEL, "calibration", [], "calibration", "list"),
        (KERNEL, "pools", {}, "pools", "expected 1 to"),
        (KERNEL, "pools.a.parallel.tq", 1, "pools.a.parallel.tq", "did you mean tp"),
        (KERNEL, "pools.a.count", 0, "pools.a.count", "found 0"),
        (KERNEL, "links.l.from", "q", "links.l.from", "no pool 'q'"),
        (SERVING, "pools.a.role", "prefil", "pools.a.role", "did you mean prefill?"),
        (SERVING, "pools.a.role", "prefill", "pools.a.role", 'add a pool with role = "decode"'),
        (SERVING, "pools.a.role", "decode", "pools.a.role", 'add a pool with role = "prefill"'),
        (SERVING, "links.l.kind", "nvlink", "links", "there are no pools to join"),
        (SPLIT, "pools.b.role", None, "pools.a.role", "no other pool has role 'decode'"),
        (SPLIT, "links", {"l": {"from": "b"}}, "links.l.from", "pool 'b' has not role 'prefill'"),
        (SPLIT, "links", {"l": {"to": "a"}}, "links.l.to", "from prefill to decode: b"),
        (SPLIT, "links", {"l": {}, "m": {}}, "links.m", "one link that joins all pools"),
        (INFERENCE, "model", None, "model", "is missing"),
        (INFERENCE, "parallel.tp", 0, "parallel.tp", ">= 1, found 0"),
        (INFERENCE, "parallel.tp", -8, "parallel.tp", "found -8"),
        (INFERENCE, "parallel.tp", 10**9, "parallel.tp", "found 1000000000"),
        (INFERENCE, "parallel.tpp", 2, "parallel.tpp", "did you mean tp"),
        (INFERENCE, "parallel.etp", 2, "parallel.etp", "tp x attention_dp / ep = 1"),
        (INFERENCE, "parallel.ep", 3, "parallel.ep", "does not divide tp x attention_dp = 1"),
        (INFERENCE, "parallel.zero", 1, "parallel.zero", "training"),
        (INFERENCE, "workload.batch", None, "workload.batch", "is missing"),
        (INFERENCE, "workload.output_len", None, "workload.output_len", "is missing"),
        (INFERENCE, "workload.output_len", 0, "workload.output_len", "found 0"),
        (INFERENCE, "workload.input_lens", [], "workload.input_lens", "found a list of 0"),
        (INFERENCE, "workload.input_lens", [1, 2], "workload.input_len", "both given"),
        (INFERENCE, "workload.input_len", 10**9, "workload.input_len", "found 1000000000"),
        (INFERENCE, "workload.batch", 10**7, "workload.batch", "found 10000000"),
        (INFERENCE, "workload.batch", 10**6, "workload.batch", "at most 65536"),
        (SERVING, "workload.arrival.kind", "poison", "workload.arrival.kind", "poisson"),
        (SERVING, "workload.arrival.rate_per_s", 2, "workload.arrival.rate_per_s", "not part"),
        (SERVING, "workload.arrival.concurrency", None, "workload.arrival.concurrency", "missing"),
        (SERVING, "workload.slo", {"ttft_s": 1}, "workload.slo.ttft_s", "did you mean ttft_ms"),
        (SERVING, "workload.slo", {}, "workload.slo", "sets no limit"),
        (SERVING, "workload.output_len", None, "workload.output_len", "is missing"),
        (
            SERVING,
            "workload.prefix",
            {"hit_ratio": 0.5, "groups": 4},
            "workload.prefix.groups",
            "goes with length",
        ),
        (
            SERVING,
            "workload.sessions",
            {"turns": 1, "think_time_s": 1},
            "workload.sessions.think_time_s",
            "turns = 2 or more",
        ),
        (SERVING, "workload.range_ratio", 1.5, "workload.range_ratio", "found 1.5"),
        (SERVING, "speculative", {"method": "x", "k": 2}, "speculative.method", "draft"),
        (SERVING, "speculative", {"method": "mtp", "k": 0}, "speculative.k", "found 0"),
        (SERVING, "colocation", {"mode": "mps"}, "colocation", "one pool only"),
        (TRAINING, "workload.recompute", "ful", "workload.recompute", "did you mean full"),
        (TRAINING, "workload.optimizer", "adan", "workload.optimizer", "did you mean adam"),
        (TRAINING, "workload.global_batch", 0, "workload.global_batch", "found 0"),
        (TRAINING, "workload.micro_batch", 128, "workload.micro_batch", "of 64 sequences"),
        (TRAINING, "workload.routing", [0.0, 0.0], "workload.routing", "empty"),
        (TRAINING, "parallel.dp", 3, "workload.global_batch", "does not divide 64"),
    ],
)
def test_errors_name_the_field_and_what_to_do(
    base: dict[str, Any], path: str, value: object, field: str, words: str
) -> None:
    error = error_of(changed(base, path, value))
    assert error.field == field
    assert words in str(error)


def test_a_link_that_names_one_of_several_pools_of_a_role_is_not_modelled() -> None:
    pools = {**SPLIT["pools"], "c": {"role": "decode"}}
    tree = {**SPLIT, "pools": pools, "links": {"l": {"from": "a", "to": "c"}}}
    assert error_of(tree).kind == "not_yet"
    assert decode({**tree, "links": {"l": {"from": "a"}}}).links["l"].source == "a"


@pytest.mark.parametrize("link", [{}, {"from": "a", "to": "b"}])
def test_a_link_between_pools_without_roles_is_refused(link: dict[str, str]) -> None:
    error = error_of({**SPLIT, "pools": {"a": {}, "b": {}}, "links": {"l": link}})
    assert error.field == "links.l.from"
    assert "no pool has role 'prefill'" in error.message


def test_gpus_must_be_the_product_of_the_degrees_in_training() -> None:
    tree = changed(TRAINING, "cluster.gpus", 16)
    assert decode(changed(tree, "parallel.tp", 8))
    tree = changed(changed(tree, "parallel.tp", 8), "parallel.dp", 4)
    error = error_of(tree)
    assert error.field == "parallel.dp"
    assert "tp x pp x cp x dp = 32 GPUs, but the cluster has 16" in error.message
    assert "dp = 2 fits" in error.hint
    error = error_of(changed(changed(TRAINING, "cluster.gpus", 12), "parallel.tp", 8))
    assert "does not divide 12 GPUs" in error.message


def test_a_deployment_may_not_use_more_than_the_cluster_has() -> None:
    tree = changed(INFERENCE, "cluster.gpus", 4)
    assert decode(changed(tree, "parallel.tp", 2))
    assert "has 4" in error_of(changed(tree, "parallel.tp", 8)).message
    pools = {"a": {"device": "H100", "count": 3, "parallel": {"tp": 2}}}
    assert error_of({**tree, "pools": pools}).field == "pools"


def test_a_workflow_is_a_graph_without_loops() -> None:
    stage = {"work": "fixed", "duration_ms": 1.0}
    tree: dict[str, Any] = {
        "task": "workflow",
        "pools": {"p": {"device": "H100"}},
        "workload": {"stages": {"a": {**stage, "after": ["b"]}, "b": stage}},
    }
    assert isinstance(decode(tree), Scenario)
    assert (
        "wait for each other"
        in error_of(changed(tree, "workload.stages.b", {**stage, "after": ["a"]})).message
    )
    assert error_of(changed(tree, "workload.stages.a.after", ["c"])).field.endswith("a.after")
    assert error_of(changed(tree, "workload.stages.a.pool", "q")).kind == "unknown_name"


def test_trace_rows_are_typed() -> None:
    rows = [{"arrival_s": 0.0, "input_len": 5, "output_len": 3}]
    tree = changed(SERVING, "workload.arrival", {"kind": "trace", "rows": rows})
    assert decode(tree)
    bad = changed(SERVING, "workload.arrival", {"kind": "trace", "rows": [{"arrival_s": -1.0}]})
    assert "arrival_s" in error_of(bad).field


def test_nearest_names_or_all_of_a_few() -> None:
    assert near("tpp", ["tp", "zero"]) == "did you mean tp?"
    assert near("xyz", ["tp", "pp"]) == "known: tp, pp"
