"""`silicast devices`."""

from __future__ import annotations

import msgspec

from silicast.app.commands._catalog import Kind, catalog_app
from silicast.hardware.catalog import device_index
from silicast.report.devices import device_card, device_summary, device_table

devices = catalog_app(
    Kind(
        name="devices",
        help="List, search and show the devices of the catalog.",
        index=device_index,
        aliases=lambda device: device.aliases,
        summary=device_summary,
        table=device_table,
        card=device_card,
        data=msgspec.to_builtins,
    )
)
