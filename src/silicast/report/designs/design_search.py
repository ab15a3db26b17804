"""A search of designs: its front, and what was tried."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.exploration.space import Value
from silicast.exploration.state import SearchState
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import FactSheet, listing

MOST_ROWS = 20


def search_card(state: SearchState) -> RenderableType:
    """What was tried and what was no design, and the front, by the first objective."""
    history = state.history
    total = state.problem.space.total
    space = f"{state.problem.space.rows:.3g}, not counted apart" if total is None else f"{total:,}"
    facts = FactSheet(f"{state.method} search")
    facts.add("designs", f"{len(history):,} tried of {space}")
    for cause, count in history.infeasible.items():
        facts.add("infeasible", f"{count:,}: {cause}")
    facts.add("front", f"{len(history.front):,} designs that no other one beats")
    if not len(history.front):
        return facts.rendered()
    facts.add(
        "hypervolume",
        f"{rounded(history.hypervolume)} below "
        + ", ".join(
            f"{o.metric} {rounded(o.sign * float(history.reference[k]))}"
            for k, o in enumerate(history.objectives)
        ),
    )
    return Group(facts.rendered(), Text(), front_table(state))


def front_table(state: SearchState) -> RenderableType:
    """Objectives and parameters of the designs of the front; of a long one, spread over it."""
    history = state.history
    names = [objective.metric for objective in history.objectives]
    columns = dict.fromkeys((*names, *history.space.names), "right")
    positions = history.front
    shown = positions
    if len(positions) > MOST_ROWS:
        shown = positions[[i * (len(positions) - 1) // (MOST_ROWS - 1) for i in range(MOST_ROWS)]]
    rows = []
    for position in shown:
        settings = history.space.settings(history.designs[position])
        rows.append(
            [
                *(rounded(history.outcomes[position].metrics[name]) for name in names),
                *(_shown(settings.get(name)) for name in history.space.names),
            ]
        )
    table = listing(columns, rows)
    if len(shown) == len(positions):
        return table
    return Group(table, Text(f"{len(shown)} of {len(positions)} shown; the file has all", "dim"))


def _shown(value: Value | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return " x ".join(_shown(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
