"""`silicast engines`."""

from __future__ import annotations

import msgspec

from silicast.app.commands._catalog import CatalogKind, catalog_app
from silicast.composition.engines.engine import engine_index, find_engine
from silicast.report.catalog.engines import engine_card, engine_summary, engine_table

engines = catalog_app(
    CatalogKind(
        name="engines",
        help="List, search and show the engines of the catalog.",
        index=engine_index,
        names=lambda: engine_index().names,
        find=find_engine,
        family=lambda engine: engine.kind,
        summary=engine_summary,
        table=engine_table,
        card=engine_card,
        data=msgspec.to_builtins,
    )
)
