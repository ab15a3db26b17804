"""Exact counts: parameters, bytes of weights and cache, FLOPs, and what activations need.

Everything is an integer. Where a count is per device it is that of the fullest pipeline stage;
all ranks of a stage are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache

from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.nodes import Nodes
from silicast.workload.graphs.op import Dim, Op
from silicast.workload.mixers._mixer import mixer_named, mixers
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.model_weights import (
    drafting_kind,
    input_weights,
    layer_weights,
    mtp_weights,
    output_weights,
    weights_of_layers,
)
from silicast.workload.models.precision import Precision
from silicast.workload.models.weight_tensor import PRODUCTS, Weight
from silicast.workload.transformers.plan import ParallelPolicy, Plan, shard_of

ATTENTION = frozenset(("attention_prefill", "attention_decode", "mla_prefill", "mla_decode"))
"""Families whose work is query-key pairs."""


def parameters(model: ModelConfig, *, mtp: bool = True) -> int:
    """Parameters of the whole model; a tied head counts once.

    Args:
        mtp: include layers for multi-token prediction, as published counts do; else those alone
            that train.

    >>> from silicast.workload.models.lookup import find_model
    >>> parameters(find_model("Llama-3.1-8B"))
    8030261248
    """
    outside = (*input_weights(model), *output_weights(model))
    total = sum(weight.parameters for weight in outside)
    total += sum(count * weight.parameters for weight, count in weights_of_layers(model))
    predicting = model.mtp_layers if mtp else model.predicting_layers
    if predicting:
        total += predicting * sum(weight.parameters for weight in mtp_weights(model))
    return total


def active_parameters(model: ModelConfig, *, embedding: bool = True) -> int:
    """Parameters that one token passes: of the experts, those that its router picks; no encoder.

    Args:
        embedding: count the tables of embeddings too, of which a token reads one row.

    >>> from silicast.workload.models.lookup import find_model
    >>> active_parameters(find_model("Mixtral-8x7B"))
    12879925248
    """
    outside = (*input_weights(model), *output_weights(model))
    total = sum(count * weight.active for weight, count in weights_of_layers(model))
    total += sum(weight.active for weight in outside) - model.encoder_parameters
    if embedding:
        return total
    tables = 0 if model.tied else model.embedding_width or model.hidden
    return total - model.vocab * (tables + model.layers * model.layer_input)


def rank_parameters(
    model: ModelConfig, plan: Plan, stage: int = 0, policy: ParallelPolicy = ParallelPolicy()
) -> int:
    """Parameters that one rank of a pipeline stage holds, padding and copies included."""
    shard = shard_of(model, plan, policy)
    total = 0
    for weight, count in _stage_weights(model, plan, stage, policy):
        outputs, inputs = weight.local(shard)
        total += count * weight.local_count(shard) * outputs * inputs
    return total


@lru_cache(maxsize=256)
def weight_bytes(
    model: ModelConfig,
    plan: Plan,
    precision: Precision,
    stage: int | None = None,
    policy: ParallelPolicy = ParallelPolicy(),
) -> int:
    """Bytes of weights on one rank, scales included; of the fullest stage if none is given."""
    shard = shard_of(model, plan, policy)
    stages = range(plan.pp) if stage is None else (stage,)
    return max(
        sum(
            count * weight.local_bytes(shard, precision, policy.expert_multiples)
            for weight, count in _stage_weights(model, plan, number, policy)
        )
        - host_weight_bytes(model, plan, precision, number, policy)
        for number in stages
    )


def host_weight_bytes(
    model: ModelConfig, plan: Plan, precision: Precision, stage: int, policy: ParallelPolicy
) -> int:
    """Of the weights of a rank of a stage, the bytes that ``policy.host_bytes`` leaves to the host:
    tensors of its first layers, one after the other, until they are as many.
    """
    shard, held = shard_of(model, plan, policy), 0
    for layer in range(*policy.stages(model.layers, plan)[stage]):
        for weight in layer_weights(model, model.kind(layer)):
            if held >= policy.host_bytes:
                return held
            held += weight.local_bytes(shard, precision, policy.expert_multiples)
    return held


def kv_bytes_per_token(
    model: ModelConfig,
    plan: Plan,
    precision: Precision,
    stage: int | None = None,
    policy: ParallelPolicy = ParallelPolicy(),
) -> int:
    """Bytes of keys and values (or of their latent) per cached token on one rank, over the layers
    of its stage (the longest if none is given), where every layer keeps every token.

    >>> from silicast.workload.models.lookup import find_model
    >>> kv_bytes_per_token(find_model("Llama-3.1-8B"), Plan(), Precision())    # 2 x 32 x 1024 x 2
    131072
    """
    rank = Nodes(model, shard_of(model, plan, policy), precision)

    def grows(kind: LayerKind) -> int:
        return mixer_named(kind.mixer).token_bytes(rank, kind)

    return _over_stages(model, plan, stage, grows, policy)


def kv_cache_bytes(
    model: ModelConfig,
    plan: Plan,
    precision: Precision,
    lengths: Iterable[int],
    policy: ParallelPolicy = ParallelPolicy(),
) -> int:
    """Bytes of the cache of sequences of ``lengths`` tokens on one rank: layers with a window keep
    only what it sees, recurrent ones a state. Of the fullest stage.
    """
    rank, alike = Nodes(model, shard_of(model, plan, policy), precision), Counter(lengths)

    def kept(kind: LayerKind) -> int:
        mixer = mixer_named(kind.mixer)
        return sum(count * mixer.cache_bytes(rank, kind, length) for length, count in alike.items())

    return _over_stages(model, plan, None, kept, policy)


def state_bytes(
    model: ModelConfig, plan: Plan, precision: Precision, policy: ParallelPolicy = ParallelPolicy()
) -> int:
    """Bytes of the states that a sequence of any length keeps in its recurrent layers on one rank;
    0 = it has none.
    """
    rank = Nodes(model, shard_of(model, plan, policy), precision)

    def state(kind: LayerKind) -> int:
        return mixer_named(kind.mixer).state_bytes(rank, kind)

    return _over_stages(model, plan, None, state, policy)


def cross_cache_bytes(
    model: ModelConfig, plan: Plan, precision: Precision, lengths: Iterable[int]
) -> int:
    """Bytes of the keys and values of cross-attention for prompts of ``lengths`` tokens on one
    rank; 0 without an encoder.
    """
    if model.encoder is None:
        return 0
    rank, tokens = Nodes(model, shard_of(model, plan), precision), sum(lengths)
    return sum(
        count * tokens * mixer_named(kind.mixer).token_bytes(rank, kind)
        for kind, count in _mixing(model).items()
    )


def activation_bytes(
    model: ModelConfig,
    plan: Plan,
    precision: Precision,
    tokens: int,
    logit_rows: int = 0,
    policy: ParallelPolicy = ParallelPolicy(),
    *,
    logit_bytes: float = 0.0,
    unfused: bool = False,
) -> int:
    """Bytes of the tensors that live at once at the worst point of a step on one rank.

    The worst point of a layer is one of: the fused QKV product, attention, the up projection, the
    activation, the down projection, the same of the routed experts (a copy of a token for each
    that it passes); each beside the residual. Logits come on top of nothing but the hidden
    states: two bytes as computed, gathered over the ranks, and four as sampled.

    Args:
        logit_bytes: of a logit while it is sampled, all copies, in place of these.
        unfused: layers keep their normed input while they run.
    """
    shard, element = shard_of(model, plan, policy), precision.hidden_bytes
    live = _live_elements(model, plan, precision, policy) + (model.hidden if unfused else 0)
    in_layers = tokens * live * element
    logits = logit_rows * (shard.vocab * element + shard.padded_vocab * (element + 4))
    if logit_bytes:
        logits = round(logit_rows * shard.padded_vocab * logit_bytes)
    return max(in_layers, tokens * model.hidden * element + logits)


@lru_cache(maxsize=256)
def _live_elements(
    model: ModelConfig, plan: Plan, precision: Precision, policy: ParallelPolicy
) -> int:
    """Elements of one token that live at once at the worst point of a layer."""
    shard = shard_of(model, plan, policy)
    rank = Nodes(model, shard, precision)
    hidden = model.hidden
    ups = 2 if model.gated else 1
    points: list[int] = []
    for kind in model.kinds:
        if kind.mixer:
            points += mixer_named(kind.mixer).live_elements(rank, kind)
        if kind.feed == "mlp":
            inner = kind.intermediate // shard.dense_tp
            # gathered tokens of all groups, where they share the layer
            rows = shard.groups if shard.dense_tp > shard.tp else 1
            points += [
                hidden + rows * (hidden + ups * inner),
                hidden + rows * (ups * inner + inner),
            ]
    if model.moe is not None:
        width, shared = model.moe.intermediate // shard.expert_tp, shard.shared_intermediate
        routed = max(ups * width, model.moe.latent or hidden) + width
        # dispatched tokens are as many as the group's own choices, gathered ones all groups'
        groups = 1 if policy.dispatches(plan) else shard.groups
        gathered = groups * (hidden + model.moe.topk * routed)
        points += [hidden + gathered, 2 * hidden + ups * shared + shared]
    beside = 0 if model.residual == "sequential" else hidden
    return max(points) + beside + model.layers * model.layer_input


def linear_flops_per_token(model: ModelConfig) -> int:
    """FLOPs of all linear layers of all decoder layers for one token, the head left out; of the
    routed experts, those that a token passes.
    """
    return 2 * sum(
        count * weight.active
        for weight, count in weights_of_layers(model)
        if weight.kind in PRODUCTS and weight.name != "cross_kv"
    )


def head_flops_per_row(model: ModelConfig) -> int:
    """FLOPs of the head for one row of logits."""
    if model.pooler:
        return 2 * model.hidden * model.hidden
    width = model.embedding_width
    return 2 * (model.hidden * width + width * model.vocab if width else model.hidden * model.vocab)


def attention_flops(
    model: ModelConfig, prefill: Sequence[tuple[int, int]] = (), decode: Sequence[int] = ()
) -> int:
    """FLOPs of all token mixers beyond their weights' products with the new tokens: for every live
    query-key pair of every head 4 x head_dim, and what else each mixer states.

    Args:
        prefill: (new tokens, past plus new tokens) of each sequence in prefill.
        decode: cached tokens, without the new one, of each decoding sequence.
    """
    from silicast.workload.graphs.attention_pairs import StepSequences

    step = StepSequences(prefill, decode)
    return sum(
        count * mixer_named(kind.mixer).flops(model, kind, step)
        for kind, count in _mixing(model).items()
    )


def forward_flops(
    model: ModelConfig,
    prefill: Sequence[tuple[int, int]] = (),
    decode: Sequence[int] = (),
    cross: Sequence[int] = (),
) -> int:
    """FLOPs of matrix products of one step, in closed form; one row of logits a sequence.

    Args:
        cross: behind an encoder, which then works on all of ``prefill``, tokens of the prompt of
            each decoding sequence.
    """
    if model.encoder is not None:
        return _encoded_flops(model, model.encoder, prefill, decode, cross)
    tokens = sum(new for new, _ in prefill) + len(decode)
    rows = len(prefill) + len(decode)
    linear = tokens * linear_flops_per_token(model) + rows * head_flops_per_row(model)
    before = model.embedding_width + model.layers * model.layer_input
    linear += tokens * 2 * before * model.hidden
    return linear + attention_flops(model, prefill, decode)


def predicting_flops(model: ModelConfig, prefill: Sequence[tuple[int, int]]) -> int:
    """FLOPs of the layers, projections and heads that predict further tokens, one row of logits a
    token.
    """
    if not model.predicts:
        return 0
    from silicast.workload.graphs.attention_pairs import StepSequences

    kind, tokens = drafting_kind(model), sum(new for new, _ in prefill)
    linear = sum(weight.active for weight in mtp_weights(model) if weight.kind in PRODUCTS)
    mixing = 0
    if kind.mixer:
        mixing = mixer_named(kind.mixer).flops(model, kind, StepSequences(prefill, ()))
    flops = tokens * (2 * linear + head_flops_per_row(model)) + mixing
    return model.predicts * flops


def _encoded_flops(
    model: ModelConfig,
    encoder: ModelConfig,
    prefill: Sequence[tuple[int, int]],
    decode: Sequence[int],
    cross: Sequence[int],
) -> int:
    """Of an encoder on the prompts, and of one step of the decoder behind it."""
    from silicast.workload.transformers.encoder_nodes import cross_flops, frontend_flops

    prompts = sum(new for new, _ in prefill)
    front = frontend_flops(encoder) if encoder.mel_bins else 0
    encoded = prompts * (linear_flops_per_token(encoder) + front) + attention_flops(
        encoder, prefill
    )
    flops_per_token = linear_flops_per_token(model) + head_flops_per_row(model)
    seen = sum(cross)
    crossed = sum(
        count * cross_flops(model, kind, prompts, seen) for kind, count in _mixing(model).items()
    )
    return encoded + len(decode) * flops_per_token + attention_flops(model, (), decode) + crossed


def op_flops(op: Op) -> int:
    """FLOPs of one concrete op: matrix products, experts and attention, 0 for every other family
    (they are no work in the usual count of a model's FLOPs). Experts count as an even router
    spreads them over the ranks.

    Raises:
        KeyError: a dimension is missing; ValueError: a dimension is still symbolic.
    """
    dims = dict(op.dims)
    if op.family == "gemm":
        m, n, k, batch = (_number(dims.get(name, 1)) for name in ("m", "n", "k", "batch"))
        return 2 * m * n * k * batch
    if op.family == "moe":
        tokens, topk, hidden, width, ep, tp = (
            _number(op.dim(n)) for n in ("tokens", "topk", "hidden", "intermediate", "ep", "tp")
        )
        products = 3 if op.variant.flag("gated", default=True) else 2
        return -(-2 * products * tokens * topk * hidden * width // (ep * tp))
    if op.family not in ATTENTION:
        counted = _counted().get(op.family)
        return counted(op) if counted else 0
    from silicast.workload.graphs.attention_pairs import attention_pairs, sequence_lengths

    totals = sequence_lengths(op.dim("kv_len"))
    if op.family.endswith("prefill"):
        queries = sequence_lengths(op.dim("q_len"))
    else:
        queries, totals = (1,) * len(totals), tuple(kv + 1 for kv in totals)
    window = _number(dims.get("window", 0))
    chunk, reach = (window, 0) if op.variant.flag("chunked") else (0, window)
    pairs = sum(attention_pairs(q, kv, reach, chunk) for q, kv in zip(queries, totals, strict=True))
    if not op.variant.flag("causal", default=True):
        pairs = sum(q * kv for q, kv in zip(queries, totals, strict=True))
    return _head_flops(op) * _number(op.dim("num_heads")) * pairs


def _head_flops(op: Op) -> int:
    """FLOPs of one query-key pair of one head."""
    if op.family.startswith("attention"):
        return 4 * _number(op.dim("head_dim"))
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    latent, nope, rope, value = (_number(op.dim(name)) for name in names)
    return 2 * (nope + rope + value) if op.family == "mla_prefill" else 2 * (2 * latent + rope)


@cache
def _counted() -> Mapping[str, Callable[[Op], int]]:
    """Families of ops that mixers brought along -> their FLOPs."""
    return {name: count for mixer in mixers().values() for name, count in mixer.counted().items()}


def graph_flops(graph: Graph, symbols: Mapping[str, Dim]) -> int:
    """FLOPs of one pass of a graph on one rank, every block as often as it runs."""
    return sum(block.count * op_flops(node.op.bind(symbols)) for block, node in graph.nodes())


@lru_cache(maxsize=1024)
def _mixing(model: ModelConfig, layers: range | None = None) -> Mapping[LayerKind, int]:
    """Kinds of layers that mix tokens, and how many of ``layers`` are of each."""
    return {kind: count for kind, count in model.kind_counts(layers).items() if kind.mixer}


def _over_stages(
    model: ModelConfig,
    plan: Plan,
    stage: int | None,
    of: Callable[[LayerKind], int],
    policy: ParallelPolicy,
) -> int:
    """``of`` of every layer of a stage that mixes tokens; the largest stage's if none is given."""
    bounds = policy.stages(model.layers, plan)
    stages = bounds if stage is None else (bounds[stage],)
    flops_by_kind = {kind: of(kind) for kind in _mixing(model)}
    return max(
        sum(
            count * flops_by_kind[kind]
            for kind, count in _mixing(model, policy.on_device(*ends)).items()
        )
        for ends in stages
    )


def _stage_weights(
    model: ModelConfig, plan: Plan, stage: int, policy: ParallelPolicy
) -> list[tuple[Weight, int]]:
    """Weights of one stage and how often they occur; a tied head is a copy on the last stage."""
    layers = policy.on_device(*policy.stages(model.layers, plan)[stage])
    stage_weights = list(weights_of_layers(model, layers))
    if policy.host_expert_layers > layers.start:
        apart = range(layers.start, min(policy.host_expert_layers, layers.stop))
        stage_weights += [
            (weight, -count)
            for weight, count in weights_of_layers(model, apart)
            if weight.kind == "expert"
        ]
    if stage == 0:
        held = policy.host_table and not model.tied
        stage_weights += [(weight, 1) for weight in input_weights(model)[held:]]
    if stage == plan.pp - 1:
        stage_weights += [(weight, 1) for weight in output_weights(model)]
        if model.tied and plan.pp > 1:
            stage_weights.append((input_weights(model)[0], 1))
        if model.predicts:
            stage_weights += [(weight, model.predicting_layers) for weight in mtp_weights(model)]
    return stage_weights


def _number(dim: Dim) -> int:
    if not isinstance(dim, int):
        raise ValueError(f"expected a number, found {dim!r}")
    return dim
