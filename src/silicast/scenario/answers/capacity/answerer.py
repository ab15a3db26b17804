"""Task ``capacity``: the most traffic under an objective, or the fewest devices that carry one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import Answerer, refuse_unmodelled, register
from silicast.scenario.answers.capacity.capacity_search import COUNTED, CapacitySearch
from silicast.scenario.answers.serving.serving_checks import told
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.schema import ParallelTable
from silicast.scenario.set_fields import plain_tree, with_fields
from silicast.scenario.workloads import CapacityWorkload
from silicast.serving.simulation.start import MOST_TP

TIGHT = 0.9
"""Part of a limit that one request alone takes, from which on hardly any load fits beside it."""
TAKEN = "one request at a time has {0} {1:.4g} of {2:.4g} ms: hardly any load fits beside it"
ROOMIER = "; with tp = {0} it has {1:.4g} ms"
SMALLEST = "parallel.tp = {}: the smallest with which it starts; on one device it does not"


@register
@final
class CapacityAnswerer(Answerer):
    """Metrics: ``max_rate_per_s``, ``max_concurrency``, or the fewest ``gpus`` or the least
    ``cost_per_hour`` over one or several pools, and everything that task ``serving`` says of that
    point; ``users_that_fit`` and ``longest_context_tokens``.
    """

    task: ClassVar[str] = "capacity"
    searches: ClassVar[bool] = True

    def answer(self, scenario: Scenario) -> Answer:
        work = scenario.workload
        assert isinstance(work, CapacityWorkload)
        refuse_unmodelled(scenario, "colocation")
        if scenario.raw.tier == "bound":
            raise not_yet_of(PARTS["bound"], "tier", "capacity")
        if work.autoscale is not None:
            from silicast.scenario.answers.capacity.autoscaled import autoscaled_answer

            return autoscaled_answer(scenario, work)
        searches, refused = [], []
        for fields, candidate in _candidates(scenario, work):
            try:
                searches.append(_searched(candidate, fields, work))
            except SilicastError as error:
                if not fields:
                    raise
                refused.append((fields, error))
        if not searches:
            raise SilicastError(
                f"none of {len(refused)} candidates can run: {refused[0][1]}",
                kind=refused[0][1].kind,
                field="workload.search.vary",
            )
        best = min(searches, key=lambda each: each.rank)
        reply = best.answer()
        if len(searches) + len(refused) > 1:
            reply.why["candidates"] = [
                *(each.summary() for each in sorted(searches, key=lambda each: each.rank)),
                *({"fields": fields, "refused": str(remark)} for fields, remark in refused),
            ]
        return reply


def _searched(scenario: Scenario, fields: dict[str, Any], work: CapacityWorkload) -> CapacitySearch:
    """The search of one candidate; where no degrees are stated and it does not start on one device,
    with the smallest tensor degree with which it does.
    """
    tables = (scenario.raw.parallel, *(table.parallel for table in scenario.pools.values()))
    has_parallel = any(each not in (None, ParallelTable()) for each in tables)
    try:
        return _with_advice(CapacitySearch(scenario, fields, work), scenario, 1, has_parallel)
    except SilicastError as error:
        if has_parallel or not error.field.endswith("parallel"):
            raise
        alone = error
    degree = 2
    while degree <= MOST_TP:
        try:
            wider = _wider(scenario, degree)
            search = CapacitySearch(wider, fields, work, [SMALLEST.format(degree)])
        except SilicastError:
            degree *= 2
        else:
            return _with_advice(search, scenario, degree, has_parallel)
    raise alone


def _wider(scenario: Scenario, degree: int) -> Scenario:
    tree = with_fields(plain_tree(scenario.raw), {"parallel.tp": degree})
    return decode(tree, folder=scenario.folder)


def _with_advice(
    search: CapacitySearch, scenario: Scenario, degree: int, has_parallel: bool
) -> CapacitySearch:
    """The search; where one request alone takes nearly all that a limit allows, it says which
    tensor degree leaves room for others.
    """
    if has_parallel or scenario.pools:
        return search
    name, value, limit = search.tightest()
    if value < TIGHT * limit:
        return search
    roomier = ""
    while not roomier and (degree := 2 * degree) <= MOST_TP:
        with contextlib.suppress(SilicastError):  # degrees that do not divide the model
            wider = search.alone_ms(search.fleet_as(_wider(scenario, degree)))[name]
            if wider < TIGHT * limit:
                roomier = ROOMIER.format(degree, wider)
    if search.load or roomier:
        search.remark(TAKEN.format(told(name), value, limit) + roomier)
    return search


def _candidates(
    scenario: Scenario, work: CapacityWorkload
) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """Scenarios to try, and what is different in each."""
    vary = work.search.vary
    if work.objective in COUNTED:  # the search itself chooses counts of pools
        counts = {f"pools.{name}.count" for name in scenario.pools}
        vary = {field: values for field, values in vary.items() if field not in counts}
    combinations = list(product(*vary.values()))
    most = work.search.max_candidates
    if most is not None and len(combinations) > most:
        raise SilicastError(
            f"{len(combinations)} candidates, more than max_candidates = {most}",
            field="workload.search.vary",
        )
    if not vary:
        yield {}, scenario
        return
    tree = plain_tree(scenario.raw)
    for values in combinations:
        fields = dict(zip(vary, values, strict=True))
        yield fields, decode(with_fields(tree, fields), folder=scenario.folder)
