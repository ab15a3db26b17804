"""How far the rank that all others wait for is above their mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from silicast.composition.passes.deployment import Deployment, busiest_group
from silicast.kernels.experts.routing import busiest_loads


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
