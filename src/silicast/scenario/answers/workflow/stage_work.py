"""What a stage does, and the registry of its kinds.

A kind is one file of :mod:`.works`, named like the ``work`` of a stage, that subclasses
:class:`StageWork` and registers itself. It turns the stage's table into one of four forms:
requests of an engine that serves (:class:`EngineRequests`), passes of a network
(:class:`NetworkPasses`), stated and computed times (:class:`TimedJobs`), or jobs that share a
cluster (:class:`ScheduledJobs`).
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import msgspec
import numpy as np

from silicast.composition.engines.engine import Engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import ProgramPass
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.scenario.answer import GIVEN
from silicast.scenario.answers.workflow import works
from silicast.scenario.decode import Scenario, part_of
from silicast.scenario.resolve import engine_of
from silicast.scenario.schema import PoolTable, SpeculativeTable, Task
from silicast.scenario.workloads import DistributionTable, Length, StageTable, WorkflowWorkload
from silicast.serving.traffic.lengths import lengths


@final
@dataclass(frozen=True)
class StageContext:
    """A stage and where it stands."""

    scenario: Scenario
    name: str
    table: StageTable

    @property
    def field(self) -> str:
        return f"workload.stages.{self.name}"

    @property
    def stages(self) -> Mapping[str, StageTable]:
        work = self.scenario.workload
        assert isinstance(work, WorkflowWorkload)
        return work.stages

    @property
    def pool(self) -> tuple[str, PoolTable]:
        """The pool that it runs on.

        Raises:
            SilicastError: none is named.
        """
        name = self.table.pool
        if name is None:
            pools = ", ".join(self.scenario.pools) or "none is in pools"
            raise self.error("is missing", "pool", f"work {self.table.work} needs one: {pools}")
        return name, self.scenario.pools[name]

    def of_pool(self, task: Task) -> Scenario:
        """Its pool as a scenario of its own, of one replica."""
        name, pool = self.pool
        single = msgspec.structs.replace(
            pool, count=1, role="", price_per_gpu_hour=None, kv_tiers=None
        )
        return part_of(self.scenario, {name: single}, task, None)

    @property
    def engine(self) -> Engine:
        """The engine of its pool."""
        return engine_of(self.of_pool("serving"))

    def needed(self, name: str) -> int | DistributionTable:
        """A length that its work needs."""
        value = getattr(self.table, name)
        if value is None:
            raise self.error("is missing", name, f"work {self.table.work} needs it")
        assert isinstance(value, (int, DistributionTable))
        return value

    def one_length(self, name: str) -> int:
        """A length that must be one number."""
        value = self.needed(name)
        if not isinstance(value, int):
            raise self.error(f"work {self.table.work} takes one length", name, "a number")
        return value

    def error(self, message: str, field: str, hint: str = "") -> SilicastError:
        """An error in one of its fields."""
        return SilicastError(message, field=f"{self.field}.{field}", hint=hint)


@final
@dataclass(frozen=True)
class EngineRequests:
    """Requests of an engine that serves.

    Attributes:
        answers: the client sees its tokens: its first one counts as the workflow's.
        exits: shares of tokens that leave the model at equal depths; () = none leaves early.
        decode_pool: where they decode, if elsewhere.
        prefill: a stage whose work is their prompts; "" = their own.
        speculative: what drafts their tokens; None = what drafts those of the whole scenario.
    """

    input_len: Length | None
    output_len: Length | None
    answers: bool = True
    exits: tuple[float, ...] = ()
    decode_pool: str = ""
    prefill: str = ""
    speculative: SpeculativeTable | None = None
    warnings: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class NetworkPasses:
    """Passes of a network over batches of inputs of one size.

    Attributes:
        passes: the pass over the inputs, of ``size`` each, of so many jobs; most: jobs of a pass.
        copies: jobs that the inputs of an item are cut into.
        deployment: of a model of the catalog; None = the network is no such model.
        log_sd: of a pass, beside the error of its kernels.
        result_bytes: of a job, that a stage behind it takes in.
        gpus: devices that share a pass out; the pass is what one of them runs.
        more_power: what its kernels draw beyond a waiting device, over that of the pass.
    """

    machine: Machine
    size: int
    passes: Callable[[int, int], ProgramPass]
    most: int
    copies: int = 1
    deployment: Deployment | None = None
    log_sd: float = 0.0
    result_bytes: int = 0
    gpus: int = 1
    more_power: float = 1.0
    warnings: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class TimedJobs:
    """Jobs whose time is stated or computed beforehand.

    Attributes:
        seconds: of so many jobs, drawn by the random numbers.
        servers: that work side by side; 0 = as many as there are jobs.
        tier: what the time rests on, or :data:`GIVEN`; log_sd: of its error.
        gpus: devices that work meanwhile; energy_j: of a job, all of them.
    """

    seconds: Callable[[int, np.random.Generator], F64]
    servers: int = 0
    tier: str = GIVEN
    log_sd: float = 0.0
    machine: Machine | None = None
    gpus: int = 0
    kernels_j: float = 0.0
    warnings: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class ScheduledJobs:
    """Jobs that a scheduler shares a cluster out to.

    Attributes:
        work: of so many jobs, drawn by the random numbers, in any unit.
        rates: of it a second, by pool and count of its devices; the first count is what policies
            give that do not choose.
        tiers: shares of what the rates rest on; log_sd: of their error.
    """

    work: Callable[[int, np.random.Generator], F64]
    rates: Mapping[tuple[str, int], float]
    tiers: Mapping[str, float]
    log_sd: float = 0.0
    warnings: tuple[str, ...] = ()


Work = EngineRequests | NetworkPasses | TimedJobs | ScheduledJobs


def in_jobs(items: int, max_batch: int) -> tuple[int, int, int]:
    """Inputs of an item as jobs: how many, inputs of each, and jobs that a pass takes in.

    >>> in_jobs(50, 64), in_jobs(1, 64), in_jobs(100, 32)
    ((1, 50, 1), (1, 1, 64), (4, 25, 1))
    """
    copies = -(-items // max_batch)
    job_items = -(-items // copies)
    return copies, job_items, max(max_batch // job_items, 1)


class StageWork(ABC):
    """One kind of work."""

    name: ClassVar[str]

    @abstractmethod
    def work(self, stage: StageContext) -> Work:
        """What a stage does.

        Raises:
            SilicastError: its table lacks something, or says something that is not modelled.
        """


_REGISTRY: dict[str, StageWork] = {}


def register(cls: type[StageWork]) -> type[StageWork]:
    """Class decorator: makes a kind known."""
    if cls.name in _REGISTRY:
        raise ValueError(f"two kinds of work {cls.name}")
    _REGISTRY[cls.name] = cls()
    return cls


def work_of(stage: StageContext) -> Work:
    """What a stage does; modules of works are imported on first use, until one has its kind."""
    name = stage.table.work
    if stage.table.speculative is not None and name != "draft_verify":
        raise stage.error(f"work {name} drafts nothing", "speculative", 'work = "draft_verify"')
    for module in pkgutil.iter_modules(works.__path__):
        if name in _REGISTRY:
            break
        importlib.import_module(f"{works.__name__}.{module.name}")
    return _REGISTRY[name].work(stage)


def stated_times(stage: StageContext) -> TimedJobs:
    """The time that a stage states, one number or a distribution."""
    duration, servers = stage.table.duration_ms, stage.table.servers or 0
    if duration is None:
        raise stage.error("is missing", "duration_ms", f"work {stage.table.work} needs it")
    if stage.table.steps is not None:
        raise stage.error("beside duration_ms", "steps", "one of the two; steps are of a training")
    return TimedJobs(lambda count, random: drawn_lengths(duration, count, random) * 1e-3, servers)


def drawn_lengths(
    length: float | DistributionTable, count: int, random: np.random.Generator
) -> F64:
    """So many numbers of a distribution, or one number so often."""
    if not isinstance(length, DistributionTable):
        return np.full(count, float(length))
    numbers = {
        name: value
        for name in length.__struct_fields__
        if name != "kind" and (value := getattr(length, name)) is not None
    }
    return lengths(length.kind, count, numbers, random).astype(np.float64)
