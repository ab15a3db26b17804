"""Flags of a training step, and the scenario that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from cyclopts import Parameter

from silicast.app.arguments import described, placed
from silicast.core.errors import SilicastError


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@described("train")
class TrainFlags:
    """Flags for the model, devices and plan of a training run."""

    model: str
    device: str
    gpus: int = 1
    seq_len: int = 4096
    global_batch: int = 256
    micro_batch: int | None = None
    engine: str | None = None
    dtype: str | None = None
    optimizer: str | None = None
    network: str | None = None
    gpus_per_node: int | None = None
    power_w: float | None = None


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@described("train")
class TrainDegrees:
    """How the step is spread; given degrees are kept, without any the best plan is searched."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    zero: int | None = None
    virtual_stages: int | None = None
    schedule: str | None = None
    recompute: str | None = None


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@described("train")
class TrainLosses:
    """Failures and slow devices; without any, a run is taken to go through."""

    mtbf_hours: float | None = None
    checkpoint_s: float | None = None
    checkpoint_interval_s: float | None = None
    restart_s: float | None = None
    slow_fraction: float | None = None
    slow_factor: float | None = None

    @property
    def tables(self) -> dict[str, Any]:
        """Of a scenario's cluster.

        >>> TrainLosses(mtbf_hours=50000, checkpoint_s=30).tables
        {'failures': {'mtbf_hours_per_gpu': 50000, 'checkpoint_s': 30}}

        Raises:
            SilicastError: a flag is given without the one that it needs.
        """
        failures = {
            "mtbf_hours_per_gpu": self.mtbf_hours,
            "checkpoint_s": self.checkpoint_s,
            "checkpoint_interval_s": self.checkpoint_interval_s,
            "restart_s": self.restart_s,
        }
        slow = {"fraction": self.slow_fraction, "slowdown": self.slow_factor}
        needs = {
            "failures": (failures, {"mtbf_hours_per_gpu": "--mtbf-hours"}),
            "slow_gpus": (slow, {"fraction": "--slow-fraction", "slowdown": "--slow-factor"}),
        }
        tables: dict[str, Any] = {}
        for name, (table, flags) in needs.items():
            filled = {field: value for field, value in table.items() if value is not None}
            for field, flag in flags.items():
                if filled and field not in filled:
                    raise SilicastError(
                        f"is missing: {', '.join(filled)} of {name} means nothing without it",
                        field=flag,
                    )
            tables |= {name: filled} if filled else {}
        return tables


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@described("train")
class TrainHost:
    """What the host does beside the devices: it holds states for them, loads batches, writes."""

    offload_optimizer: float | None = None
    offload_activations: float | None = None
    offload_weights: float | None = None
    offload_update: str | None = None
    loader_tokens_per_s: float | None = None
    storage_gb_per_s: float | None = None
    checkpoint_every: int | None = None
    checkpoint_async: bool | None = None

    @property
    def tables(self) -> dict[str, Any]:
        """Of a scenario's workload.

        >>> TrainHost(offload_optimizer=1.0, loader_tokens_per_s=1e6).tables
        {'offload': {'optimizer': 1.0}, 'data_loading': {'tokens_per_s': 1000000.0}}

        Raises:
            SilicastError: a flag is given without the one that it needs.
        """
        tables: dict[str, dict[str, Any]] = {
            "offload": {
                "optimizer": self.offload_optimizer,
                "activations": self.offload_activations,
                "weights": self.offload_weights,
                "update": self.offload_update,
            },
            "data_loading": {"tokens_per_s": self.loader_tokens_per_s},
            "checkpoint": {
                "storage_gb_per_s": self.storage_gb_per_s,
                "interval_steps": self.checkpoint_every,
                "asynchronous": self.checkpoint_async,
            },
        }
        entries = {
            name: {field: value for field, value in table.items() if value is not None}
            for name, table in tables.items()
        }
        if entries["checkpoint"] and self.storage_gb_per_s is None:
            raise SilicastError(
                "is missing: nothing else says how long a checkpoint takes",
                field="--storage-gb-per-s",
            )
        return {name: table for name, table in entries.items() if table}


def training_scenario(
    train_flags: TrainFlags,
    degrees: TrainDegrees,
    losses: TrainLosses | None = None,
    host: TrainHost | None = None,
) -> dict[str, Any]:
    """The scenario that the flags stand for: task ``training`` with degrees, else ``plan``.

    >>> asked = TrainFlags(model="Llama-3-8B", device="h100", gpus=8)
    >>> training_scenario(asked, TrainDegrees())["task"]
    'plan'
    >>> training_scenario(asked, TrainDegrees(tp=2))["parallel"]
    {'tp': 2}
    """
    stated_degrees = {
        name: value
        for name in TrainDegrees.__dataclass_fields__
        if name != "recompute" and (value := getattr(degrees, name)) is not None
    }
    options = {
        "seq_len": train_flags.seq_len,
        "global_batch": train_flags.global_batch,
        "micro_batch": train_flags.micro_batch,
        "optimizer": train_flags.optimizer,
        "recompute": degrees.recompute,
    }
    work: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    work |= host.tables if host else {}
    cluster: dict[str, Any] = {"gpus": train_flags.gpus, **(losses.tables if losses else {})}
    if train_flags.network is not None:
        cluster["inter_node"] = train_flags.network
    if train_flags.gpus_per_node is not None:
        cluster["gpus_per_node"] = train_flags.gpus_per_node
    searches = not stated_degrees and train_flags.gpus > 1
    scenario: dict[str, Any] = {
        "format": 1,
        "task": "plan" if searches else "training",
        "model": train_flags.model,
        "device": train_flags.device,
        "cluster": cluster,
        "workload": {"objective": "step_time", "training": work} if searches else work,
    }
    if stated_degrees:
        scenario["parallel"] = stated_degrees
    if train_flags.engine is not None:
        scenario["engine"] = train_flags.engine
    names = ("dtype", "power_w")
    return placed(scenario, {name: getattr(train_flags, name) for name in names})
