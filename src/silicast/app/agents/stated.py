"""Answers for agents: every number with its unit, interval, tier and sources, or none at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from silicast import __version__
from silicast.core.errors import SilicastError
from silicast.core.metrics import metric_of, words_and_unit
from silicast.core.plain_data import check_tree
from silicast.learning.artefact import shipped_hash
from silicast.scenario.answer import Answer, Belief, Reply, refusal
from silicast.scenario.reading.inline_only import refuse_paths
from silicast.scenario.run import reply_to

Tree = dict[str, Any]

ABSTAINED = (
    "outside measured ground: no number is stated; the interval would be a guess. Ask with "
    "accept_unmeasured=true for the estimate and its wide interval, or measure and calibrate"
)
MOST_PARTS = 12
DEEPEST = 3


def reply_of(scenario: Tree) -> Reply:
    """The answer to a scenario in which nothing names a file."""
    try:
        check_tree(scenario)
        refuse_paths(scenario)
    except SilicastError as error:
        return refusal(error)
    return reply_to(scenario)


def stated(reply: Reply, *, accept_unmeasured: bool = False) -> Tree:
    """A reply as an agent is told it.

    Returns:
        ``status``: "answered", "abstained" or "refused"; ``numbers``: a table each.
    """
    if not isinstance(reply, Answer):
        problem: Tree = msgspec.to_builtins(reply.error)
        return {"status": "refused", **problem}
    told: Tree = {
        "status": "answered",
        "tier": reply.tier,
        "domain": reply.domain,
        "warnings": list(reply.warnings),
    }
    if reply.domain == "out" and not accept_unmeasured:
        return {**told, "status": "abstained", "what_to_do": ABSTAINED}
    source = sources(reply.why)
    told["numbers"] = {
        name: number(name, belief, reply, source) for name, belief in reply.metrics.items()
    }
    return told


def number(name: str, belief: Belief, reply: Answer, source: str) -> Tree:
    """One metric with all that belongs to it."""
    metric = metric_of(name)
    return {
        "estimate": belief.estimate,
        "p05": belief.p05,
        "p95": belief.p95,
        "unit": metric.unit if metric is not None else words_and_unit(name)[1],
        "bound": reply.bound.get(name),
        "tier": reply.tier,
        "domain": reply.domain,
        "source": source,
        "meaning": metric.text if metric is not None else "",
    }


def sources(why: Mapping[str, Any]) -> str:
    """What an answer rests on, in a line: constants, calibrations and measured tables by name."""
    named = why.get("sources") or why.get("source") or ()
    words = [named] if isinstance(named, str) else [str(each) for each in named]
    words += [f"silicast {__version__}, constants {shipped_hash()}"]
    return "; ".join(words[-5:])


def parts(tree: Mapping[str, Any], depth: int = DEEPEST) -> Tree:
    """The largest parts of a tree of times, some levels deep."""
    names = ("name", "exposed_ms", "share", "bound_by", "also_bound_by", "of_bound", "count")
    told = {name: tree[name] for name in names if name in tree}
    inner = sorted(
        tree.get("parts", ()), key=lambda part: part.get("exposed_ms", 0.0), reverse=True
    )
    if depth > 0 and inner:
        told["parts"] = [parts(part, sum((depth, -1))) for part in inner[:MOST_PARTS]]
    return told
