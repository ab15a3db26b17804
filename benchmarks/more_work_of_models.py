"""Pairs of boards that whole models run on, of which one has more: how often it is slower.

A mode of ``python -m benchmarks.more_work --whole-models``. A pair is one static batch of one model
on a board and on the same with more cores, a higher clock, more bandwidth or a higher limit; both
boards are otherwise alike, often under a limit that binds. The prefill and a decode step in the
middle are compared, each at the clock that it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import BatchSteps, batch_steps
from silicast.composition.power.clock import drawn
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from
from silicast.hardware.device import Device
from silicast.kernels.physics.energy import applies_to
from silicast.kernels.physics.power import board, silicon, top_hz
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.plan import Plan

MODELS = ("Llama-3.1-8B", "Qwen2.5-1.5B", "Qwen3-30B-A3B")
KINDS = ("cores", "base_clock", "bandwidth", "power")
"""What a board may have more of; clock and limit of power named as for kernels."""
PHASES = ("prefill", "decode")
CHANGES = {"cores": (0.5, 2.5), "base_clock": (0.6, 2.0), "bandwidth": (0.7, 1.5)}
"""Ranges of what a board is given, over what it was built with."""


@dataclass(frozen=True)
class Held:
    """One phase of a batch on a board.

    Attributes:
        seconds: of the step at the clock that it holds; clock: share of the top clock.
        power_w: mean, energy_j: of one device.
    """

    seconds: float
    clock: float
    power_w: float
    energy_j: float


def changed(
    device: Device,
    *,
    cores: float = 1.0,
    base_clock: float = 1.0,
    bandwidth: float = 1.0,
    limit: float | None = None,
) -> Device:
    """A board of the catalog as a user changes it.

    Args:
        cores, base_clock, bandwidth: over those of the board.
        limit: 0 = idle power, 1 = the board's own limit; None = its own.

    Raises:
        SilicastError: its numbers cannot be true.
    """
    table: dict[str, Any] = {"base": device.name}
    clocks, built_w, idle_w = device.clocks, device.power_cap_w, board(device, "fp32").idle_w
    if base_clock != 1.0:
        mhz = {
            "boost_mhz": base_clock * clocks.boost_hz / 1e6,
            "max_mhz": base_clock * clocks.max_hz / 1e6,
        }
        if clocks.base_hz:
            mhz["base_mhz"] = min(clocks.base_hz, base_clock * clocks.boost_hz) / 1e6
        table["clocks"] = mhz
    if bandwidth != 1.0:
        rate = bandwidth * device.dram.bandwidth_bytes_per_s / 1e9
        table["memory"] = {"dram": {"bandwidth_gb_per_s": rate}}
    result = device if len(table) == 1 else device_from(table)
    if cores != 1.0:
        count = max(round(device.cores * cores), 1)
        result = replace(result.with_cores(count), base=device.name, name="changed")
    if limit is None or built_w is None:
        return result
    return replace(result, power_cap_w=idle_w + limit * (built_w - idle_w), idle_power_w=idle_w)


@lru_cache(maxsize=4096)
def held(device: Device, model: str, batch: int, length: int) -> dict[str, Held]:
    """Prefill and decode of a static batch on a board.

    Raises:
        SilicastError: the board cannot run it.
    """
    deployment = Deployment.from_model(
        model=find_model(model), device=device, engine=find_engine("vllm"), plan=Plan(),
        precision=Precision.from_formats(recipe=_recipe(device)),
    )  # fmt: skip
    both = batch_steps(deployment, [length] * batch, 32)
    return {name: _held(steps) for name, steps in zip(PHASES, both, strict=True)}


def _held(steps: BatchSteps) -> Held:
    typical = int(steps.rows[len(steps.rows) // 2])
    times = steps.times(typical)
    seconds = float(times.total_s[typical])
    machine = steps.model.machine
    draw = drawn(machine, seconds, float(steps.model.kernels_j(times)[typical]))
    return Held(seconds, times.clock_hz / top_hz(machine.device), draw.power_w, draw.energy_j)


def _recipe(device: Device) -> str:
    built = silicon(device)
    return "bf16" if built.rate_per_core("tensor", "bf16") > 0.0 else "fp16"


def drawn_pair(draw: np.random.Generator, device: Device, kind: str) -> tuple[Device, Device]:
    """A board and one that has more of something, alike in the rest.

    Raises:
        SilicastError: no such board can be, or nothing limits its power.
    """
    if not applies_to(device):
        raise SilicastError(f"{device.name} has no law of power")
    shares: dict[str, float] = {}
    for name, (low, high) in CHANGES.items():
        if draw.random() < 0.5:
            shares[name] = float(np.exp(draw.uniform(np.log(low), np.log(high))))
    limit = float(draw.uniform(0.05, 2.0)) if draw.random() < 0.8 else None
    if kind == "power":
        low, high = sorted(draw.uniform(0.05, 2.0, 2).tolist())
        return changed(device, **shares, limit=low), changed(device, **shares, limit=high)
    other = float(np.exp(draw.uniform(*np.log(CHANGES[kind]))))
    low, high = sorted((shares.get(kind, 1.0), other))
    less, more = ({**shares, kind: share} for share in (low, high))
    return changed(device, **less, limit=limit), changed(device, **more, limit=limit)


def dips(
    pairs: int, seed: int, devices: tuple[Device, ...], more_of: str | None = None
) -> Iterator[dict[str, Any]]:
    """One record a pair and phase, as of :func:`benchmarks.more_work.dips`.

    Args:
        pairs: how many, of both phases in all.
        seed: of the draws.
        devices: of which one is drawn.
        more_of: one of `KINDS`; None = all of them in turn.
    """
    draw = np.random.default_rng(seed)
    count = 0
    while count < pairs:
        kind = more_of or KINDS[int(draw.integers(len(KINDS)))]
        device = devices[int(draw.integers(len(devices)))]
        model = MODELS[int(draw.integers(len(MODELS)))]
        batch, length = 2 ** int(draw.integers(0, 7)), 2 ** int(draw.integers(7, 12))
        try:
            less, more = drawn_pair(draw, device, kind)
            before, after = (held(board_, model, batch, length) for board_ in (less, more))
        except SilicastError:  # what the board cannot run, or no board can be
            continue
        for phase in PHASES:
            count += 1
            yield {
                "device": device.name,
                "kind": device.execution_model,
                "family": phase,
                "model": model,
                "dtype": _recipe(device),
                "library": "vllm",
                "learned": True,
                "grown": kind,
                "sizes": {"batch": batch, "input_len": length},
                "boards": [_described(board_, device) for board_ in (less, more)],
                "energy_dip": None,
                "dip": 1.0 - before[phase].seconds / after[phase].seconds,
                "clocks": [round(phases[phase].clock, 4) for phases in (before, after)],
                "power_w": [round(phases[phase].power_w, 1) for phases in (before, after)],
                "us": before[phase].seconds * 1e6,
            }


def _described(device: Device, built: Device) -> dict[str, float]:
    """What a board has, over what it was built with; watts of its limit."""
    return {
        "cores": device.cores,
        "clock": round(device.clocks.max_hz / built.clocks.max_hz, 3),
        "bandwidth": round(device.dram.bandwidth_bytes_per_s / built.dram.bandwidth_bytes_per_s, 3),
        "power_w": round(device.power_cap_w or 0.0, 1),
    }
