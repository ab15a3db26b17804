"""`silicast models`."""

from __future__ import annotations

from functools import partial

from silicast.app.commands._catalog import CatalogKind, catalog_app
from silicast.report.catalog.models import model_card, model_data, model_summary, model_table
from silicast.workload.models.lookup import find_model, model_index, model_names

models = catalog_app(
    CatalogKind(
        name="models",
        help="List, search and show the models of the catalog.",
        index=model_index,
        names=model_names,
        find=find_model,
        family=lambda model: model.family,
        summary=model_summary,
        table=model_table,
        card=model_card,
        data=model_data,
        searched=partial(model_names, variants=True),
    )
)
