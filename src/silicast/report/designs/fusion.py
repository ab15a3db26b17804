"""Neighbours that run tile by tile: what that saves, both mappings, and what moves where."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.accelerator.counting.layer_table import FusedLayers
from silicast.accelerator.mapper.fusion import FusedCost
from silicast.accelerator.mapper.fusion_search import Fused
from silicast.report.designs.mappings import mapping_data, nest_text
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import FactSheet, listing


def fused_data(fused: Fused) -> dict[str, Any]:
    """A pair, for JSON; units in the names."""
    data: dict[str, Any] = {
        "objective": fused.objective,
        "value": fused.value,
        "bound": fused.bound,
        "gap": fused.gap,
        "fused": fused.is_fused,
        "plans": fused.plans,
        "searched": fused.searched,
        "apart": {"energy_pj": fused.apart_pj, "cycles": fused.apart_cycles},
    }
    cost = fused.cost
    if cost is not None:
        data["plan"] = {
            "energy_pj": cost.energy_pj,
            "cycles": cost.cycles,
            "saved_outermost_bytes": fused.saved_bytes,
            "products": cost.points,
            "recomputed": cost.recomputed,
            "meets_in": _meeting(cost),
            "tiles": {
                cost.plan.pair.along[position][1]: count for position, count in cost.plan.cuts
            },
            "resident": [
                {"of": half + 1, "tensor": load.tensor, "words": load.words, "times": load.times}
                for half, load in cost.plan.loads()
            ],
            "keeps_halo": cost.plan.keeps_halo,
            "one_tile": [
                mapping_data(nest, phase)
                for nest, phase in zip(cost.nests, cost.phases, strict=True)
            ],
        }
    return data


def _meeting(cost: FusedCost) -> str:
    return cost.architecture.memories[cost.plan.level].name


def fused_card(fused: Fused) -> RenderableType:
    """What both cost apart and fused, how good that is known to be, and the loops of a tile."""
    cost = fused.cost
    first, second = (each.cost.einsum.name for each in fused.apart)
    facts = FactSheet(f"{first} and {second} on {fused.apart[0].cost.architecture.name}")
    facts.add("apart", f"{rounded(fused.apart_pj / 1e6)} uJ, {fused.apart_cycles:,.0f} cycles")
    if cost is None:
        facts.add("fused", "no plan is worth a search: none fits, or none can be better")
        facts.add(fused.objective, _proof(fused))
        return facts.rendered()
    facts.add(
        "fused",
        f"{rounded(cost.energy_pj / 1e6)} uJ, {cost.cycles:,.0f} cycles"
        + ("" if fused.is_fused else ": apart is better"),
    )
    facts.add(
        "saved", f"{fused.saved_bytes:,.0f} bytes to and from {cost.architecture.memories[0].name}"
    )
    facts.add("tiles", _tiles(cost))
    if cost.recomputed:
        facts.add("done twice", f"{cost.recomputed:,.0f} products")
    facts.add(fused.objective, _proof(fused))
    parts: list[RenderableType] = [facts.rendered()]
    for title, nest, phase in zip(("First", "Second"), cost.nests, cost.phases, strict=True):
        parts += [Text(f"\n{title}, one tile", "bold"), Text(nest_text(nest, phase))]
    return Group(*parts)


def _tiles(cost: FusedCost) -> str:
    cuts = [f"{cost.plan.pair.along[position][1]} in {count}" for position, count in cost.plan.cuts]
    message = f"{', '.join(cuts) or 'one'}, meeting in {_meeting(cost)}"
    stays = [
        f"{load.tensor} of the {'second' if half else 'first'}" for half, load in cost.plan.loads()
    ]
    if stays:
        message += f"; {', '.join(stays)} stay there"
    return message + ("; rows that tiles share too" if cost.plan.keeps_halo else "")


def _proof(fused: Fused) -> str:
    proof = "proven best" if fused.gap < 1e-6 else f"at most {fused.gap:.2%} from the best"
    return f"{proof} of {fused.plans:,} plans and both apart"


def fused_traffic(cost: FusedCost) -> RenderableType:
    """Words of every tensor at every memory, over all tiles."""
    rows = []
    for level, memory in enumerate(cost.architecture.memories):
        words = cost.words(level)
        for half, phase in enumerate(cost.phases):
            for name in phase.einsum.names:
                is_between = name == cost.plan.between_of(half)
                if words[half, name] or (level == 0 and is_between):
                    of = "second" if half else "first"
                    rows.append([memory.name, of, name, f"{words[half, name]:,.0f}",
                                 "between" if is_between else ""])  # fmt: skip
    heads = {"level": "left", "of": "left", "tensor": "left", "words": "right", "": "left"}
    return listing(heads, rows)


def fused_layers(fused_layers: tuple[FusedLayers, ...]) -> RenderableType:
    """Pairs of a file of layers that run tile by tile."""
    rows = []
    for each in fused_layers:
        cost = each.fused.cost
        assert cost is not None
        rows.append(
            [
                " + ".join(each.feed.names),
                str(each.feed.count),
                _tiles(cost),
                rounded(each.saved_pj / 1e6),
                f"{each.saved_cycles:,.0f}",
                f"{each.fused.saved_bytes:,.0f}",
                f"{each.fused.gap:.1%}",
            ]
        )
    heads = {
        "fused": "left",
        "x": "right",
        "tiles": "left",
        "uJ saved": "right",
        "cycles saved": "right",
        "bytes saved": "right",
        "gap": "right",
    }
    return listing(heads, rows)
