"""The clock that a board holds for seconds, where measuring it found another than its boost clock.

Some boards without a fan of their own run at a third of their speed in one session and at all of it
in the next. What such a board will do is not known: the middle of the two, and a spread.
"""

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
        clock_share: of the boost clock, between full speed and what a throttled campaign found; 1 =
            none did.
        log_sd: half the distance of the two.
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
