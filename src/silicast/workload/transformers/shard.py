"""Sizes of a model on one tensor-parallel rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

from silicast.core.errors import SilicastError
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.model_parts import require
from silicast.workload.transformers.plan import ParallelPolicy, Plan


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
    """

    tp: int
    vocab: int
    ep: int = 1
    expert_tp: int = 1
    shared_intermediate: int = 0
    groups: int = 1
    dense_tp: int = 1

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
    )


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
    items: list[str] = []
    for kind in model.kinds:
        if kind.mixer:
            items += [f"{kind.heads} heads", f"{kind.kv_heads} key-value heads"]
        if kind.feed == "mlp":
            items.append(f"an MLP of width {kind.intermediate}")
    if model.moe and model.moe.shared_intermediate:
        items.append(f"shared experts of width {model.moe.shared_intermediate}")
    items = list(dict.fromkeys(items))
    return f"{', '.join(items[:-1])} and {items[-1]}" if len(items) > 1 else items[0]


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
