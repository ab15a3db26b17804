"""Exact counts: parameters, bytes of weights and cache, FLOPs, and what activations need.

Everything is an integer. Where a count is per device it is that of the fullest pipeline stage;
all ranks of a stage are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from silicast.core.dtypes import BITS
from silicast.workload.graph import Graph, stage_bounds
from silicast.workload.model import ModelConfig
from silicast.workload.op import Dim, Op
from silicast.workload.plan import Plan
from silicast.workload.precision import Precision
from silicast.workload.shard import shard_of
from silicast.workload.weights import (
    Weight,
    input_weights,
    layer_weights,
    mtp_weights,
    output_weights,
)


def parameters(model: ModelConfig, *, mtp: bool = True) -> int:
    """Parameters of the whole model; a tied head counts once.

    Args:
        mtp: include layers for multi-token prediction, as published counts do.

    >>> from silicast.workload.models import find_model
    >>> parameters(find_model("Llama-3.1-8B"))
    8030261248
    """
    total = _parameters(input_weights(model)) + _parameters(output_weights(model))
    total += model.layers * _parameters(layer_weights(model))
    return total + (model.mtp_layers * _parameters(mtp_weights(model)) if mtp else 0)


def rank_parameters(model: ModelConfig, plan: Plan, stage: int = 0) -> int:
    """Parameters that one rank of a pipeline stage holds, padding and copies included."""
    shard = shard_of(model, plan)
    total = 0
    for weight, count in _stage_weights(model, plan, stage):
        outputs, inputs = weight.local(model, shard)
        total += count * weight.count * outputs * inputs
    return total


def weight_bytes(
    model: ModelConfig, plan: Plan, precision: Precision, stage: int | None = None
) -> int:
    """Bytes of weights on one rank, scales included; of the fullest stage if none is given."""
    shard = shard_of(model, plan)
    stages = range(plan.pp) if stage is None else (stage,)
    return max(
        sum(
            count * weight.local_bytes(model, shard, precision)
            for weight, count in _stage_weights(model, plan, number)
        )
        for number in stages
    )


def kv_bytes_per_token(
    model: ModelConfig, plan: Plan, precision: Precision, stage: int | None = None
) -> int:
    """Bytes of keys and values per cached token on one rank, over the layers of its stage (the
    longest if none is given), where every layer keeps every token.

    >>> from silicast.workload.models import find_model
    >>> kv_bytes_per_token(find_model("Llama-3.1-8B"), Plan(), Precision())    # 2 x 32 x 1024 x 2
    131072
    """
    bounds = _bounds(model, plan)
    layers = max(last - first for first, last in bounds) if stage is None else _size(bounds[stage])
    return layers * _layer_kv_bytes(model, plan, precision)


def kv_cache_bytes(
    model: ModelConfig,
    plan: Plan,
    precision: Precision,
    lengths: Iterable[int],
    stage: int | None = None,
) -> int:
    """Bytes of the cache of sequences of ``lengths`` tokens on one rank; layers with a window keep
    only what it sees. Of the fullest stage if none is given.
    """
    bounds = _bounds(model, plan)
    stages = bounds if stage is None else (bounds[stage],)
    found = list(lengths)
    held = {
        window: sum(min(length, window) if window else length for length in found)
        for window in set(model.windows or (0,))
    }
    tokens = max(
        sum(held[model.window(layer)] for layer in range(first, last)) for first, last in stages
    )
    return tokens * _layer_kv_bytes(model, plan, precision)


def activation_bytes(
    model: ModelConfig, plan: Plan, precision: Precision, tokens: int, logit_rows: int = 0
) -> int:
    """Bytes of the tensors that live at once at the worst point of a step on one rank.

    The worst point of a layer is one of: the fused QKV product, attention, the up projection, the
    activation, the down projection; each beside the residual. Logits come on top of nothing but
    the hidden states: two bytes as computed, gathered over the ranks, and four as sampled.
    """
    shard = shard_of(model, plan)
    hidden, element = model.hidden, precision.hidden_bytes
    q = shard.heads * model.head_dim
    qkv = q + 2 * shard.kv_heads * model.head_dim
    inner = shard.intermediate
    up = inner * (2 if model.gated else 1)
    parallel = 0 if model.residual == "sequential" else hidden
    layer = parallel + max(
        2 * hidden + qkv, hidden + qkv + q, 2 * hidden + q, 2 * hidden + up, hidden + up + inner
    )
    in_layers = tokens * layer * element
    logits = logit_rows * (shard.vocab * element + shard.padded_vocab * (element + 4))
    return max(in_layers, tokens * hidden * element + logits)


def linear_flops_per_token(model: ModelConfig) -> int:
    """FLOPs of all linear layers of all decoder layers for one token, the head left out."""
    weights = sum(w.parameters for w in layer_weights(model) if w.kind == "linear")
    return 2 * weights * model.layers


def head_flops_per_row(model: ModelConfig) -> int:
    """FLOPs of the head for one row of logits."""
    return 2 * model.hidden * model.vocab


def attention_pairs(new: int, total: int, window: int = 0) -> int:
    """Query-key pairs of ``new`` tokens at the end of ``total``, causal, each query seeing its
    last ``window`` keys (0 = all).

    >>> attention_pairs(4, 4), attention_pairs(1, 9), attention_pairs(4, 6, 5)
    (10, 9, 17)
    """
    past = total - new
    reach = window or total
    growing = min(max(reach - past, 0), new)
    return growing * past + growing * (growing + 1) // 2 + (new - growing) * min(reach, total)


def attention_flops(
    model: ModelConfig, prefill: Sequence[tuple[int, int]] = (), decode: Sequence[int] = ()
) -> int:
    """FLOPs of attention over all layers: 4 x head_dim for every live pair of every head.

    Args:
        prefill: (new tokens, past plus new tokens) of each sequence in prefill.
        decode: cached tokens, without the new one, of each decoding sequence.
    """
    total = 0
    windows = model.windows or (0,) * model.layers
    for window in set(windows):
        pairs = sum(attention_pairs(new, kv, window) for new, kv in prefill)
        pairs += sum(attention_pairs(1, cached + 1, window) for cached in decode)
        total += windows.count(window) * pairs
    return 4 * model.q_width * total


def forward_flops(
    model: ModelConfig, prefill: Sequence[tuple[int, int]] = (), decode: Sequence[int] = ()
) -> int:
    """FLOPs of matrix products of one step, in closed form; one row of logits a sequence."""
    tokens = sum(new for new, _ in prefill) + len(decode)
    rows = len(prefill) + len(decode)
    linear = tokens * linear_flops_per_token(model) + rows * head_flops_per_row(model)
    return linear + attention_flops(model, prefill, decode)


def op_flops(op: Op) -> int:
    """FLOPs of one concrete op: matrix products and attention, 0 for every other family (they are
    no work in the usual count of a model's FLOPs).

    Raises:
        KeyError: a dimension is missing; ValueError: a dimension is still symbolic.
    """
    if op.family == "gemm":
        m, n, k = (_number(op.dim(name)) for name in ("m", "n", "k"))
        return 2 * m * n * k
    if op.family not in ("attention_prefill", "attention_decode"):
        return 0
    window = _number(op.dim("window"))
    totals = _lengths(op.dim("kv_len"))
    if op.family == "attention_prefill":
        queries = _lengths(op.dim("q_len"))
    else:
        queries, totals = (1,) * len(totals), tuple(kv + 1 for kv in totals)
    pairs = sum(attention_pairs(q, kv, window) for q, kv in zip(queries, totals, strict=True))
    return 4 * _number(op.dim("num_heads")) * _number(op.dim("head_dim")) * pairs


def graph_flops(graph: Graph, symbols: Mapping[str, Dim]) -> int:
    """FLOPs of one pass of a graph on one rank, every block as often as it runs."""
    return sum(block.count * op_flops(node.op.bind(symbols)) for block, node in graph.nodes())


def _parameters(weights: Iterable[Weight]) -> int:
    return sum(weight.parameters for weight in weights)


def _bounds(model: ModelConfig, plan: Plan) -> tuple[tuple[int, int], ...]:
    return stage_bounds(model.layers, plan.pp)


def _size(bounds: tuple[int, int]) -> int:
    return bounds[1] - bounds[0]


def _stage_weights(model: ModelConfig, plan: Plan, stage: int) -> list[tuple[Weight, int]]:
    """Weights of one stage and how often they occur; a tied head is a copy on the last stage."""
    found = [(weight, _size(_bounds(model, plan)[stage])) for weight in layer_weights(model)]
    if stage == 0:
        found += [(weight, 1) for weight in input_weights(model)]
    if stage == plan.pp - 1:
        found += [(weight, 1) for weight in output_weights(model)]
        if model.tied and plan.pp > 1:
            found.append((input_weights(model)[0], 1))
    return found


def _layer_kv_bytes(model: ModelConfig, plan: Plan, precision: Precision) -> int:
    elements = 2 * shard_of(model, plan).kv_heads * model.head_dim
    return -(-elements * int(BITS[precision.kv_cache]) // 8)


def _number(dim: Dim) -> int:
    if not isinstance(dim, int):
        raise ValueError(f"expected a number, found {dim!r}")
    return dim


def _lengths(dim: Dim) -> tuple[int, ...]:
    if isinstance(dim, int):
        return (dim,)
    if isinstance(dim, tuple):
        return dim
    raise ValueError(f"expected lengths, found {dim!r}")
