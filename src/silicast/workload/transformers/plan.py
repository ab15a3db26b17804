"""How a model is spread over devices: the degrees of each kind of parallelism, and sizes of the
model on one tensor-parallel rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, final

from silicast.core.errors import SilicastError
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.model_parts import require

ExtraLayers = Literal["before_last", "first"]
"""Which pipeline stages hold one layer more where stages do not divide the layers."""


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """Parallel degrees that a user states (all >= 1).

    tp tensor, pp pipeline, dp data, ep expert, cp context, attention_dp data-parallel attention.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1
    attention_dp: int = 1

    @property
    def gpus(self) -> int:
        """Devices of one inference deployment: tp x pp x attention_dp."""
        return self.tp * self.pp * self.attention_dp


@final
@dataclass(frozen=True, slots=True)
class ParallelPolicy:
    """What an engine decides where a plan leaves it open.

    Attributes:
        gathers_dense: with attention_dp, dense layers are cut over all tp x attention_dp ranks,
            whose groups gather their tokens for them; else each group runs its own copy.
        cuts_encoder: tensor ranks share an encoder of images; else each holds it whole.
        extra_layers: the pipeline stages that hold one layer more where stages do not divide the
            layers.
        all_to_all: with attention_dp and whole experts on every rank (tp = 1, ep = attention_dp),
            tokens are dispatched to their experts' ranks and combined, instead of gathered and
            scattered by collectives.
        mixes_prefill: a step may hold sequences in prefill and in decode; else prefill goes first.
        captured: numbers of tokens for which graphs were captured, ascending; () = any.
        chunk_tokens: most new tokens of one step; 0 = no limit.
        expert_multiples: whole multiples to which the width of routed experts and the hidden size
            are padded in memory.
        host_layers: first layers whose weights and cache are in the host's memory.
        host_expert_layers: first layers whose routed experts are.
        host_table: so is a table of embeddings of its own.
        host_bytes: of the weights of each stage's first layers on one rank, how much is; the cache
            stays on the device.
    """

    gathers_dense: bool = False
    cuts_encoder: bool = False
    extra_layers: ExtraLayers = "before_last"
    all_to_all: bool = False
    mixes_prefill: bool = True
    captured: tuple[int, ...] = ()
    chunk_tokens: int = 0
    expert_multiples: tuple[int, int] = (1, 1)
    host_layers: int = 0
    host_expert_layers: int = 0
    host_table: bool = False
    host_bytes: int = 0

    @property
    def without_host(self) -> ParallelPolicy:
        """The same with everything on the device."""
        return replace(self, host_layers=0, host_expert_layers=0, host_table=False, host_bytes=0)

    def on_device(self, first: int, last: int) -> range:
        """Of layers first..last-1, those that are not in the host's memory."""
        return range(min(max(first, self.host_layers), last), last)

    def dispatches(self, plan: Plan) -> bool:
        """Whether each token goes to the ranks of its experts alone."""
        whole = plan.tp == 1 and plan.ep == plan.attention_dp
        return self.all_to_all and whole and plan.ep > 1

    def stages(self, layers: int, plan: Plan) -> tuple[tuple[int, int], ...]:
        """First and one-past-last of ``layers`` layers for each pipeline stage."""
        return stage_bounds(layers, plan.pp, self.extra_layers)


