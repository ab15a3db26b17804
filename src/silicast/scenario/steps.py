"""A scenario's deployment as a function of single steps, for simulators of engines."""

from __future__ import annotations

from typing import Any

from silicast.composition.prices.step_predictor import StepPredictor
from silicast.core.errors import SilicastError
from silicast.core.plain_data import check_tree
from silicast.scenario.decode import decode
from silicast.scenario.resolving.deployments import deployment_of
from silicast.scenario.road import refuse_coming

ONE_STEP = {"batch": 1, "input_len": 1, "output_len": 1}


def step_predictor_of(tree: dict[str, Any]) -> StepPredictor:
    """The predictor of a deployment.

    Args:
        tree: fields of a scenario, without a task and a workload.

    Raises:
        SilicastError: as of :func:`.deployment_of`; or there are several pools.
    """
    for name in ("task", "workload", "pools", "speculative"):
        if name in tree:
            raise SilicastError(
                "is not of a single step", field=name, hint="state model, device, engine, parallel"
            )
    whole = {**tree, "task": "inference", "workload": ONE_STEP}
    check_tree(whole)
    refuse_coming(whole)
    deployment, warnings = deployment_of(decode(whole, checked=True))
    return StepPredictor(deployment, tuple(warnings))
