"""A job of a cluster: so many training steps, or a stated time, on devices that it shares."""

from __future__ import annotations

from typing import ClassVar, final

import msgspec
import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.scenario.answer import GIVEN
from silicast.scenario.answers.training.training_runs import TrainingRun, run_of
from silicast.scenario.answers.workflow.stage_work import (
    ScheduledJobs,
    StageContext,
    StageWork,
    drawn_lengths,
    register,
    stated_times,
)
from silicast.scenario.checks import check_workload
from silicast.scenario.schema import ParallelTable, PoolTable
from silicast.scenario.workloads import TrainingWorkload


@register
@final
class SharedJob(StageWork):
    """``steps`` of ``training`` on any count of ``gpus`` of any of its ``pools``, data parallel
    over the pool's degrees; or ``duration_ms`` on one count. With a ``noise_scale`` the batch
    grows with the devices, from that of the first count, and a step counts for as many of those as
    it learns: Pollux's goodput.
    """

    name: ClassVar[str] = "job"

    def work(self, stage: StageContext) -> ScheduledJobs:
        table = stage.table
        names = table.pools or list(stage.scenario.pools)
        unknown = [name for name in names if name not in stage.scenario.pools]
        if unknown or not names:
            hint = ", ".join(stage.scenario.pools) or "none is in pools"
            missing = repr(unknown[0]) if unknown else "any"
            raise stage.error(f"no pool {missing:.80}", "pools", hint)
        counts = table.gpus or [1]
        if len(set(counts)) < len(counts):
            raise stage.error("a count is there twice", "gpus", "each count once")
        if table.training is None:
            return self._stated(stage, names, counts)
        if table.duration_ms is not None:
            raise stage.error("beside training", "duration_ms", "one of the two")
        return self._trained(stage, names, counts, table.training)

    def _stated(self, stage: StageContext, names: list[str], counts: list[int]) -> ScheduledJobs:
        if len(counts) > 1:
            raise stage.error(
                "several counts beside a stated time", "gpus", "one count, or training and steps"
            )
        rates = {
            (name, counts[0]): 1.0
            for name in names
            if counts[0] <= devices_of(stage.scenario.pools[name])
        }
        if not rates:
            raise stage.error(f"no pool has {counts[0]} devices", "gpus")
        return ScheduledJobs(stated_times(stage).seconds, rates, {GIVEN: 1.0})

    def _trained(
        self, stage: StageContext, names: list[str], counts: list[int], training: TrainingWorkload
    ) -> ScheduledJobs:
        steps = stage.needed("steps")
        rates: dict[tuple[str, int], float] = {}
        shares: dict[str, float] = {}
        remarks: list[str] = []
        log_sd = 0.0
        for name in names:
            for count in counts:
                if count > devices_of(stage.scenario.pools[name]):
                    continue
                grown = self._grown(stage, training, count / counts[0])
                try:
                    result = self._run(stage, name, count, grown)
                except SilicastError as error:
                    remarks.append(f"{count} of {name}: {error.message}")
                    continue
                gained = self._learns(stage, training, grown)
                rates[name, count] = gained / result.step.seconds
                shares[result.step.tier] = shares.get(result.step.tier, 0.0) + 1.0
                log_sd = max(log_sd, result.step.error.log_sd)
        if not rates:
            why = remarks[0] if remarks else f"no pool has {min(counts)} devices"
            raise stage.error(f"fits none of its pools: {why}", "gpus")

        def work(count: int, random: np.random.Generator) -> F64:
            return drawn_lengths(steps, count, random)

        texts = tuple(f"{stage.name}: not on {text}" for text in dict.fromkeys(remarks))
        return ScheduledJobs(work, rates, shares, log_sd, texts)

    def _run(
        self, stage: StageContext, name: str, count: int, training: TrainingWorkload
    ) -> TrainingRun:
        """A step on so many devices of a pool."""
        table = msgspec.structs.replace(stage.table, pool=name)
        scenario = StageContext(stage.scenario, stage.name, table).of_pool("training")
        degrees = scenario.raw.parallel
        unit = (degrees.tp or 1) * (degrees.pp or 1) * (degrees.cp or 1)
        if count % unit:
            raise stage.error(f"{count} devices are no multiple of {unit}", "gpus")
        dp = count // unit
        if training.global_batch % (dp * training.micro_batch):
            raise stage.error(
                f"{training.global_batch} sequences do not share out over {dp} ranks", "training"
            )
        raw = msgspec.structs.replace(
            scenario.raw, parallel=msgspec.structs.replace(degrees, dp=dp)
        )
        scenario = msgspec.structs.replace(scenario, raw=raw, workload=training)
        check_workload(raw, training, {})
        result = run_of(scenario)
        if result.memory.advice:
            raise stage.error(result.memory.advice[0], "training")
        return result

    def _grown(
        self, stage: StageContext, training: TrainingWorkload, factor: float
    ) -> TrainingWorkload:
        """The batch that a larger count learns from: the same without a noise scale."""
        if stage.table.noise_scale is None:
            return training
        batch = max(round(training.global_batch * factor), 1)
        return msgspec.structs.replace(training, global_batch=batch)

    def _learns(
        self, stage: StageContext, training: TrainingWorkload, grown: TrainingWorkload
    ) -> float:
        """Steps of the first batch that a step of another is worth (McCandlish et al., 2018)."""
        if stage.table.noise_scale is None:
            return 1.0
        first, batch, noise = training.global_batch, grown.global_batch, stage.table.noise_scale
        return batch * (noise + first) / (first * (noise + batch))


def devices_of(pool: PoolTable) -> int:
    """Devices of a pool: those of each replica, times replicas."""
    degrees = pool.parallel or ParallelTable()
    return pool.count * (degrees.tp or 1) * (degrees.pp or 1) * (degrees.cp or 1)
