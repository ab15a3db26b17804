"""Laws of sparse attention: exact counts against brute force, graphs against closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.kernels.attention.sparse_work import seen
from silicast.workload.graphs.attention_pairs import visible
from silicast.workload.models.counting import (
    forward_flops,
    graph_flops,
    kv_bytes_per_token,
    kv_cache_bytes,
)
from silicast.workload.models.model import MLA, ModelConfig, MoE, Sparse
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import build_graph, step_symbols
from silicast.workload.transformers.plan import Plan
from tests.sampling import examples

FEW = examples(60)


def brute(new: int, total: int, ratio: int, cap: int) -> int:
    """Pairs counted one by one."""
    pairs = 0
    for position in range(total - new, total):
        entries = (position + 1) // ratio
        pairs += min(entries, cap) if cap else entries
    return pairs


@FEW
@given(st.integers(1, 60), st.integers(0, 90), st.integers(1, 9), st.integers(0, 12))
def test_pairs_are_those_counted_one_by_one(new: int, past: int, ratio: int, cap: int) -> None:
    expected = brute(new, past + new, ratio, cap)
    assert visible(new, past + new, ratio, cap) == expected
    assert seen(new, past + new, ratio, cap) == expected
    columns = [np.array([value], dtype=np.int64) for value in (new, past + new, ratio, cap)]
    assert int(seen(*columns)[0]) == expected


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    """Decoders with each kind of sparse attention in sizes that up to 4 ranks divide."""
    kind = draw(st.sampled_from(["dsa", "v4", "msa"]))
    layers = draw(st.integers(1, 5))
    heads = 4 * draw(st.integers(1, 4))
    common: dict[str, Any] = {
        "layers": layers, "hidden": draw(st.integers(8, 300)), "heads": heads,
        "intermediate": 16 * draw(st.integers(1, 20)), "vocab": draw(st.integers(8, 500)),
        "moe": draw(st.one_of(st.none(), st.just(MoE(16, 4, 32, 16)))),
    }  # fmt: skip
    index = {"index_heads": 4 * draw(st.integers(1, 3)), "index_dim": draw(st.integers(16, 64)),
             "selected": draw(st.integers(1, 40))}  # fmt: skip

    def mixers(*names: str) -> tuple[str, ...]:
        return tuple(draw(st.lists(st.sampled_from(names), min_size=layers, max_size=layers)))

    if kind == "dsa":
        mla = MLA(32, 16, 8, 24, 40)
        return ModelConfig("random", "random", kv_heads=heads, head_dim=24, mla=mla,
                           mixers=mixers("dsa", "dsa_shared", "latent"), sparse=Sparse(**index),
                           **common)  # fmt: skip
    if kind == "msa":
        sparse = Sparse(block=draw(st.integers(1, 9)), **index)
        return ModelConfig("random", "random", kv_heads=4, head_dim=16,
                           mixers=mixers("msa", "heads"), sparse=sparse, **common)  # fmt: skip
    sparse = Sparse(
        window=draw(st.integers(1, 20)), q_rank=24, out_groups=4, out_rank=16, rope_dim=8,
        csa_ratio=draw(st.integers(1, 5)), hca_ratio=draw(st.integers(6, 30)),
        streams=draw(st.sampled_from([0, 4])), **index,
    )  # fmt: skip
    return ModelConfig("random", "random", kv_heads=1, head_dim=32, sparse=sparse,
                       mixers=mixers("csa", "hca", "near"), **common)  # fmt: skip


pairs_of = st.tuples(st.integers(1, 90), st.integers(0, 90)).map(lambda p: (p[0], p[0] + p[1]))


@FEW
@given(
    models(), st.lists(pairs_of, max_size=3), st.lists(st.integers(0, 200), min_size=1, max_size=3)
)
def test_a_graph_has_the_flops_of_the_closed_form(
    model: ModelConfig, prefill: list[tuple[int, int]], decode: list[int]
) -> None:
    result = graph_flops(build_graph(model), step_symbols(prefill, decode))
    assert result == forward_flops(model, prefill, decode)


@FEW
@given(models(), st.integers(1, 400), st.integers(1, 400))
def test_a_cache_grows_with_its_tokens_and_no_faster_than_stated(
    model: ModelConfig, one: int, more: int
) -> None:
    precision, plan = Precision(), Plan()
    first = kv_cache_bytes(model, plan, precision, [one])
    second = kv_cache_bytes(model, plan, precision, [one + more])
    assert first <= second
    window = model.sparse.window if model.sparse else 0
    steps = kv_bytes_per_token(model, plan, precision)
    # whole entries come at once, and a window fills before it slides
    slack = model.layers * (2 * window * model.head_dim + 2 * model.head_dim + 200)
    assert second - first <= more * steps + slack


@pytest.mark.parametrize("tp", [2, 4])
@FEW
@given(models())
def test_ranks_share_heads_and_repeat_the_indexer(tp: int, model: ModelConfig) -> None:
    prefill, decode = [(40, 60)], [70]
    symbols = step_symbols(prefill, decode)
    whole = graph_flops(build_graph(model), symbols)
    rank = graph_flops(build_graph(model, Plan(tp=tp)), symbols)
    assert whole / tp <= rank * 1.0001
    assert rank < whole
