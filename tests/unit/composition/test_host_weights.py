"""Layers and experts in the host's memory, by closed forms of their bytes and of their places."""

from __future__ import annotations

import re
from typing import Any

import pytest

import silicast
from silicast.app.api import Predicted
from silicast.core.errors import SilicastError

SPEC: dict[str, Any] = {
    "format": 1,
    "task": "inference",
    "device": "RTX 4070 Laptop",
    "model": "gpt-oss-20b",
    "precision": {"weights": "MXFP4_MOE"},
}
LAYERS = 24


def predicted(
    tokens: int = 64, *, engine: str = "llama.cpp", output: int = 5, **fields: Any
) -> Predicted:
    options = {name: fields.pop(name) for name in ("n_gpu_layers", "n_cpu_moe") if name in fields}
    workload = {"batch": 1, "input_len": tokens, "output_len": output}
    engine_table = {"name": engine, "options": options}
    return silicast.predict({**SPEC, "engine": engine_table, "workload": workload, **fields})


def step_ms(answer: Predicted) -> float:
    return answer.metrics["decode_step_ms"].estimate


def test_all_layers_and_the_head_on_the_device_is_the_usual_answer() -> None:
    usual = predicted()
    for stated in (LAYERS + 1, 99, "all"):
        assert predicted(n_gpu_layers=stated).metrics == usual.metrics
    assert predicted(n_gpu_layers=LAYERS).metrics != usual.metrics


@pytest.mark.parametrize("options", [{"n_cpu_moe": 7}, {"n_gpu_layers": 10}])
def test_weights_and_caches_are_on_one_side_or_the_other(options: dict[str, Any]) -> None:
    usual = predicted().why["memory_gb"]
    memory = predicted(**options).why["memory_gb"]
    for name in ("weights", "kv_cache"):
        both = memory[name] + memory[f"host_{name}"]
        assert both == pytest.approx(usual[name] + usual.get(f"host_{name}", 0.0), rel=1e-12)
    assert memory["host_kv_cache"] > 0.0 or "n_cpu_moe" in options


def test_a_device_without_its_table_of_embeddings_holds_that_much_less() -> None:
    """gpt-oss: 201,088 tokens x 2,880, which llama.cpp leaves to the host; 8-bit blocks of 34 bytes
    for 32 weights.
    """
    memory = predicted().why["memory_gb"]
    assert memory["host_weights"] * 1e9 == pytest.approx(201_088 * 2_880 * 34 / 32, rel=1e-9)


def test_each_layer_of_experts_on_the_cpu_adds_the_same_time() -> None:
    times = [step_ms(predicted(n_cpu_moe=count)) for count in (0, 6, 12, 24)]
    each = [(late - times[0]) / count for late, count in zip(times[1:], (6, 12, 24), strict=True)]
    assert each[0] > 0.0
    assert each == pytest.approx([each[0]] * 3, rel=0.02)


def test_a_step_reads_the_experts_it_uses_from_the_hosts_memory() -> None:
    """4 experts of 3 x 2,880 x 2,880 weights of 17 bytes for 32 in each layer, at 89.6 GB/s."""
    least_s = LAYERS * 4 * 3 * 2_880**2 * 17 / 32 / 89.6e9
    assert step_ms(predicted(n_cpu_moe=LAYERS)) > least_s * 1e3


def test_long_prompts_copy_the_weights_and_short_ones_do_not() -> None:
    def prefill_ms(tokens: int, link: float) -> float:
        answer = predicted(tokens, n_cpu_moe=LAYERS, host={"link_gb_per_s": link})
        return answer.metrics["prefill_ms"].estimate

    assert prefill_ms(31, 4.0) == prefill_ms(31, 16.0)
    slow, quick = prefill_ms(512, 4.0), prefill_ms(512, 16.0)
    copied_s = LAYERS * 32 * 3 * 2_880**2 * 17 / 32 / 0.85 * (1 / 4e9 - 1 / 16e9)
    assert slow - quick == pytest.approx(copied_s * 1e3, rel=0.02)


def test_more_layers_on_the_device_are_never_slower() -> None:
    times = [step_ms(predicted(n_gpu_layers=count)) for count in (1, 8, 16, 24, 25)]
    assert times == sorted(times, reverse=True)


def test_the_cpu_of_the_host_may_be_named() -> None:
    slow = predicted(n_cpu_moe=LAYERS, host={"cpu": "Core i7-8700K", "factor": 1})
    quick = predicted(n_cpu_moe=LAYERS, host={"cpu": "EPYC 9654", "factor": 1})
    assert step_ms(slow) > 1.5 * step_ms(quick)


@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        ({"engine": "vllm", "n_cpu_moe": 3, "precision": {}}, "n_cpu_moe", "keeps no layers"),
        ({"device": "M2 Ultra", "n_cpu_moe": 3}, "n_cpu_moe", "host's memory"),
        ({"n_gpu_layers": 0}, "n_gpu_layers", "from 1"),
        ({"n_gpu_layers": "0"}, "n_gpu_layers", "host's processor"),
        ({"n_gpu_layers": "most"}, "n_gpu_layers", "most"),
        ({"model": "Llama-3.1-8B", "n_cpu_moe": 3}, "n_cpu_moe", "no experts"),
        ({"n_cpu_moe": 3, "parallel": {"tp": 2}}, "parallel", "one device"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(SilicastError) as caught:
        predicted(**fields)
    assert field in caught.value.field
    assert text in f"{caught.value} {caught.value.hint}"


def served(count: int) -> Predicted:
    return silicast.predict(
        {
            **SPEC,
            "task": "serving",
            "engine": {"name": "llama.cpp", "options": {"n_cpu_moe": count}},
            "workload": {
                "requests": 20,
                "input_len": 256,
                "output_len": 64,
                "arrival": {"kind": "constant", "rate_per_s": 0.05},
            },
        }
    )


def test_a_server_runs_with_experts_on_the_cpu() -> None:
    """Its steps are priced by other code than a static batch's."""
    step = step_ms(predicted(256, n_cpu_moe=24, output=65))
    assert served(24).metrics["tpot_mean_ms"].estimate == pytest.approx(step, rel=0.02)


def test_what_does_not_fit_is_told_how_many_experts_to_leave_to_the_cpu() -> None:
    with pytest.raises(SilicastError) as caught:
        served(0)
    least = int(re.search(r"n_cpu_moe = (\d+)", caught.value.hint)[1])  # type: ignore[index]
    assert served(least).metrics["tpot_mean_ms"].estimate > 0.0
    with pytest.raises(SilicastError):
        served(least - 1)
    warning = " ".join(predicted().answer.warnings)
    least = int(re.search(r"n_cpu_moe = (\d+)", warning)[1])  # type: ignore[index]
    assert "does not fit" not in " ".join(predicted(n_cpu_moe=least).answer.warnings)
    assert "does not fit" in " ".join(predicted(n_cpu_moe=least - 1).answer.warnings)
