"""`silicast.deployment` and its steps, which simulators of engines ask for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import silicast
from silicast.composition.prices.step_predictor import StepPredictor
from silicast.composition.prices.stepper import Stepper
from silicast.composition.simulators.dynamo import write_perf_data
from silicast.composition.simulators.infer_time import InferTimePredictor
from silicast.composition.simulators.llm_d import settings
from silicast.composition.step.states import BatchStates
from silicast.core.errors import SilicastError

WHERE: dict[str, Any] = {"model": "Llama-3.1-8B", "device": "H100", "engine": "sglang"}


@pytest.fixture(scope="module")
def step() -> StepPredictor:
    return silicast.step_predictor(**WHERE, load=False)


@pytest.mark.parametrize(
    ("batch", "prefill", "decode"),
    [
        ([(1, 1000)] * 8, [], [1000] * 8),
        ([(700, 0)], [(700, 700)], []),
        ([(256, 512), (1, 300), (1, 4000)], [(256, 768)], [300, 4000]),
    ],
)
def test_a_step_takes_what_it_takes_in_serve(
    step: StepPredictor,
    batch: list[tuple[int, int]],
    prefill: list[tuple[int, int]],
    decode: list[int],
) -> None:
    stepper = Stepper.from_deployment(step.deployment)
    starts = [stepper.step(prefill, np.array(decode, dtype=np.int64)).start_ns for _ in range(3)]
    assert step(batch) == pytest.approx((starts[2] - starts[1]) / 1e9, rel=0.005)


@pytest.mark.parametrize("parallel", [{}, {"tp": 2}])
def test_decode_is_that_of_a_static_batch(parallel: dict[str, int]) -> None:
    step = silicast.step_predictor(**WHERE, parallel=parallel, load=False)
    batch = silicast.infer(**WHERE, parallel=parallel, batch=16, input_len=1000, output_len=3)
    assert batch.decode_step_ms is not None
    assert step([(1, 1000)] * 16) * 1e3 == pytest.approx(batch.decode_step_ms.estimate, rel=0.005)


def test_loading_changes_no_answer(step: StepPredictor) -> None:
    batches = [[(1, 77)] * 3, [(33, 0), (1, 900)]]
    before = [step(batch) for batch in batches]
    assert step.load(tokens=64, sequences=4, length=256) is step
    assert [step(batch) for batch in batches] == before


@pytest.mark.parametrize("batch", [[], [(0, 5)], [(4, -1)]])
def test_a_batch_that_is_none_is_refused(step: StepPredictor, batch: list[tuple[int, int]]) -> None:
    with pytest.raises(SilicastError, match="expected at least one"):
        step(batch)


MANY = [[(1, 1000)] * 8, [(4000, 0)], [(256, 512), (1, 300), (1, 4000)], [(3000, 90)] * 2]
"""Of several kinds; the power limit slows those with prompts."""


@pytest.mark.parametrize(
    "fields",
    [{}, {"limits": {"power_w": 300.0}}, {"parallel": {"tp": 2, "pp": 2}}, {"device": "MI300X"}],
)
def test_many_steps_are_those_of_the_step_model_at_each_own_clock(fields: dict[str, Any]) -> None:
    step = silicast.step_predictor(**{**WHERE, **fields}, load=False)
    many, model = step.many(MANY), step.prices.model
    assert step.many([]) == []
    assert [step.many([batch])[0] for batch in MANY] == many
    assert many == pytest.approx([step(batch) for batch in MANY], rel=0.02)
    assert model.graph.stages > 1 or many[2] != step(MANY[2]), "no surface is read"
    if model.graph.stages > 1:
        return
    states = BatchStates.decode([1000] * 8, np.array([1]))
    times = model.steps(states)
    held = model.steps(states, model.held_clock(times, states, 0))
    assert many[0] == held.total_s[0]


def test_many_with_a_batch_that_is_none_is_refused(step: StepPredictor) -> None:
    with pytest.raises(SilicastError, match="expected at least one"):
        step.many([[(1, 77)], []])


def test_what_is_no_single_step_is_refused() -> None:
    with pytest.raises(SilicastError) as error:
        silicast.step_predictor(**WHERE, pools={"a": {}}, load=False)
    assert error.value.field == "pools"
    with pytest.raises(SilicastError, match="unknown argument"):
        silicast.step_predictor(**WHERE, paralel={"tp": 2}, load=False)


LENGTHS: dict[str, Any] = {"input_lens": [40, 300, 7], "output_len": 5}


@pytest.fixture(scope="module")
def compiled() -> silicast.CompiledDeployment:
    return silicast.deployment(**WHERE)


def test_a_batch_is_that_of_infer(compiled: silicast.CompiledDeployment) -> None:
    batch, whole = compiled.batch(**LENGTHS), silicast.infer(**WHERE, **LENGTHS)
    for name in ("prefill_ms", "decode_step_ms", "total_ms"):
        assert batch[name].estimate == pytest.approx(whole.predicted[name].estimate, rel=0.01)
        assert batch[name].p95 == pytest.approx(whole.predicted[name].p95, rel=0.05)
    assert batch["memory_gb"] == whole.memory_gb


@pytest.mark.parametrize(
    ("fields", "lengths"),
    [
        ({}, {"batch": 8, "input_len": 64, "output_len": 4, "cached_len": 30_000}),
        ({}, {"batch": 64, "input_len": 16, "output_len": 3001}),
        (
            {"model": "DeepSeek-V2-Lite", "parallel": {"attention_dp": 2, "ep": 2}},
            {"input_lens": [900] * 4, "output_len": 3},
        ),
    ],
)
def test_a_batch_with_a_cache_long_outputs_or_other_groups_is_that_of_infer(
    fields: dict[str, Any], lengths: dict[str, Any]
) -> None:
    """Prompts that see what is cached; a middle step far behind the first one; experts of tokens of
    other ranks.
    """
    where = {**WHERE, **fields}
    batch, whole = silicast.deployment(**where).batch(**lengths), silicast.infer(**where, **lengths)
    for name in ("prefill_ms", "decode_step_ms", "total_ms"):
        assert batch[name].estimate == pytest.approx(whole.predicted[name].estimate, rel=0.02)


def test_a_batch_is_its_prefill_and_its_decode_steps(compiled: silicast.CompiledDeployment) -> None:
    batch = compiled.batch(batch=4, input_len=500, output_len=3)
    decode = [compiled.step([(1, 500 + each)] * 4) * 1e3 for each in (0, 1)]
    total = batch["prefill_ms"].estimate + sum(decode)
    assert batch["total_ms"].estimate == pytest.approx(total, rel=1e-9)
    one = compiled.batch(batch=4, input_len=500, output_len=1)
    assert "decode_step_ms" not in one
    assert one["total_ms"] == one["prefill_ms"] == batch["prefill_ms"]


ASSUMED: dict[str, Any] = {
    "architectures": ["FancyForCausalLM"], "hidden_size": 2048, "num_attention_heads": 32,
    "num_hidden_layers": 16, "num_key_value_heads": 8, "intermediate_size": 8192,
    "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
"""A configuration that is read as the nearest known one."""
ROWS: list[dict[str, Any]] = [
    {"batch": 8, "input_len": 1500, "output_len": 90},
    {"input_lens": [40, 3000, 7], "output_len": 5, "cached_len": 100},
    {"input_len": 9, "output_len": 1},
    {"batch": 2, "input_len": 9, "output_len": 2},
    {"batch": 64, "input_len": 4096, "output_len": 33},
    {"batch": 8, "input_len": 1500, "output_len": 9},
]
"""With the same prompts twice, nothing to decode, and prompts for which the clock falls."""


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"limits": {"power_w": 300.0}},
        {"parallel": {"tp": 2, "pp": 2}},
        {"model": "Qwen3-30B-A3B", "device": "h200"},
        {"model": "DeepSeek-V2-Lite", "parallel": {"attention_dp": 2, "ep": 2}},
        {"device": "RTX 4090", "model": "Qwen3-4B"},
        {
            "device": "RTX 4090",
            "model": "Qwen3-8B",
            "engine": "llama.cpp",
            "precision": {"weights": "q4_k_m"},
        },
        {"model": ASSUMED},
    ],
)
def test_batches_together_are_the_very_numbers_of_infer(fields: dict[str, Any]) -> None:
    where = {**WHERE, **fields}
    known = silicast.deployment(**where)
    many = known.batches(ROWS)
    assert len(many) == len(ROWS)
    for batch, row in zip(many, ROWS, strict=True):
        whole, single = silicast.infer(**where, **row), known.batch(**row)
        assert batch.items() <= whole.predicted.metrics.items()
        assert ("decode_step_ms" in batch) == (row["output_len"] > 1)
        remarks = "does not fit", "weights by the usual rules"
        assert batch.warnings == tuple(x for x in whole.warnings if x.startswith(remarks))
        assert ("precision" in fields) == any("usual rules" in each for each in batch.warnings)
        assert single["memory_gb"] == batch["memory_gb"]
        assert single.warnings == batch.warnings


def test_no_batches_are_none_and_a_bad_one_is_refused(
    compiled: silicast.CompiledDeployment,
) -> None:
    assert compiled.batches([]) == []
    with pytest.raises(SilicastError) as error:
        compiled.batches([ROWS[0], {"input_len": 0, "output_len": 4}])
    assert error.value.field == "rows[1].workload.input_len"


@pytest.mark.parametrize("rows", [3, {"batch": 1}, "ab", [3], [None], ["ab"], [[("batch", 1)]]])
def test_rows_that_are_none_are_refused(compiled: silicast.CompiledDeployment, rows: Any) -> None:
    with pytest.raises(SilicastError, match=r"expected a (list of dicts|dict), found") as error:
        compiled.batches(rows)
    assert error.value.field == ("rows[0]" if isinstance(rows, list) else "rows")
    assert "'input_len': 512" in error.value.hint
    with pytest.raises(SilicastError) as error:
        compiled.batches([ROWS[0], 3])  # type: ignore[list-item]
    assert error.value.field == "rows[1]"


NO_BATCHES: list[Any] = [
    3, None, "ab", {"prefill": [], "decode": []}, [3], [(1,)], [(1, 2, 3)], [("a", "b")],
    [(None, 1)], [(1.5, 0)], [(1, 0.5)], [(1 << 70, 0)], [(1, 1 << 70)], [(1, float("inf"))],
    [(1e300, 0)], [(1, 1 << 63)],
]  # fmt: skip


@pytest.mark.parametrize("batch", NO_BATCHES)
@pytest.mark.parametrize("pp", [1, 2])
def test_what_is_no_batch_is_refused(batch: Any, pp: int) -> None:
    step = silicast.step_predictor(**WHERE, parallel={"pp": pp}, load=False)
    with pytest.raises(SilicastError, match=r"expected \(new, cached\) tokens") as error:
        step(batch)
    assert error.value.field == "batch"
    assert "(1, 1000)" in error.value.hint
    with pytest.raises(SilicastError) as error:
        step.many([[(1, 77)], batch])
    assert error.value.field == "batches[1]"


@pytest.mark.parametrize("batches", [3, None, "ab", {"a": []}])
def test_what_are_no_batches_is_refused(step: StepPredictor, batches: Any) -> None:
    with pytest.raises(SilicastError, match="a list of batches") as error:
        step.many(batches)
    assert error.value.field == "batches"


def test_whole_numbers_of_any_type_are_a_batch(step: StepPredictor) -> None:
    known = step([(256, 512), (1, 300)])
    same: list[Any] = [
        [(256.0, 512), (1, 300.0)],
        np.array([[256, 512], [1, 300]], dtype=np.uint16),
        iter([(np.int32(256), 512), (1, np.int64(300))]),
    ]
    assert [step(batch) for batch in same] == [known] * 3


def test_serve_is_the_task_serving(compiled: silicast.CompiledDeployment) -> None:
    load = {
        "arrival": {"kind": "closed", "concurrency": 2},
        "requests": 4,
        "input_len": 64,
        "output_len": 8,
    }
    whole = silicast.predict(**WHERE, task="serving", workload=load)
    assert compiled.serve(**load).metrics == whole.metrics


@pytest.mark.parametrize(
    ("lengths", "field"),
    [
        ({"output_len": 4}, "workload"),
        ({"input_len": 4, "input_lens": [4], "output_len": 4}, "workload.input_len"),
        ({"batch": 2, "input_len": 0, "output_len": 4}, "workload.input_len"),
        ({"input_len": 4, "output_len": 0}, "workload.output_len"),
    ],
)
def test_lengths_that_are_none_are_refused(
    compiled: silicast.CompiledDeployment, lengths: dict[str, Any], field: str
) -> None:
    with pytest.raises(SilicastError) as error:
        compiled.batch(**lengths)
    assert error.value.field.startswith(field)


def test_a_framework_and_an_encoder_are_refused() -> None:
    eager = silicast.deployment(model="gpt2", device="H100", engine="torch-eager")
    with pytest.raises(SilicastError, match="pass by pass"):
        eager.batch(input_len=4, output_len=2)
    with pytest.raises(SilicastError, match="pass by pass") as error:
        eager.batches([{"input_len": 4, "output_len": 2}])
    assert error.value.field == "engine"
    encoder = silicast.deployment(model="bert-large", device="H100", engine="vllm")
    with pytest.raises(SilicastError, match="generates no tokens"):
        encoder.batch(input_len=4, output_len=2)


def test_requests_of_sglangs_simulator(step: StepPredictor) -> None:
    requests = [
        SimpleNamespace(extend_length=128, past_kv_length=0),
        SimpleNamespace(extend_length=1, past_kv_length=640),
    ]
    adapter, expected = InferTimePredictor(step), step([(128, 0), (1, 640)])
    assert adapter.predict_infer_time(requests) == expected
    assert adapter.predict_infer_time(SimpleNamespace(reqs=requests)) == expected
    with pytest.raises(SilicastError, match="extend_length and past_kv_length"):
        adapter.predict_infer_time([object()])


def test_perf_data_of_dynamos_mocker(step: StepPredictor, tmp_path: Path) -> None:
    path = write_perf_data(
        step, tmp_path / "perf.npz", prompt=1001, cached=8000, context=2001, resolution=3
    )
    with np.load(path) as table:
        assert table["prefill_isl"].tolist() == [1, 501, 1001]
        assert table["prefill_ttft_ms"][1] == step([(501, 0)]) * 1e3
        assert table["decode_active_kv_tokens"].tolist() == [0, 4000, 8000]
        # 8,000 cached tokens in contexts of 2,001 are four sequences.
        assert table["decode_itl"][2, 2] == step([(1, 2000)] * 4) * 1e3


def test_settings_of_llm_ds_simulator(step: StepPredictor) -> None:
    found = settings(step, prompt=2048, context=512, max_num_seqs=32)
    whole = found["prefill-overhead"] + 2048 * found["prefill-time-per-token"]
    assert whole == pytest.approx(step([(2048, 0)]) * 1e3)
    assert found["inter-token-latency"] == step([(1, 512)]) * 1e3
    busy = found["inter-token-latency"] * found["time-factor-under-load"]
    assert busy == pytest.approx(step([(1, 512)] * 32) * 1e3)


def test_a_batch_that_does_not_fit_says_so_as_infer_does() -> None:
    where: dict[str, Any] = {"model": "Llama-3.1-70B", "device": "h100"}
    sizes: dict[str, Any] = {"input_len": 1024, "output_len": 128}
    known = silicast.deployment(**where, parallel={"tp": 2})
    for batch in (8, 32):
        whole = silicast.infer(**where, tp=2, batch=batch, **sizes)
        remarks = tuple(line for line in whole.warnings if line.startswith("does not fit"))
        assert known.batch(batch=batch, **sizes).warnings == remarks
        assert len(remarks) == (batch == 32)
