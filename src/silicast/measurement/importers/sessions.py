"""The session of an imported file: which device, as the file and the user state it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.source import Source
from silicast.measurement.records import Protocol, Session


def session_of(
    source: Source, options: Options, tool: str, protocol: Protocol, *,
    reported: Collection[str] = (), devices: int = 1, stack: Mapping[str, str] | None = None,
    machine: Mapping[str, Any] | None = None, notes: tuple[str, ...] = (),
) -> Session:  # fmt: skip
    """A session of one file.

    Args:
        tool: what measured.
        reported: names of the devices in the file; devices: how many took part.

    Raises:
        SilicastError: the devices differ from each other, or from the one that the user names.
    """
    names = sorted({name for name in reported if name})
    known = {name: _catalog_name(name) for name in names}
    if len({device or name for name, device in known.items()}) > 1:
        different = f"holds kernels of different devices: {', '.join(names)}"
        raise source.error(different, "device", "record one kind of device a file")
    device = next(iter(known.values()), "")
    if options.device:
        wanted = find_device(options.device).name
        if device and device != wanted:
            found = f"was measured on {names[0]} ({device}), not on {wanted}"
            raise source.error(found, "--device", "leave --device out")
        device = options.device if options.device.endswith(".toml") else wanted
    if names and not device:
        notes = (*notes, f"{names[0]} is in no catalog: name it with --device")
    return Session(
        id=options.session, started="", device=device,
        device_reported=names[0] if names else "", devices=max(devices, 1),
        stack=dict(stack or {}), machine=dict(machine or {}), protocol=protocol,
        source=tool, notes=list(notes),
    )  # fmt: skip


def _catalog_name(reported: str) -> str:
    """The catalog's name of what a driver reports; "" if it has none. No path is followed."""
    try:
        return "" if reported.endswith(".toml") else find_device(reported).name
    except SilicastError:
        return ""
