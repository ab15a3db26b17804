"""A mixture-of-experts block: a router takes the top k, then a loop over the experts.

The loop is what frameworks run without kernels of their own: tokens are sorted by expert, each
expert computes its own, and the results are added. The number of tokens of an expert is read from
the device; a trace gives each the same share.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import nn
from torch.nn import functional

from silicast.measurement.models.model_case import ModelCall, Place, Sizes, measured
from silicast.measurement.models.programs.decoder import GatedMlp

VALUES = "the number of tokens of an expert depends on values: the graph breaks at each expert"


@final
class Mixture(nn.Module):
    """Router and experts.

    Args:
        even: every expert gets the same share of the tokens, independent of the router.
    """

    def __init__(self, sizes: Sizes, dtype: Any, *, even: bool) -> None:
        super().__init__()
        self.topk, self.even = sizes["topk"], even
        self.norm = nn.RMSNorm(sizes["hidden"], eps=1e-5, dtype=dtype)
        self.router = nn.Linear(sizes["hidden"], sizes["experts"], bias=False, dtype=dtype)
        self.experts = nn.ModuleList(
            [
                GatedMlp(sizes["hidden"], sizes["intermediate"], dtype)
                for _ in range(sizes["experts"])
            ]
        )

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        weights, chosen = torch.topk(functional.softmax(self.router(y), dim=-1), self.topk, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        flat = chosen.flatten()
        order = torch.argsort(flat)
        out = torch.zeros_like(y)
        start = 0
        for expert, count in zip(self.experts, self._counts(flat), strict=True):
            if count:
                positions = order[start : start + count]
                rows = positions // self.topk
                made = expert(y[rows]) * weights.flatten()[positions].unsqueeze(-1)
                out.index_add_(0, rows, made)
            start += count
        return x + out

    def _counts(self, flat: Any) -> list[int]:
        """Tokens of each expert."""
        experts = len(self.experts)
        if self.even:
            share, more = divmod(flat.shape[0], experts)
            return [share + (number < more) for number in range(experts)]
        counts: list[int] = torch.bincount(flat, minlength=experts).tolist()
        return counts


SMALL_MOE = {"hidden": 768, "intermediate": 1024, "experts": 8, "topk": 2}
MIXTRAL = {"hidden": 4096, "intermediate": 14336, "experts": 8, "topk": 2}


@measured(
    "mixture",
    {"t256": {**SMALL_MOE, "tokens": 256}, "t16": {**SMALL_MOE, "tokens": 16}},
    {"8x7b-t2048": {**MIXTRAL, "tokens": 2048}, "8x7b-t16": {**MIXTRAL, "tokens": 16}},
)
def mixture(position: Place, sizes: Sizes) -> ModelCall:
    """One block; large: of Mixtral-8x7B (its config.json)."""
    dtype = position.torch_dtype()
    model = Mixture(sizes, dtype, even=False)
    with torch.device("meta"):
        traced = Mixture(sizes, dtype, even=True)
    tokens = torch.randn(sizes["tokens"], sizes["hidden"], dtype=dtype)
    return ModelCall(model, (tokens,), traced, not_compiled=VALUES, not_captured=VALUES)
