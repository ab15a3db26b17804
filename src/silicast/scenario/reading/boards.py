"""Whether a scenario's device is a board whose NPU runs whole networks."""

from __future__ import annotations

from silicast.hardware.index import device_names


def is_board(device: object) -> bool:
    """As :func:`silicast.learning.board_networks.is_board`, which is not loaded for a device of
    the catalog.

    >>> is_board("galaxy s24"), is_board("h100")
    (True, False)
    """
    names = device_names()
    if isinstance(device, str) and device in names and not names.get(device).missing:
        return False
    from silicast.learning import board_networks

    return board_networks.is_board(device)
