"""Where software runs, as its files state it: names of vendors, architectures and processors."""

from __future__ import annotations

from collections.abc import Sequence

from silicast.core.naming import normalise
from silicast.core.releases import is_before
from silicast.hardware.device import Device

CPU = "cpu"
LEAST = ">="
MOST_LISTED = 4


def runs_on(device: Device, indices: Sequence[str]) -> bool:
    """Whether the device is among ``indices``; software that states none runs anywhere.

    Args:
        device: an accelerator or a processor.
        indices: each the vendor of accelerators ("AMD"), one with the least compute capability
            ("NVIDIA >= 8.0"), an architecture ("gaudi3"), or "cpu".

    >>> from silicast.hardware.catalog import find_device
    >>> [runs_on(find_device(name), ["NVIDIA >= 8.0"]) for name in ("V100", "A100", "MI300X")]
    [False, True, False]
    >>> runs_on(find_device("EPYC 9654"), ["AMD"]), runs_on(find_device("EPYC 9654"), ["cpu"])
    (False, True)
    """
    return not indices or any(_is(device, position) for position in indices)


def maker_of(device: Device) -> str:
    """Whose accelerator it is; "cpu" of a processor."""
    return CPU if device.execution_model == "vector_cpu" else device.vendor


def _is(device: Device, location: str) -> bool:
    name, _, least = (part.strip() for part in location.partition(LEAST))
    if device.execution_model == "vector_cpu":
        return normalise(name) == CPU
    if normalise(name) == normalise(device.architecture):
        return True
    if normalise(name) != normalise(device.vendor):
        return False
    capability = device.compute_capability
    return not least or not capability or not is_before(capability, least)


def listed(indices: Sequence[str]) -> str:
    """The places in words.

    >>> listed(["NVIDIA >= 8.0", "AMD", "cpu"])
    'NVIDIA (compute capability 8.0 on), AMD, CPUs'
    """
    names = []
    for position in indices:
        name, _, least = (part.strip() for part in position.partition(LEAST))
        capability = f" (compute capability {least} on)" if least else ""
        names.append("CPUs" if normalise(name) == CPU else f"{name}{capability}")
    more = len(names) - MOST_LISTED
    return ", ".join(names) if more < 2 else f"{', '.join(names[:MOST_LISTED])} and {more} others"