def stage_bounds(
    layers: int, stages: int, extra: ExtraLayers = "before_last"
) -> tuple[tuple[int, int], ...]:
    """First and one-past-last layer of each pipeline stage.

    Every stage gets layers // stages; what is left over goes one each to the stages before the
    last, from its neighbour backwards, because the last also holds the head (vLLM's default rule),
    or to the first stages (SGLang, TensorRT-LLM).

    >>> stage_bounds(10, 4), stage_bounds(10, 4, "first")
    (((0, 2), (2, 5), (5, 8), (8, 10)), ((0, 3), (3, 6), (6, 8), (8, 10)))

    Raises:
        ValueError: more stages than layers.
    """
    if not 1 <= stages <= layers:
        raise ValueError(f"{stages} stages of {layers} layers")
    sizes = [layers // stages] * stages
    for index in range(layers % stages):
        sizes[index if extra == "first" else -2 - index] += 1
    bounds: list[tuple[int, int]] = []
    first = 0
    for size in sizes:
        bounds.append((first, first + size))
        first += size
    return tuple(bounds)


@final
@dataclass(frozen=True, slots=True)
class Shard:
    """Sizes local to one of ``tp`` ranks; all ranks are alike.

    Attributes:
        shared_intermediate: width of the experts that all tokens pass.
        vocab: rows of the embedding and of the head; the table is padded to a multiple of tp.
        ep, expert_tp: ranks that share the routed experts, and that share the width of each; their
            product is the number of ranks of a stage.
        groups: groups of tp ranks that each attend to sequences of their own (attention_dp).
        dense_tp: ranks that share the width of a dense layer's MLP.
        encoder_tp: ranks that share an encoder of images; 1 = each holds it whole.
    """

    tp: int
    vocab: int
    ep: int = 1
    expert_tp: int = 1
    shared_intermediate: int = 0
    groups: int = 1
    dense_tp: int = 1
    encoder_tp: int = 1

    def heads_of(self, heads: int) -> int:
        """Query heads of a rank, of ``heads`` in all; also any other width that ranks share."""
        return heads // self.tp

    def kv_heads_of(self, heads: int) -> int:
        """Key-value heads of a rank; where there are fewer than ranks, each is held by several."""
        return max(1, heads // self.tp)

    @property
    def padded_vocab(self) -> int:
        """Rows of the whole padded table."""
        return self.vocab * self.tp


@lru_cache(maxsize=1024)
def shard_of(model: ModelConfig, plan: Plan, policy: ParallelPolicy = ParallelPolicy()) -> Shard:
    """What a rank of ``plan`` holds of ``model``.

    Raises:
        SilicastError: the model cannot be cut so; names ``parallel.tp`` and degrees that can.

    >>> from silicast.workload.models.lookup import find_model
    >>> shard_of(find_model("Llama-3.1-70B"), Plan(tp=16)).kv_heads_of(8)
    1
    """
    tp = plan.tp
    dense_tp = tp * plan.attention_dp if policy.gathers_dense and plan.attention_dp > 1 else tp
    if tp < 1 or not _divides(model, tp):
        fits = [str(d) for d in range(1, min(model.heads, 1024) + 1) if _divides(model, d)]
        raise SilicastError(
            f"tp = {tp} does not divide {_sizes(model)}",
            field="parallel.tp",
            hint=f"one of {', '.join(fits)}",
        )
    _check_dense(model, dense_tp)
    _check_experts(model, plan)
    moe = model.moe
    return Shard(
        tp=tp,
        vocab=-(-model.vocab // tp),
        ep=plan.ep,
        expert_tp=tp * plan.attention_dp // plan.ep if moe else tp,
        shared_intermediate=moe.shared_intermediate // tp if moe else 0,
        groups=plan.attention_dp,
        dense_tp=dense_tp,
        encoder_tp=encoder_ranks(model.encoder_heads, tp) if policy.cuts_encoder else 1,
    )


def encoder_ranks(heads: int, tp: int) -> int:
    """Of ``tp`` ranks, those that share an encoder's heads; all hold it whole where its heads are
    not known (0) or not a multiple.

    >>> encoder_ranks(16, 4), encoder_ranks(16, 3), encoder_ranks(0, 4)
    (4, 1, 1)
    """
    return tp if heads and heads % tp == 0 else 1


def _divides(model: ModelConfig, tp: int) -> bool:
    shared = model.moe.shared_intermediate if model.moe else 0
    return shared % tp == 0 and all(_fits(model, kind, tp) for kind in model.kinds)


def _fits(model: ModelConfig, kind: LayerKind, tp: int) -> bool:
    from silicast.workload.mixers._mixer import mixer_named

    mixes = not kind.mixer or mixer_named(kind.mixer).divides(kind, model, tp)
    return mixes and (kind.feed != "mlp" or kind.intermediate % tp == 0)


def _check_dense(model: ModelConfig, ranks: int) -> None:
    """Whether the ranks can share the MLP of dense layers."""
    for kind in model.kinds:
        width = kind.intermediate if kind.feed == "mlp" else 0
        text = f"tp x attention_dp = {ranks} ranks cannot share an MLP of width {width}"
        require(width % ranks == 0, text, "parallel.attention_dp", "a degree that divides it")


def _sizes(model: ModelConfig) -> str:
    """The sizes that tp must divide, in words."""
    parts: list[str] = []
    for kind in model.kinds:
        if kind.mixer:
            parts += [f"{kind.heads} heads", f"{kind.kv_heads} key-value heads"]
        if kind.feed == "mlp":
            parts.append(f"an MLP of width {kind.intermediate}")
    if model.moe and model.moe.shared_intermediate:
        parts.append(f"shared experts of width {model.moe.shared_intermediate}")
    parts = list(dict.fromkeys(parts))
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def _check_experts(model: ModelConfig, plan: Plan) -> None:
    """Whether the ranks can share the experts."""
    moe, ep = model.moe, plan.ep
    if moe is None:
        text = f"ep = {ep}, but {model.name} has no experts"
        require(ep <= 1, text, "parallel.ep", "leave ep at 1")
        return
    ranks = plan.tp * plan.attention_dp
    fits = [
        d
        for d in range(1, ranks + 1)
        if ranks % d == 0 and moe.held % d == 0 and moe.intermediate % (ranks // d) == 0
    ]
    require(
        ep in fits,
        f"ep = {ep} with tp x attention_dp = {ranks} cannot share {moe.held} experts of "
        f"width {moe.intermediate}",
        "parallel.ep",
        f"one of {', '.join(map(str, fits))}" if fits else "change tp",
    )
