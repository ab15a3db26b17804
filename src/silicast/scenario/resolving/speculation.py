"""Speculative decoding as a scenario states it: who drafts, and how often drafts are kept."""

from __future__ import annotations

import dataclasses

import msgspec

from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.kernels.physics.constants import load_physics
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import find_any_model
from silicast.scenario.resolving.deployments import precision_of, with_file_formats
from silicast.scenario.schema import SpeculativeTable
from silicast.serving.simulation.drafting import Drafting, layers_of
from silicast.serving.simulation.speculation import Acceptance

PHYSICS = "acceptance"
ASSUMED = (
    "speculative.acceptance is not stated: {} drafts of other models were kept so often, {:.3g} "
    "tokens a step, on requests for code"
)
LAYER = "speculative: the drafter is taken as one layer like the last one of {}, with its head"
DENSE = "speculative: the drafter is taken as one dense layer of {}'s size, with its head"
HOST = "speculative: what the host takes to look up drafts is not measured and left out"


def drafting_of(scenario: Scenario, deployment: Deployment) -> tuple[Drafting | None, list[str]]:
    """How a deployment's tokens are drafted, None = they are not, and what was assumed about it.

    Raises:
        SilicastError: a drafter that does not fit its method, or no acceptance where none was
            measured.
    """
    table = scenario.raw.speculative
    if table is None:
        return None, []
    if table.tree is not None and table.tree <= table.k:
        raise SilicastError(
            f"a tree of {table.tree} tokens holds no branch of {table.k} drafted ones",
            field="speculative.tree",
            hint=f"at least k + 1 = {table.k + 1}, or leave it out",
        )
    drafter, remarks = _drafter(scenario, table, deployment)
    acceptance, assumed = _acceptance(table, scenario.raw.seed or 0)
    verified = max(table.tree or 0, table.k + 1)
    shares = drafter is not None and table.draft is None
    return Drafting(acceptance, drafter, shares, verified), [*remarks, *assumed]


def _drafter(
    scenario: Scenario, table: SpeculativeTable, deployment: Deployment
) -> tuple[Deployment | None, list[str]]:
    model, plan = deployment.model, dataclasses.replace(deployment.plan, pp=1)
    if table.method in ("mtp", "ngram") and table.draft is not None:
        raise SilicastError(
            f"method {table.method} needs no model that drafts",
            field="speculative.draft",
            hint="leave it out, or choose method draft or eagle",
        )
    if table.method == "ngram":
        return None, [HOST]
    if table.draft is not None:
        draft = find_any_model(table.draft, scenario.folder, "speculative.draft")
        if deployment.engine.weight_mix:
            draft, precision, remarks = with_file_formats(scenario, draft, deployment.machine)
        else:
            raw = msgspec.structs.replace(scenario.raw, precision=None)
            precision, remarks = precision_of(
                msgspec.structs.replace(scenario, raw=raw), draft, deployment.device
            )
    elif table.method == "draft":
        raise SilicastError("is missing", field="speculative.draft", hint="a model that drafts")
    else:
        dense = table.method == "eagle"
        draft, precision = layers_of(model, dense=dense), deployment.precision
        remarks = [DENSE.format(model.name)] if dense else []
        if table.method == "mtp" and not model.mtp_layers:
            remarks = [LAYER.format(model.name)]
    if draft.moe is None:
        plan = dataclasses.replace(plan, ep=1)
    return Deployment(deployment.machine, draft, plan, precision), remarks


def _acceptance(table: SpeculativeTable, seed: int) -> tuple[Acceptance, list[str]]:
    stated = table.acceptance
    constants = load_physics(PHYSICS).default
    between = table.acceptance_spread
    if between is None:
        between = constants["request_log_sd"]
    if isinstance(stated, list):
        if len(stated) != table.k:
            raise SilicastError(
                f"{len(stated)} rates for {table.k} drafted tokens",
                field="speculative.acceptance",
                hint="a rate for all, or one for each",
            )
        return Acceptance(tuple(stated), seed, request_log_sd=between), []
    if stated is not None:
        return Acceptance((stated,) * table.k, seed, request_log_sd=between), []
    if f"{table.method}_first" not in constants:
        raise SilicastError(
            f"is missing: none was measured for method {table.method}",
            field="speculative.acceptance",
            hint="the chance that a drafted token is kept where those before it were",
        )
    first, decay, log_sd = (
        constants[f"{table.method}_{name}"] for name in ("first", "decay", "log_sd")
    )
    rates = tuple(first * decay**index for index in range(table.k))
    acceptance = Acceptance(rates, seed, log_sd, between)
    return acceptance, [ASSUMED.format(table.method, acceptance.mean)]
