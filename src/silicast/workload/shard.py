"""What one tensor-parallel rank holds of each dimension of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from silicast.core.errors import SilicastError
from silicast.workload.model import ModelConfig
from silicast.workload.plan import Plan


@final
@dataclass(frozen=True, slots=True)
class Shard:
    """Sizes local to one of ``tp`` ranks; all ranks are alike.

    Attributes:
        kv_heads: whole key-value heads; where there are fewer than ranks, each is held by several.
        vocab: rows of the embedding and of the head; the table is padded to a multiple of tp.
    """

    tp: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int

    @property
    def padded_vocab(self) -> int:
        """Rows of the whole padded table."""
        return self.vocab * self.tp


def shard_of(model: ModelConfig, plan: Plan) -> Shard:
    """What a rank of ``plan`` holds of ``model``.

    Raises:
        SilicastError: the model cannot be cut so; names ``parallel.tp`` and degrees that can.

    >>> from silicast.workload.models import find_model
    >>> shard_of(find_model("Llama-3.1-70B"), Plan(tp=16)).kv_heads
    1
    """
    tp = plan.tp
    if tp < 1 or not _divides(model, tp):
        sizes = (
            f"{model.heads} heads, {model.kv_heads} key-value heads and an MLP of width "
            f"{model.intermediate}"
        )
        fits = [str(d) for d in range(1, min(model.heads, 1024) + 1) if _divides(model, d)]
        raise SilicastError(
            f"tp = {tp} does not divide {sizes}",
            field="parallel.tp",
            hint=f"one of {', '.join(fits)}",
        )
    return Shard(
        tp=tp,
        heads=model.heads // tp,
        kv_heads=max(1, model.kv_heads // tp),
        intermediate=model.intermediate // tp,
        vocab=-(-model.vocab // tp),
    )


def _divides(model: ModelConfig, tp: int) -> bool:
    kv_fits = model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    return model.heads % tp == 0 and model.intermediate % tp == 0 and kv_fits
