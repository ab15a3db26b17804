"""How a model is spread over devices: the degrees of each kind of parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """Parallel degrees (all >= 1).

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
