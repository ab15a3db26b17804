"""`silicast devices`."""

from __future__ import annotations

import msgspec

from silicast.app.commands._catalog import CatalogKind, catalog_app
from silicast.hardware.catalog import device_index, find_device
from silicast.hardware.device_file import tabulate
from silicast.hardware.index import device_names
from silicast.report.catalog.devices import device_card, device_summary, device_table

devices = catalog_app(
    CatalogKind(
        name="devices",
        help="List, search and show the devices of the catalog.",
        index=device_names,
        names=lambda: device_index().names,
        find=find_device,
        family=lambda device: f"{device.vendor} {device.architecture}",
        summary=device_summary,
        table=device_table,
        card=device_card,
        data=lambda device: msgspec.to_builtins(tabulate(device)),
    )
)
