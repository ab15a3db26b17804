"""The largest batch is the largest: one more does not fit."""

from __future__ import annotations

import pytest

from silicast.composition.memory.memory import static_batch_memory
from silicast.composition.memory.memory_advice import largest_batch
from silicast.composition.passes.static_batch import batch_memory
from silicast.core.errors import SilicastError
from silicast.scenario.answers.inference.answerer import batch_deployment, batch_room
from silicast.scenario.decode import decode
from silicast.scenario.reading.limits import MAX_STATIC_BATCH
from silicast.serving.capacity.room import room_of

CASES: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("Llama-3.1-8B", "h100", {}), ("Llama-3.1-70B", "h100", {"tp": 4}),
    ("DeepSeek-V3", "h200", {"tp": 8}), ("Qwen3-30B-A3B", "a100", {"tp": 2}),
    ("DeepSeek-V3", "h200", {"attention_dp": 8, "ep": 8}), ("flan-t5-xl", "a100", {}),
    ("Nemotron-3-Nano-30B-A3B", "h100", {}),
)  # fmt: skip


@pytest.mark.parametrize(("model", "device", "parallel"), CASES)
@pytest.mark.parametrize("lengths", [(1024, 128), (37, 2000)])
def test_one_more_does_not_fit(
    model: str, device: str, parallel: dict[str, int], lengths: tuple[int, int]
) -> None:
    prompt, output = lengths
    work = {"batch": 1, "input_len": prompt, "output_len": output}
    tree = {"task": "inference", "model": model, "device": device, "workload": work}
    deployment, _, _ = batch_deployment(decode({**tree, "parallel": parallel}))
    most = largest_batch(deployment, prompt, output)
    assert most > 0
    assert static_batch_memory(deployment, [prompt] * most, output).excess == 0
    groups = deployment.plan.attention_dp
    assert static_batch_memory(deployment, [prompt] * (most + groups), output).excess > 0


def test_where_the_weights_do_not_fit_there_is_no_room() -> None:
    work = {"batch": 1, "input_len": 8, "output_len": 8}
    tree = {"task": "inference", "model": "Llama-3.1-70B", "device": "h100", "workload": work}
    deployment, _, _ = batch_deployment(decode(tree))
    assert largest_batch(deployment, 8, 8) == 0
    with pytest.raises(SilicastError, match="does not start"):
        room_of(deployment, 8, 8)


@pytest.mark.parametrize(
    ("model", "engine", "output"),
    [
        ("Llama-3.1-8B", "torch-eager", 128),
        ("BERT-Large", "torch-compile", 1),
        ("BERT-Large", "", 1),
    ],
)
def test_frameworks_and_encoders_say_their_room_too(model: str, engine: str, output: int) -> None:
    tree = {
        "task": "inference", "model": model, "device": "h100",
        "workload": {"batch": 8, "input_len": 300, "output_len": output},
        **({"engine": {"name": engine}} if engine else {}),
    }  # fmt: skip
    deployment, framework, _ = batch_deployment(decode(tree))
    room = batch_room(deployment, [300] * 8, output, framework)
    most, longest = room["batch"], room["context_tokens"]
    assert "concurrency" not in room

    def excess(count: int, tokens: int) -> int:
        return batch_memory(deployment, [tokens] * count, output, framework).excess

    assert excess(most, 300) == 0
    assert most == MAX_STATIC_BATCH or excess(most + 1, 300) > 0
    assert longest <= deployment.model.max_positions
    assert excess(1, longest - output + 1) == 0
    if longest < deployment.model.max_positions:
        assert excess(1, longest - output + 2) > 0
