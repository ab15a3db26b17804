"""Static batches whose tokens are drafted."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from operator import mul
from typing import Any

import pytest

import silicast
from silicast.core.errors import SilicastError
from silicast.scenario.decode import decode
from silicast.scenario.resolving.deployments import deployment_of
from silicast.scenario.resolving.speculation import drafting_of
from silicast.serving.simulation import speculation
from silicast.serving.simulation.drafted_batch import _on_device, predict_drafted_batch
from silicast.serving.simulation.speculation import Acceptance, steps_until


def predicted(speculative: dict[str, Any] | None = None, **changes: Any) -> Any:
    scenario: dict[str, Any] = {
        "format": 1,
        "task": "inference",
        "device": "H100",
        "model": "Llama-3.1-8B",
        "engine": "vllm",
        "workload": {"batch": 2, "input_len": 512, "output_len": 129},
    }
    drafts = {} if speculative is None else {"speculative": speculative}
    return silicast.predict(scenario | drafts | changes)


def decode_ms(answer: Any) -> float:
    return float(answer["total_ms"].estimate - answer["prefill_ms"].estimate)


def slowest_steps(rates: list[float], tokens: int, sequences: int) -> float:
    """The mean of the largest number of whole steps, by hand over all that one step may bring."""

    @cache
    def ends_within(needed: int, steps: int) -> float:
        if needed <= 0:
            return 1.0
        if steps == 0:
            return 0.0
        chance, total = 1.0, 0.0
        for brought, rate in enumerate([*rates, 0.0], 1):
            total += chance * (1.0 - rate) * ends_within(needed - brought, steps - 1)
            chance *= rate
        return total

    return sum(1.0 - ends_within(tokens, steps) ** sequences for steps in range(tokens))


@pytest.mark.parametrize("sequences", [1, 2, 16])
@pytest.mark.parametrize("rates", [[0.0, 0.0], [0.5, 0.5], [0.9, 0.2], [1.0, 1.0]])
def test_steps_are_those_of_the_slowest_sequence(rates: list[float], sequences: int) -> None:
    for tokens in (1, 2, 3, 40):
        steps = steps_until(Acceptance(tuple(rates)), tokens, sequences)
        assert steps == pytest.approx(slowest_steps(rates, tokens, sequences), rel=1e-9)


@pytest.mark.parametrize("rates", [[0.0, 0.0], [0.5, 0.5], [0.9, 0.2], [1.0, 1.0]])
def test_a_batch_takes_its_slowest_sequences_steps(rates: list[float]) -> None:
    """128 tokens after the first, two sequences, whole steps of the same kind; no fewer than of
    requests that are alike.
    """
    none = predicted({"method": "eagle", "k": 2, "acceptance": [0.0, 0.0]})
    some = predicted({"method": "eagle", "k": 2, "acceptance": rates})
    said = some.why["speculation"]
    steps = said["decode_steps_expected"]
    alike = slowest_steps(rates, 128, 2)
    assert alike * (1.0 - 1e-6) <= steps < 1.05 * alike
    assert decode_ms(some) == pytest.approx(decode_ms(none) * steps / 128, rel=1e-7)
    assert some["decode_step_ms"].estimate == none["decode_step_ms"].estimate
    assert some["prefill_ms"].estimate == none["prefill_ms"].estimate
    assert said["acceptance_length_expected"] == pytest.approx(1.0 + sum(accumulate(rates, mul)))


def test_a_few_tokens_take_a_whole_step() -> None:
    """Two tokens of a step that may bring sixteen: it runs once, twice where the first is lost."""
    table = {"method": "draft", "draft": "Qwen3-0.6B", "k": 15, "acceptance": 0.95}
    work = {"batch": 1, "input_len": 512, "output_len": 3}
    batch = predicted(table, model="Qwen3-32B", workload=work)
    steps = decode_ms(batch) / batch["decode_step_ms"].estimate
    assert steps == pytest.approx(1.05, rel=0.01)
    said = batch.why["speculation"]["tpot_ms"]
    assert said == pytest.approx(decode_ms(batch) / 2, rel=0.01)
    served = silicast.serve(
        model="Qwen3-32B", device="H100", engine="vllm", concurrency=1, requests=200,
        input_len=512, output_len=3, speculative=table,
    )  # fmt: skip
    assert served["tpot_mean_ms"].estimate == pytest.approx(decode_ms(batch) / 2, rel=0.06)


@pytest.mark.parametrize("sequences", [1, 8, 64])
@pytest.mark.parametrize(("rates", "spread"), [((0.7,) * 3, 0.0), ((0.8,) * 7, 0.0975)])
def test_steps_of_many_tokens_follow_those_that_are_counted(
    rates: tuple[float, ...], spread: float, sequences: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    acceptance = Acceptance(rates, request_log_sd=spread)
    counted = steps_until(acceptance, speculation._COUNTED, sequences)
    monkeypatch.setattr(speculation, "_COUNTED", 1)
    near = steps_until.__wrapped__(acceptance, 128, sequences)
    assert near == pytest.approx(counted, rel=0.02)


def test_parts_say_what_drafts_and_what_verifies() -> None:
    drafted = predicted({"method": "draft", "draft": "Llama-3.2-1B", "k": 3, "acceptance": 0.5})
    named = {
        phase["name"]: [part["name"] for part in phase["parts"]] for phase in drafted.why["parts"]
    }
    assert named["prefill"] == ["prefill", "drafter"]
    assert named["decode"] == ["verification", "first_draft", "further_drafts"]


def test_room_counts_the_drafter() -> None:
    plain = predicted().why["room"]
    drafted = predicted({"method": "draft", "draft": "Llama-3.2-1B", "k": 3, "acceptance": 0.5})
    table = predicted({"method": "ngram", "k": 3, "acceptance": 0.5}).why["room"]
    assert 0 < drafted.why["room"]["batch"] < plain["batch"]
    assert drafted.why["room"]["context_tokens"] <= plain["context_tokens"]
    assert table["batch"] == plain["batch"]


def test_drafts_that_are_never_kept_cost_their_time() -> None:
    plain = predicted()
    lost = predicted({"method": "draft", "draft": "Llama-3.2-1B", "k": 3, "acceptance": 0.0})
    assert lost["total_ms"].estimate > plain["total_ms"].estimate
    more = predicted({"method": "draft", "draft": "Llama-3.2-1B", "k": 6, "acceptance": 0.0})
    assert more["decode_step_ms"].estimate > lost["decode_step_ms"].estimate


def test_passes_of_a_drafter_are_its_decode_steps() -> None:
    """Three drafts more are three passes more of the model that drafts, a step of verification
    apart: within a tenth, since verification sees three tokens more.
    """
    few, many = (
        predicted({"method": "draft", "draft": "Llama-3.2-1B", "k": k, "acceptance": 0.0})
        for k in (3, 6)
    )
    host = {"options": {"async_scheduling": True}, "name": "vllm"}
    alone = predicted(model="Llama-3.2-1B", engine=host)["decode_step_ms"].estimate
    passes = few.why["speculation"], many.why["speculation"]
    more = many["decode_step_ms"].estimate - few["decode_step_ms"].estimate
    assert passes[0]["tpot_without_ms"] == passes[1]["tpot_without_ms"]
    assert more == pytest.approx(3 * alone, rel=0.15)


def test_memory_holds_the_drafter() -> None:
    """Llama 3.2 1B: 1.236e9 parameters of 16 bits, a cache of 16 layers x 2 x 512 x 2 bytes."""
    plain = predicted()
    drafted = predicted({"method": "draft", "draft": "Llama-3.2-1B", "k": 3, "acceptance": 0.5})
    of = [answer.why["memory_gb"] for answer in (plain, drafted)]
    assert of[1]["weights"] - of[0]["weights"] == pytest.approx(1.2358e9 * 2 / 1e9, rel=1e-3)
    tokens = 2 * (-(-(512 + 129) // 16) * 16)
    assert of[1]["kv_cache"] - of[0]["kv_cache"] == pytest.approx(tokens * 16 * 2 * 512 * 2 / 1e9)
    table = predicted({"method": "ngram", "k": 3, "acceptance": 0.5})
    assert table.why["memory_gb"] == plain.why["memory_gb"]


def test_infer_and_serve_agree() -> None:
    """One client after another: the mean time of a token, 3 % for what a server's steps add."""
    table = {"method": "eagle", "k": 3, "acceptance": 0.7}
    work = {"batch": 1, "input_len": 512, "output_len": 256}
    batch = predicted(table, workload=work)
    served = silicast.serve(
        model="Llama-3.1-8B", device="H100", engine="vllm", concurrency=1, requests=60,
        input_len=512, output_len=256, speculative=table,
    )  # fmt: skip
    mean = decode_ms(batch) / 255
    assert served["tpot_mean_ms"].estimate == pytest.approx(mean, rel=0.03)


