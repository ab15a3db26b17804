"""Launch files of servers, with the models of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from silicast.core.errors import SilicastError
from silicast.formats.server_launches import read_server_launch
from silicast.formats.server_launches.model_facts import ModelFacts
from silicast.workload.models.lookup import find_model

_NONE: Mapping[str, str] = MappingProxyType({})


def launched_servers(
    *paths: Path, run: str = "", variables: Mapping[str, str] = _NONE
) -> tuple[dict[str, Any], list[str]]:
    """:func:`~silicast.formats.server_launches.read_server_launch` with the models of the
    catalog.
    """
    return read_server_launch(*paths, lookup=model_facts, run=run, variables=variables)


def model_facts(name: str) -> ModelFacts | None:
    """What is known of a model by its name or path; None = nothing.

    >>> model_facts("deepseek-ai/DeepSeek-R1")
    ModelFacts(has_experts=True, drafts=True)
    """
    try:
        model = find_model(name)
    except SilicastError:
        return None
    return ModelFacts(model.moe is not None, bool(model.mtp_layers))
