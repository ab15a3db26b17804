"""What a query of an index of vectors reads and computes on a host.

A flat index reads every vector. An inverted file (IVF) compares the query with the centres of its
lists, then reads the vectors of some lists, all lists taken as equally long. A graph (HNSW) walks
from level to level: about ln(vectors) / ln(links) levels of one step each, and on the lowest one
``ef`` nodes whose 2 x links neighbours are each a vector somewhere in memory, of which about half
were seen before (Malkov and Yashunin 2018, section 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, read_table

SEEN = 0.5
"""Share of a node's neighbours on the lowest level that a walk has visited before."""


class VectorSearchTable(Strict, frozen=True):
    """What a thread of a host reaches; see ``catalog/workflow.toml``."""

    thread_gb_per_s: float
    thread_gflops: float
    access_ns: float
    call_us: float
    log_sd: float


class TransfersTable(Strict, frozen=True):
    """How far times of transfers are off."""

    log_sd: float


class WeightSyncTable(Strict, frozen=True):
    """What frameworks reach that gather, re-shard and load a model's weights."""

    gather_gb_per_s: float
    log_sd: float


class PassesTable(Strict, frozen=True):
    """How far passes of single networks are off beside their kernels."""

    log_sd_alone: float


class DiffusionTable(Strict, frozen=True):
    """What measured pipelines take over their networks; see ``catalog/workflow.toml``."""

    host_factor: float
    slower: float
    power: float


class PolicyLearningTable(Strict, frozen=True):
    """What learning from rollouts takes beside a training step; see ``catalog/workflow.toml``."""

    loss_ps_per_logit: float
    loss_log_sd: float
    logprob_share: float
    wake_share: float
    between_share: float
    log_sd: float
    step_log_sd: float


class WorkflowConstants(Strict, frozen=True):
    """The file ``catalog/workflow.toml``."""

    vector_search: VectorSearchTable
    links: TransfersTable
    weight_sync: WeightSyncTable
    passes: PassesTable
    diffusion: DiffusionTable
    policy: PolicyLearningTable


def workflow_constants() -> WorkflowConstants:
    """Judged constants of stages."""
    return read_table(CATALOG / "workflow.toml", WorkflowConstants, "")


@final
@dataclass(frozen=True)
class VectorIndex:
    """An index.

    Attributes:
        kind: "flat", "ivf" or "hnsw"; vectors: number of them; dimensions: of each.
        element_bytes: of a dimension, fractions where vectors are quantised.
        lists, probes: of an inverted file; links, ef: of a graph.
    """

    kind: Literal["flat", "ivf", "hnsw"]
    vectors: int
    dimensions: int
    element_bytes: float = 4.0
    lists: int = 0
    probes: int = 1
    links: int = 32
    ef: int = 64

    @property
    def compared(self) -> float:
        """Vectors with which a query is compared.

        >>> VectorIndex("ivf", 1_000_000, 768, lists=1000, probes=10).compared
        11000.0
        """
        if self.kind == "flat":
            return float(self.vectors)
        if self.kind == "ivf":
            lists = self.lists or max(round(4.0 * math.sqrt(self.vectors)), 1)
            return lists + self.vectors * min(self.probes / lists, 1.0)
        levels = math.log(max(self.vectors, 2)) / math.log(max(self.links, 2))
        walk = levels * self.links + self.ef * 2.0 * self.links * SEEN
        return min(walk, float(self.vectors))

    @property
    def read_bytes(self) -> float:
        """That a query reads."""
        return self.compared * self.dimensions * self.element_bytes

    @property
    def flops(self) -> float:
        """One multiplication and one addition for each dimension of what it compares."""
        return self.compared * 2.0 * self.dimensions

    def seconds(self, threads: int, host_gb_per_s: float, known: VectorSearchTable) -> float:
        """A query alone.

        Args:
            threads: that share it; a graph is walked by one.
            host_gb_per_s: what all threads together read at most; 0 = not known.
        """
        threads = 1 if self.kind == "hnsw" else threads
        rate = known.thread_gb_per_s * threads
        rate = min(rate, host_gb_per_s) if host_gb_per_s else rate
        reading = self.read_bytes / (rate * 1e9)
        computing = self.flops / (known.thread_gflops * threads * 1e9)
        scattered = self.compared * known.access_ns * 1e-9 if self.kind == "hnsw" else 0.0
        return max(reading, computing) + scattered + known.call_us * 1e-6