def test_acceptance_that_nobody_stated_widens() -> None:
    def width(answer: Any) -> float:
        total = answer["total_ms"]
        return float(total.p95 / total.p05)

    assumed = predicted({"method": "mtp", "k": 1})
    stated = predicted({"method": "mtp", "k": 1, "acceptance": 0.8})
    assert width(assumed) > width(stated)
    assert any("not stated" in said for said in assumed.warnings)


def test_files_of_weights_for_the_drafter_too() -> None:
    """Under llama.cpp a drafter is a file in the same mixture, and each pass is a batch."""
    scenario: dict[str, Any] = {
        "engine": "llama.cpp",
        "device": "RTX 4090",
        "model": "Qwen3-32B",
        "precision": {"weights": "Q4_K_M"},
        "workload": {"batch": 1, "input_len": 512, "output_len": 65},
    }
    plain = predicted(**scenario)
    drafted = predicted(
        {"method": "draft", "draft": "Qwen3-0.6B", "k": 5, "acceptance": 0.7}, **scenario
    )
    more = drafted.why["memory_gb"]["weights"] - plain.why["memory_gb"]["weights"]
    assert 0.3 < more < 0.6, "0.6e9 parameters in about five bits"
    assert drafted["total_ms"].estimate < 0.7 * plain["total_ms"].estimate


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workload": {"batch": 1, "input_len": 8, "output_len": 1}}, "nothing is decoded"),
        ({"engine": "torch-eager"}, "drafts nothing"),
        ({"parallel": {"attention_dp": 2}}, "speculative"),
    ],
)
def test_what_drafts_nothing_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SilicastError, match=said) as refused:
        predicted({"method": "ngram", "k": 3, "acceptance": 0.5}, **changes)
    assert refused.value.field.startswith("speculative")


