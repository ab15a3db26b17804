"""Everything that decides what a search of plans finds, so that a kept one is known again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

import silicast
from silicast.core.hashing import content_hash, files_hash
from silicast.learning.tiers import Evidence
from silicast.scenario.answers.training.training_runs import PreparedTraining
from silicast.scenario.decode import Scenario
from silicast.scenario.package import package_hash

ANSWER_ONLY = ("id",)
"""Fields of a scenario that only its answer repeats."""


def search_inputs(scenario: Scenario, prepared: PreparedTraining) -> dict[str, Any]:
    """The scenario, what the files that it names say, and the code and numbers that answer it.

    Returns:
        Plain tables: ``scenario`` as it stands; hashes of what it was resolved to (``resolved``:
        device, model, engine and network, wherever they are from), of its calibrations, and of the
        package (``package``: code and shipped numbers); its ``version``.
    """
    tree = msgspec.to_builtins(scenario.raw)
    named = scenario.raw.calibration or []
    files = [scenario.folder / name for name in ([named] if isinstance(named, str) else named)]
    return {
        "scenario": {name: each for name, each in tree.items() if name not in ANSWER_ONLY},
        "calibrations": files_hash(files),
        "resolved": _resolved(prepared),
        "version": silicast.__version__,
        "package": package_hash(),
    }


def _resolved(prepared: PreparedTraining) -> str:
    """Of all that is not measured by the user, which the calibrations' files state."""
    deployment = prepared.rank.deployment
    machine = replace(deployment.machine, evidence=Evidence())
    rank = replace(prepared.rank, deployment=replace(deployment, machine=machine))
    return content_hash(replace(prepared, rank=rank))
