"""The clock that a board holds for seconds, where its own campaigns contradict each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from silicast.hardware.device import Device
from silicast.kernels.physics import load_physics

PHYSICS = "frameworks"


@final
@dataclass(frozen=True, slots=True)
class PowerState:
    """What is known of a board beyond its cap.

    Attributes:
        clock_share: of the boost clock, the middle of its campaigns; 1 = nothing else is known.
        log_sd: half the distance of the campaigns.
    """

    clock_share: float = 1.0
    log_sd: float = 0.0


def power_state(device: Device) -> PowerState:
    """The state of a device by its name (``catalog/physics/frameworks.json``).

    >>> from silicast.hardware.catalog import find_device
    >>> power_state(find_device("H100-SXM-80GB")).clock_share
    1.0
    """
    own = load_physics(PHYSICS).architectures.get(device.name, {})
    share = own.get("clock_share", 1.0)
    return PowerState(share, -math.log(share) if share < 1.0 else 0.0)
