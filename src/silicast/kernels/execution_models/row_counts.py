"""Exact counts of many ops at once: what other execution models ask a family for."""

from __future__ import annotations

from abc import ABC, abstractmethod

from silicast.core.numerics import F64
from silicast.workload.graphs.op import OpBatch


class CountsRows(ABC):
    """A family that states the counts of many ops in arrays."""

    @abstractmethod
    def counts(self, batch: OpBatch) -> tuple[F64, F64]:
        """Useful operations, and bytes that must move once, of every op, shape (n,): ``flops`` and
        ``compulsory_bytes`` of an :class:`~.implementation.Implementation`.
        """

    def busiest_share(self, batch: OpBatch) -> F64 | float:  # noqa: ARG002
        """Operations of the busiest rank over those counted, which are shared out evenly."""
        return 1.0
