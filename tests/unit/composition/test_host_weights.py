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
        ({"n_cpu_moe": 3, "parallel": {"pp": 2}}, "parallel", "one device"),
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


GIB = 2**30
BLOCK = 436_207_616
"""Bytes of the weights of one layer of Llama-3.1-8B in 16 bits, without its norms:
2 x 4,096 x (2 x 4,096 + 2 x 1,024 + 3 x 14,336).
"""


def offloaded(gib: float = 0, *, engine: str = "vllm", **fields: Any) -> Predicted:
    options = {"cpu_offload_gb": gib} if gib else {}
    return silicast.predict(
        {
            "format": 1,
            "task": "inference",
            "device": "RTX 4090",
            "model": "Llama-3.1-8B",
            "engine": {"name": engine, "options": options},
            "workload": {"batch": 1, "input_len": 64, "output_len": 5},
            **fields,
        }
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("degree", [1, 2])
def test_servers_leave_whole_tensors_of_their_first_layers_to_the_host(
    engine: str, degree: int
) -> None:
    """4 GiB are nine layers and the attention, 1/10.4 of a layer, and the gates of a tenth."""
    plan: dict[str, Any] = {"parallel": {"tp": degree}}
    usual = offloaded(engine=engine, **plan).why["memory_gb"]
    memory = offloaded(4 / degree, engine=engine, **plan).why["memory_gb"]
    assert memory["weights"] + memory["host_weights"] == pytest.approx(usual["weights"], rel=1e-12)
    gates = 2 * 4_096 * 2 * 14_336
    assert 0.0 <= memory["host_weights"] * 1e9 - 4 * GIB / degree < gates / degree
    layers = memory["host_weights"] * 1e9 * degree / BLOCK
    assert layers == pytest.approx(10.0, abs=1e-3)
    assert memory["host_kv_cache"] == 0.0


@pytest.mark.parametrize(("engine", "batch"), [("vllm", 1), ("sglang", 1), ("sglang", 16)])
def test_every_step_reads_these_weights_over_the_link(engine: str, batch: int) -> None:
    def step(link: float) -> float:
        work = {"batch": batch, "input_len": 64, "output_len": 5}
        fields = {"workload": work, "host": {"link_gb_per_s": link}}
        return step_ms(offloaded(4, engine=engine, **fields))

    moved_s = 10 * BLOCK / 0.85 * (1 / 4e9 - 1 / 16e9)
    assert step(4.0) - step(16.0) == pytest.approx(moved_s * 1e3, rel=1e-3)


def test_copies_come_before_the_work_and_reads_in_place_beside_it() -> None:
    usual, usual_sglang = step_ms(offloaded()), step_ms(offloaded(engine="sglang"))
    moved_ms = 10 * BLOCK / (0.85 * 32e9) * 1e3
    assert step_ms(offloaded(4, engine="sglang")) == pytest.approx(
        usual_sglang + moved_ms, rel=2e-3
    )
    on_device = 10 / 32 * usual
    assert step_ms(offloaded(4)) == pytest.approx(usual - on_device + moved_ms, rel=0.02)


def test_reads_in_place_are_of_the_experts_that_tokens_meet() -> None:
    """8 of 128 experts of Qwen3-30B-A3B: attention is read whole by either."""
    fields: dict[str, Any] = {"model": "Qwen3-30B-A3B", "device": "H100"}
    both = [
        step_ms(offloaded(50, engine=engine, **fields))
        - step_ms(offloaded(engine=engine, **fields))
        for engine in ("vllm", "sglang")
    ]
    assert 1 / 16 < both[0] / both[1] < 2 / 16


def test_the_more_weights_are_left_to_the_host_the_slower_and_the_smaller() -> None:
    answers = [offloaded(gib) for gib in (0, 1, 4, 9, 1_000)]
    times = [step_ms(answer) for answer in answers]
    sizes = [answer.why["memory_gb"]["weights"] for answer in answers]
    assert times == sorted(times)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] * 1e9 == pytest.approx(2 * 128_256 * 4_096 * 2, rel=1e-4)  # tables, head
    assert answers[0].answer.domain == "in"
    assert {answer.answer.domain for answer in answers[1:]} == {"near"}


@pytest.mark.parametrize("degree", [1, 2])
def test_more_than_the_layers_have_is_remarked(degree: int) -> None:
    """32 layers of 436,207,616 bytes and their norms are 13.0 GiB of Llama-3.1-8B."""

    def remarks(gib: float) -> list[str]:
        warnings = offloaded(gib, parallel={"tp": degree}).answer.warnings
        return [each for each in warnings if each.startswith("engine.options.cpu_offload_gb")]

    most = 32 * BLOCK / GIB / degree
    assert not remarks(0)
    assert not remarks(most - 0.1)
    for gib in (most + 0.1, 40.0):
        (remark,) = remarks(gib)
        assert f"cpu_offload_gb = {gib:g}" in remark
        assert f"{most:.3g} GiB" in remark


@pytest.mark.parametrize(
    ("engine", "gib", "field", "text"),
    [
        ("trtllm", 4, "cpu_offload_gb", "keeps no weights"),
        ("vllm", -1, "cpu_offload_gb", "from 0"),
        ("vllm", "much", "cpu_offload_gb", "a number"),
    ],
)
def test_what_a_server_does_not_leave_to_the_host_is_refused(
    engine: str, gib: Any, field: str, text: str
) -> None:
    with pytest.raises(SilicastError) as caught:
        offloaded(gib, engine=engine)
    assert field in caught.value.field
    assert text in str(caught.value)


def test_what_nothing_else_starts_is_told_what_to_leave_to_the_host() -> None:
    """71 heads of Falcon-7B cannot be shared."""

    def started(gib: int = 0, memory_gb: float = 64) -> Predicted:
        work = {"requests": 2, "input_len": 64, "output_len": 8}
        arrival = {"kind": "closed", "concurrency": 1}
        options = {"cpu_offload_gb": gib, "max_model_len": 512}
        return silicast.predict(
            {
                "format": 1,
                "task": "serving",
                "device": "RTX 4060",
                "model": "Falcon-7B",
                "engine": {"name": "vllm", "options": options},
                "host": {"cpu": "reference", "memory_gb": memory_gb},
                "workload": {**work, "arrival": arrival},
            }
        )

    with pytest.raises(SilicastError) as caught:
        started()
    least = int(re.search(r"cpu_offload_gb = (\d+)", caught.value.hint)[1])  # type: ignore[index]
    assert started(least).metrics["tpot_mean_ms"].estimate > 0.0
    with pytest.raises(SilicastError):
        started(least - 1)
    with pytest.raises(SilicastError, match="host's memory"):
        started(least, memory_gb=4)
