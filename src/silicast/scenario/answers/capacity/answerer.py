"""Task ``capacity``: the most traffic under an objective, or the fewest devices that carry one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar, final

import msgspec

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import Answerer, refuse_unmodelled, register
from silicast.scenario.answers.capacity.capacity_search import COUNTED, CapacitySearch
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.set_fields import with_fields
from silicast.scenario.workloads import CapacityWorkload


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
        items, refused = [], []
        for fields, candidate in _candidates(scenario, work):
            try:
                items.append(CapacitySearch(candidate, fields, work))
            except SilicastError as error:
                if not fields:
                    raise
                refused.append((fields, error))
        if not items:
            raise SilicastError(
                f"none of {len(refused)} candidates can run: {refused[0][1]}",
                kind=refused[0][1].kind,
                field="workload.search.vary",
            )
        best = min(items, key=lambda each: each.rank)
        reply = best.answer()
        if len(items) + len(refused) > 1:
            reply.why["candidates"] = [
                *(each.summary() for each in sorted(items, key=lambda each: each.rank)),
                *({"fields": fields, "refused": str(remark)} for fields, remark in refused),
            ]
        return reply


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
    tree = msgspec.to_builtins(scenario.raw)
    tree = {name: value for name, value in tree.items() if value is not None}
    for values in combinations:
        fields = dict(zip(vary, values, strict=True))
        yield fields, decode(with_fields(tree, fields), folder=scenario.folder)
