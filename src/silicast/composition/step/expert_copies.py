"""Copies of experts that an engine keeps so that ranks hold as many experts as each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from silicast.composition.engines.engine import Engine
from silicast.composition.passes.deployment import Deployment, busiest_group
from silicast.core.errors import SilicastError
from silicast.kernels.experts.routing import busiest_loads
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.plan import Plan


def with_copies(model: ModelConfig, plan: Plan, engine: Engine) -> tuple[ModelConfig, list[str]]:
    """The model with the copies of experts that the engine's options state, and what was assumed.

    Where none are stated and ranks cannot share the experts evenly, engines do not start without:
    the fewest copies that let them are taken.

    Raises:
        SilicastError: fewer places than experts, or a number that ranks cannot share evenly.

    >>> from silicast.composition.engines.engine import find_engine
    >>> from silicast.workload.models.lookup import find_model
    >>> model, said = with_copies(
    ...     find_model("DeepSeek-V3"), Plan(attention_dp=48, ep=48), find_engine("trtllm"))
    >>> model.moe.held, said
    (288, ['parallel.ep: 48 ranks share 256 experts with 32 copies of some, as assumed'])
    """
    moe, table = model.moe, engine.parallel
    stated = bool(table.expert_copies or table.expert_places)
    if moe is None:
        text = f"engine.options: {model.name} has no experts to copy"
        return model, [text] if stated else []
    option = "num_slots" if table.expert_places else "num_redundant_experts"
    field = f"engine.options.{option}"
    copies = table.expert_copies
    if table.expert_places:
        copies = table.expert_places - moe.experts
    if copies < 0:
        raise SilicastError(
            f"{table.expert_places} places for {moe.experts} experts",
            field=field,
            hint=f"{moe.experts} or more",
        )
    left = -(moe.experts + copies) % plan.ep
    if stated and left:
        raise SilicastError(
            f"{plan.ep} ranks cannot share {moe.experts} experts and {copies} copies evenly",
            field=field,
            hint=f"{left} more" + (f", or {plan.ep - left} less" if copies else ""),
        )
    whole = plan.ep == plan.tp * plan.attention_dp
    remarks = []
    if not stated and left and whole:  # ranks that share the width of experts hold none twice
        copies = left
        shared = f"{plan.ep} ranks share {moe.experts} experts with {copies} copies of some"
        remarks = [f"parallel.ep: {shared}, as assumed"]
    return replace(model, moe=replace(moe, copies=copies)) if copies else model, remarks


def without_copies(model: ModelConfig) -> ModelConfig:
    """The model as it was trained."""
    return model if model.moe is None else replace(model, moe=replace(model.moe, copies=0))


def imbalance(deployment: Deployment, input_lens: Sequence[int]) -> dict[str, float]:
    """Load of the busiest over the mean, for a static batch; {} where no rank waits for another.

    Keys: ``prefill_tokens`` of the groups of attention_dp; ``prefill_assignments``,
    ``decode_assignments`` and ``decode_experts_used`` of the ranks that share the experts.
    """
    plan, moe = deployment.plan, deployment.model.moe
    imbalance: dict[str, float] = {}
    groups = plan.attention_dp
    current = busiest_group(input_lens, groups)
    if groups > 1:
        imbalance["prefill_tokens"] = sum(current) * groups / sum(input_lens)
    if moe is None or plan.ep == 1:
        return imbalance
    for name, tokens in (("prefill", sum(input_lens)), ("decode", len(current) * groups)):
        routed, experts, topk = (np.array([x]) for x in (tokens, moe.held, moe.topk))
        busiest = busiest_loads(moe.spread, routed, experts, topk, np.array([plan.ep]))
        whole = busiest_loads(moe.spread, routed, experts, topk, np.array([1]))
        mean = tokens * moe.topk / plan.ep
        imbalance[f"{name}_assignments"] = float(busiest.tokens()[0]) / mean
        if name == "decode":
            used = float(whole.experts_hit()[0]) / plan.ep
            imbalance["decode_experts_used"] = float(busiest.experts_hit()[0]) / used
    return imbalance
