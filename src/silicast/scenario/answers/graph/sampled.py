"""One inference of an architecture of a space on a device of which a few such were measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.calibrated import Blended
from silicast.core.errors import SilicastError
from silicast.core.prediction import Domain, Quantity
from silicast.hardware.catalog import find_device
from silicast.learning.known_latencies import blended_ms
from silicast.scenario.answer import Answer, answer
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.calibrations import calibrations_of
from silicast.scenario.workloads import GraphWorkload
from silicast.workload.spaces.space import architecture, is_architecture

NEAR, OUT = 1.0, 4.0
"""A latency within the samples' range is in the domain; up to OUT times beyond it, near."""


@final
@dataclass(frozen=True)
class SampledNetwork:
    """A network that a calibration speaks of.

    Attributes:
        choices: of the architecture, (1, positions).
        device: that was measured; source: of the calibration.
    """

    blend: Blended
    choices: tuple[int, ...]
    device: str
    source: str


def sampled_in(scenario: Scenario) -> SampledNetwork | None:
    """What a scenario's calibrations say of its network; None where it is none of a space, or no
    calibration is of its space and device.

    Raises:
        SilicastError: a calibration cannot be read, or the architecture's name.
    """
    work, device = scenario.workload, scenario.raw.device
    if not isinstance(work, GraphWorkload) or not is_architecture(work.graph or ""):
        return None
    if scenario.raw.tier not in ("auto", "calibrated") or not isinstance(device, str):
        return None
    try:
        space, choices = architecture(work.graph or "")
    except SilicastError as error:
        raise error.located("workload.graph") from None
    for calibration in calibrations_of(scenario.raw.calibration, scenario.folder):
        if not calibration.is_of(_catalog_name(device)):
            continue
        for blend in calibration.blends:
            if blend.space == space.name:
                return SampledNetwork(blend, choices, calibration.scope.device, calibration.source)
    return None


def _catalog_name(device: str) -> str:
    try:
        return find_device(device).name
    except SilicastError:
        return device


def sampled_answer(scenario: Scenario, network: SampledNetwork) -> Answer:
    """The answer by samples alone.

    Raises:
        SilicastError: the scenario asks for what samples do not say: training, or a batch.
    """
    work, blend = scenario.workload, network.blend
    assert isinstance(work, GraphWorkload)
    if work.mode != "inference" or (work.batch or 1) != 1 or work.sizes:
        raise SilicastError(
            "samples are of one inference as it was measured",
            field="workload",
            hint="leave out mode, batch and sizes, or the calibration",
        )
    latency = float(blended_ms(blend, np.array([network.choices], dtype=np.int64))[0])
    beyond = max(latency / blend.most_ms, blend.least_ms / latency)
    domain: Domain = "in" if beyond <= NEAR else "near" if beyond <= OUT else "out"
    wider = 1.0 if domain == "in" else 1.5 if domain == "near" else 3.0
    outside = (
        f"{latency:.3g} ms lies outside the samples, {blend.least_ms:.3g} to "
        f"{blend.most_ms:.3g} ms: the interval is {wider:g} times as wide"
    )
    belief = Quantity.around(latency, blend.log_sd * wider)
    return answer(
        metrics={"e2e_ms": belief, "forward_ms": belief},
        bound={},
        tier="calibrated",
        domain=domain,
        warnings=[] if domain == "in" else [outside],
        why={
            "name": "network",
            "exposed_ms": latency,
            "share": 1.0,
            "calibration": {
                "device": network.device,
                "source": network.source,
                "samples": blend.rows,
                "known_devices": blend.devices,
                "kernels_ms": blend.kernels,
                "log_sd": blend.log_sd,
            },
        },
    )
