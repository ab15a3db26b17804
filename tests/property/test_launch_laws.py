"""A launch that is written from a prediction reads back as that prediction."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.report.deploy.target import find_target, target_names
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, launch_plan
from silicast.scenario.decode import decode
from silicast.scenario.reading.launched import launched_servers
from tests.sampling import examples

pytest.importorskip("yaml")

MODELS = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-32B")
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "vllm": (
        {},
        {"max_num_seqs": 48, "gpu_memory_utilization": 0.85},
        {"max_num_batched_tokens": 4096, "enable_prefix_caching": False},
        {"enforce_eager": True, "block_size": 32},
        {"async_scheduling": False, "VLLM_ATTENTION_BACKEND": "FLASHINFER"},
        {"attention_backend": "TRITON_ATTN", "disable_custom_all_reduce": True},
    ),
    "sglang": (
        {},
        {"max_running_requests": 64, "mem_fraction_static": 0.8},
        {"schedule_conservativeness": 0.5, "page_size": 16},
        {"attention_backend": "triton", "disable_cuda_graph": True},
    ),
    "trtllm": ({}, {"max_batch_size": 64}, {"max_num_tokens": 4096, "max_seq_len": 6000}),
}
PLANS: tuple[dict[str, int], ...] = (
    {},
    {"tp": 2},
    {"tp": 2, "pp": 2},
    {"tp": 4, "ep": 4},
    {"attention_dp": 4, "ep": 4},
    {"tp": 2, "attention_dp": 2, "ep": 4},
    {"tp": 2, "dp": 2},
)


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    engine = draw(st.sampled_from(sorted(OPTIONS)))
    model = draw(st.sampled_from(MODELS))
    plans = [p for p in PLANS if "A3B" in model or not {"ep", "attention_dp"} & p.keys()]
    table: dict[str, Any] = {"name": engine}
    if options := draw(st.sampled_from(OPTIONS[engine])):
        table["options"] = options
    tree: dict[str, Any] = {
        "task": "serving",
        "model": model,
        "device": "h200",
        "engine": table,
        "workload": {
            "arrival": {"kind": "closed", "concurrency": 4},
            "input_len": draw(st.sampled_from((128, 3000))),
            "output_len": 16,
            "requests": 4,
        },
    }
    if draw(st.booleans()) and engine != "trtllm":
        tree["precision"] = {"kv_cache": "fp8"}
    if draw(st.booleans()):
        tree["parallel"] = draw(st.sampled_from(plans))
        if draw(st.booleans()) and "dp" not in tree["parallel"]:
            tree["pools"] = {"replicas": {"count": draw(st.integers(1, 3))}}
    else:
        tree["pools"] = {
            role: {
                "role": role,
                "count": draw(st.integers(1, 2)),
                "parallel": draw(st.sampled_from([p for p in plans if "dp" not in p])),
            }
            for role in ("prefill", "decode")
        }
    return tree


def written(plan: LaunchPlan, target: str) -> dict[str, str] | None:
    """Files of a target; None = it does not express the plan."""
    try:
        return dict(find_target(target).files(plan))
    except SilicastError as error:
        if error.kind != "unsupported":
            raise
        return None


def pools_of(plan: LaunchPlan) -> list[dict[str, Any]]:
    """Pools without what flags state in another way: options, and the version of the file."""
    fields = [f for f in plan.pools[0].__dataclass_fields__ if f not in ("options", "version")]
    made = [{name: getattr(pool, name) for name in fields} for pool in plan.pools]
    return sorted(made, key=lambda pool: str(pool["role"]))


@examples(60)
@given(scenarios(), st.sampled_from(target_names()))
def test_a_launch_reads_back_as_the_prediction_it_was_written_from(
    tree: dict[str, Any], target: str
) -> None:
    plan = launch_plan(decode(tree))
    files = written(plan, target)
    if files is None:
        return
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        read, remarks = launched_servers(Path(folder) / next(iter(files)))
    assert not [line for line in remarks if "would change" in line or "would not start" in line]
    again = launch_plan(decode({**read, "device": "h200", "workload": tree["workload"]}))
    assert pools_of(again) == pools_of(plan)
    assert written(again, target) == files
