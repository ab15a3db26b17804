"""Laws of traffic: what is drawn, what waits for what, and what prompts share."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.scenario.decode import decode
from silicast.scenario.resolving.traffic import traffic_of
from silicast.serving.traffic.requests import Content, Requests
from silicast.serving.traffic.trace_files import read_trace
from silicast.serving.traffic.trace_rows import BLOCK_TOKENS
from silicast.serving.traffic.traffic import Prefixes, Turns, arrivals
from tests.sampling import examples

LENGTHS = st.one_of(
    st.integers(1, 5000),
    st.builds(
        lambda low, more: {"kind": "uniform", "min": low, "max": low + more},
        st.integers(1, 900), st.integers(0, 900),
    ),
    st.sampled_from([
        {"kind": "normal", "mean": 300.0, "std": 200.0, "max": 500},
        {"kind": "lognormal", "median": 100.0, "sigma": 2.0, "max": 4000},
        {"kind": "gamma", "mean": 50.0, "std": 90.0},
        {"kind": "exponential", "mean": 2.0, "min": 2},
        {"kind": "zipf", "min": 5, "max": 400, "exponent": 1.2},
        {"kind": "values", "values": [3, 1, 4, 1, 5]},
    ]),
)  # fmt: skip
ARRIVALS = st.one_of(
    st.builds(lambda c: {"kind": "closed", "concurrency": c}, st.integers(1, 20)),
    st.builds(
        lambda rate, burst: {"kind": "poisson", "rate_per_s": rate, "burst": burst},
        st.floats(0.01, 1e6), st.integers(1, 9),
    ),
    st.builds(
        lambda rate, cv: {"kind": "gamma", "rate_per_s": rate, "cv": cv, "concurrency": 7},
        st.floats(0.01, 1e6), st.floats(0.01, 20.0),
    ),
)  # fmt: skip


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, Any]:
    """Traffic with or without conversations and prefixes."""
    table: dict[str, Any] = {
        "arrival": draw(ARRIVALS), "requests": draw(st.integers(1, 90)),
        "input_len": draw(LENGTHS), "output_len": draw(LENGTHS),
    }  # fmt: skip
    if all(isinstance(table[name], int) for name in ("input_len", "output_len")):
        table["range_ratio"] = draw(st.floats(0.0, 1.0))
    prefix: list[dict[str, Any] | None] = [
        None,
        {"length": 1, "groups": 3},
        {"length": 1, "cache": False},
    ]
    if draw(st.booleans()):
        turns = draw(st.integers(1, 6))
        table["sessions"] = {"turns": turns} | ({"think_time_s": 0.5} if turns > 1 else {})
    else:
        prefix.append({"hit_ratio": draw(st.floats(0.0, 1.0))})
    table["prefix"] = draw(st.sampled_from(prefix))
    return {name: value for name, value in table.items() if value is not None}


def requests_of(workload: dict[str, Any], seed: int = 0) -> Requests:
    tree = {"task": "serving", "device": "H100", "model": "Llama-3.1-8B", "workload": workload}
    scenario: Any = decode(tree)
    return traffic_of(scenario.workload, seed).requests


def shared(content: Content | None, one: int, other: int) -> int:
    """Tokens that two prompts begin alike with."""
    total = 0
    pairs = zip(content.prompt(one), content.prompt(other), strict=False) if content else ()
    for a, b in pairs:
        total += min(a[1], b[1]) if a[0] == b[0] else 0
        if a != b:
            break
    return total


@given(workloads(), st.integers(0, 1 << 62))
@examples(150)
def test_the_same_seed_gives_the_same_bytes(workload: dict[str, Any], seed: int) -> None:
    first, second = requests_of(workload, seed), requests_of(workload, seed)
    for name in ("arrival_ns", "input_tokens", "output_tokens", "after", "pause_ns"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert len(first) == workload["requests"]
    assert (np.diff(first.arrival_ns) >= 0).all()


@given(workloads(), st.integers(1, 90))
@examples(150)
def test_more_requests_begin_with_the_same_ones(workload: dict[str, Any], more: int) -> None:
    if workload["arrival"]["kind"] in ("poisson", "gamma"):  # else all of them fill the same time
        workload = {**workload, "arrival": {**workload["arrival"], "exact_rate": False}}
    few = requests_of(workload)
    many = requests_of({**workload, "requests": workload["requests"] + more})
    for name in ("arrival_ns", "input_tokens", "output_tokens", "after", "pause_ns"):
        assert (getattr(many, name)[: len(few)] == getattr(few, name)).all()


@given(workloads())
@examples(150)
def test_a_prompt_holds_what_was_said_before_it(workload: dict[str, Any]) -> None:
    """Turn k + 1 is the prompt of turn k, its answer, and at least one token more."""
    requests = requests_of(workload)
    turns = workload.get("sessions", {}).get("turns", 1)
    cached = workload.get("prefix", {}).get("cache", True)
    content = requests.content
    for i in range(len(requests)):
        if i % turns == 0:
            continue
        assert requests.after[i] == i - 1
        history = requests.input_tokens[i - 1] + requests.output_tokens[i - 1]
        assert requests.input_tokens[i] > history
        if cached:
            assert content is not None
            assert shared(content, i - 1, i) == requests.input_tokens[i - 1]
            chain = content.prompt(i)
            named = sum(tokens for _, tokens in chain)
            assert history <= named <= requests.input_tokens[i]
            answers = [at for at, (name, _) in enumerate(chain) if name == content.outputs[i - 1]]
            assert len(answers) == 1
            before = sum(tokens for _, tokens in chain[: answers[0]])
            assert before == requests.input_tokens[i - 1]
            assert chain[answers[0]][1] == requests.output_tokens[i - 1]
    if not cached:
        assert content is None


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=40),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 60),
)
@examples(150)
def test_prompts_share_what_tokens_say(
    sizes: list[tuple[int, int]], turns: int, groups: int, length: int
) -> None:
    """The chains of segments against prompts written out token by token."""
    new, remark = (np.array(each, dtype=np.int64) for each in zip(*sizes, strict=True))
    prefixes = Prefixes.of_length(new, length, groups, seed=4)
    content = Turns(turns).content(new, remark, prefixes)
    written: list[list[tuple[str, int, int]]] = []
    for i, (current, _) in enumerate(sizes):
        history: list[tuple[str, int, int]] = []
        if i % turns:
            history = [*written[i - 1], *(("said", i - 1, at) for at in range(sizes[i - 1][1]))]
            common = 0
        else:
            common = int(prefixes.tokens[i])
        group = int(prefixes.group[i])
        written.append([
            *history, *(("prefix", group, at) for at in range(common)),
            *(("own", i, at) for at in range(current - common)),
        ])  # fmt: skip
    assert Turns(turns).prompts(new, remark).tolist() == [len(each) for each in written]
    for one in range(len(written)):
        for other in range(one):
            alike = 0
            for a, b in zip(written[one], written[other], strict=False):
                if a != b:
                    break
                alike += 1
            assert shared(content, one, other) == alike


@given(st.floats(0.1, 1e4), st.floats(0.1, 4.0), st.integers(0, 999), st.floats(1.1, 50.0))
@examples(40)
def test_rates_scale_times_and_keep_the_pattern(
    rate: float, cv: float, seed: int, factor: float
) -> None:
    times = arrivals(4000, rate, seed, cv=cv)
    mean = times[-1] / 1e9 / 4000
    assert mean == pytest.approx(1 / rate, rel=6 * cv / 4000**0.5)
    faster = arrivals(4000, rate * factor, seed, cv=cv)
    assert np.abs(faster * factor - times).max() <= factor + 1 + times[-1] * 1e-12


@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 2)), min_size=1, max_size=20),
    st.integers(0, 3),
)
@examples(60)
def test_blocks_of_a_trace_are_what_its_prompts_share(
    prompts: list[tuple[int, int]], apart: int
) -> None:
    """Prompts of a family have the same blocks from the first on, up to the shorter one."""
    rows = []
    for at, (tokens, family) in enumerate(prompts):
        blocks = -(-tokens // BLOCK_TOKENS)
        current = [1000 * at + 500 + i for i in range(blocks)]
        ids = [
            *range(100 * family, 100 * family + min(apart, blocks)),
            *current[min(apart, blocks) :],
        ]
        rows.append({"timestamp": at, "input_length": tokens, "output_length": 1, "hash_ids": ids})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        requests = read_trace(path).requests
    assert requests.content is not None
    for i, (tokens, family) in enumerate(prompts):
        assert sum(size for _, size in requests.content.prompt(i)) == tokens
        for j, (other, kin) in enumerate(prompts[:i]):
            most = min(apart * BLOCK_TOKENS, tokens, other) if family == kin else 0
            assert shared(requests.content, i, j) == most
