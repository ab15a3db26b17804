"""The analytic estimate times what measured kernels of the same architecture taught.

The correction is exp(w x trees), w = 1 among the rows it was trained on and falling to 0 over
:data:`FADE_OCTAVES` beyond their range in any feature, so that far outside the analytic model
speaks alone. Nothing is corrected below its bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from silicast.core.numerics import F64, I64, exp_fixed
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.learning.artefact import Artefact, Trained, load_artefact
from silicast.learning.ceiling import ceiling_times
from silicast.learning.features import WHO, Kernels
from silicast.learning.oblivious import STEPS, codes
from silicast.workload.op import OpBatch

FADE_OCTAVES = 1.0
FAMILY_LOG_SD = 0.01
"""What all devices of a family are off together: they were learned from, each on its own."""
OTHER_RELEASE = 1.25
"""Judged, where fewer than two releases were measured: how much further off another's are."""


def learned_times(
    model: Implementation, batch: OpBatch, device: Device, *, ceilings: bool = False
) -> KernelTimes:
    """Times of a batch, corrected where something was learned of its family on its architecture.

    Args:
        ceilings: say too what the quick kernels of such problems reached.

    Raises:
        SilicastError: the device cannot run it, or an artefact is broken.
    """
    times = model.times(batch, device)
    artefact = load_artefact(model.family) if times.measured else None
    if artefact is None:
        return times
    kernels = Kernels.of(model, times.analysis, batch, device)
    return corrected(times, kernels, device, artefact, ceilings=ceilings)


def corrected(
    times: KernelTimes,
    kernels: Kernels,
    device: Device,
    artefact: Artefact,
    *,
    ceilings: bool = False,
) -> KernelTimes:
    """``times`` with an artefact's correction; unchanged where it has none for them.

    Nothing was learned of a style or format of the cache that no training row had.
    """
    trained = artefact.find(device.architecture, kernels.batch.variant.dtype)
    if trained is None or not _known(kernels.own, artefact.names(trained)):
        return times
    found = codes(kernels.table(artefact.names(trained)))
    weight = inside(found, artefact.ranges(trained))
    factor = exp_fixed(weight * artefact.trees(trained).of_codes(found))
    estimate = np.maximum(times.estimate_s * factor, times.bound_s)
    named = _is_named(kernels.own, artefact.names(trained))
    shared, left = _left(times, trained, device, kernels.batch.family, named=named)
    apart = _apart(
        times, shared, weight, left * exp_fixed(artefact.spread(trained).of_codes(found))
    )
    variance = sum(value * value for value in shared.values())
    spread = exp_fixed(Z90 * np.sqrt(variance + apart * apart))
    return replace(
        times,
        estimate_s=estimate,
        p05_s=np.maximum(estimate / spread, times.bound_s),
        p95_s=estimate * spread,
        shared_log_sd=shared,
        independent_log_sd=apart,
        learned=weight,
        analytic_s=times.estimate_s,
        ceiling_s=ceiling_times(times, found, weight, artefact, trained) if ceilings else None,
    )


def inside(found: I64, ranges: I64) -> F64:
    """1 within the range of every feature, falling to 0 an octave beyond; shape (n,).

    Args:
        found: codes of features, shape (F, n); ranges: first and last of each, shape (F, 2).
    """
    beyond = np.maximum(ranges[:, :1] - found, found - ranges[:, 1:]).max(axis=0)
    weight: F64 = 1.0 - np.maximum(beyond, 0) * (1.0 / (STEPS * FADE_OCTAVES))
    return np.maximum(weight, 0.0)


@lru_cache(maxsize=4096)
def _known(own: frozenset[str], features: tuple[str, ...]) -> bool:
    """Whether training rows had every style and cache format that is marked; a library may be new,
    for rows without one were learned from too.
    """
    return all(name in features for name in own if not name.startswith(WHO))


@lru_cache(maxsize=4096)
def _is_named(own: frozenset[str], features: tuple[str, ...]) -> bool:
    """Whether rows of the very release were learned from; of the library, where its releases are
    not told apart.
    """
    for name in own & set(features):
        kind, _, of = name.partition(":")
        if kind == "release":
            return True
        told = any(other.startswith(f"release:{of} ") for other in features)
        if kind == "library" and not told:
            return True
    return False


def _left(
    times: KernelTimes, trained: Trained, device: Device, family: str, *, named: bool
) -> tuple[Mapping[str, float], float]:
    """Shared loadings where the correction has its whole weight, and a usual row's own sd."""
    known = device.name in trained.devices
    learned = {
        "device": trained.shared_log_sd if known else trained.device_log_sd,
        "family": FAMILY_LOG_SD,
    }
    shared = {
        name: min(learned.get(name.partition(":")[0], value), value)
        for name, value in times.shared_log_sd.items()
    }
    if named:
        return shared, trained.log_sd
    left = max(trained.log_sd, trained.blank_log_sd, trained.release_log_sd)
    if not trained.campaign_log_sd:
        return shared, left * OTHER_RELEASE
    return {**shared, f"campaign:{family}": trained.campaign_log_sd}, left


def _apart(times: KernelTimes, shared: Mapping[str, float], weight: F64, left: F64) -> F64:
    """Each row's own sd: between the learned and the analytic one by weight."""
    faded = 1.0 - weight
    analytic = times.independent_log_sd
    # what the shared parts have lost by the correction comes back with distance
    lost = sum(v * v - shared[name] * shared[name] for name, v in times.shared_log_sd.items())
    variance = weight * left * left + faded * (analytic * analytic + lost)
    return np.sqrt(np.maximum(variance, analytic * analytic * faded))