SMALL = {"method": "draft", "draft": "Llama-3.2-1B", "k": 3, "acceptance": 0.5}


def test_a_first_draft_reads_the_cache_once() -> None:
    """Its queries, one for each verified token, share what is cached: it takes hardly longer than
    one of the two further drafts, which have one query; read once for each query, several times.
    """
    work = {"batch": 2, "input_len": 60_000, "output_len": 9}
    drafted = predicted(SMALL, workload=work)
    (decode,) = (part for part in drafted.why["parts"] if part["name"] == "decode")
    taken = {part["name"]: part["exposed_ms"] for part in decode["parts"]}
    assert taken["first_draft"] < 1.3 * taken["further_drafts"] / 2


def test_energy_counts_the_drafts_as_often_as_they_run() -> None:
    work = {"batch": 2, "input_len": 512, "output_len": 129}
    tree = {"task": "inference", "device": "H100", "model": "Llama-3.1-8B", "engine": "vllm"}
    deployment, _ = deployment_of(decode({**tree, "workload": work}))
    drafting, _ = drafting_of(decode({**tree, "workload": work, "speculative": SMALL}), deployment)
    assert drafting is not None
    batch = predict_drafted_batch(deployment, drafting, [512, 512], 129)
    counts = [float(counts.sum()) for _, counts in batch.whole.beside]
    assert counts == pytest.approx([1.0, batch.decode_steps, 2 * batch.decode_steps])
    assert float(batch.whole.weights.sum()) == pytest.approx(batch.decode_steps)
    drafter = _on_device(drafting.drafter)
    assert drafter is not None
    host = drafter.engine.host
    assert (host.step_us, host.request_us, host.token_us) == (0.0, 0.0, 0.0)


def test_the_step_that_is_told_is_the_middle_one() -> None:
    """4,000 tokens after a prompt of 1,000: as the first step behind 3,000."""
    table = {"method": "ngram", "k": 3, "acceptance": 0.5}
    whole = predicted(table, workload={"batch": 64, "input_len": 1000, "output_len": 4001})
    one = predicted(table, workload={"batch": 64, "input_len": 3000, "output_len": 2})
    told, known = (each["decode_step_ms"].estimate for each in (whole, one))
    assert told == pytest.approx(known, rel=0.01)
