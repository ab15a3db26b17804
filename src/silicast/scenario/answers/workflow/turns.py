"""Pools that take the devices of another by turns, as a trainer and its rollouts do."""

from __future__ import annotations

from collections.abc import Sequence

from silicast.core.errors import SilicastError, unknown_name, unmodelled
from silicast.core.naming import near
from silicast.scenario.answers.workflow.pools import StagePool
from silicast.workflow.stages import WorkflowGraph


def check_turns(pools: Sequence[StagePool], graph: WorkflowGraph, *, one_item: bool) -> None:
    """Refuses pools that would run at once on the devices that they share.

    Raises:
        SilicastError: ``shares_with`` names no pool on which stages run, or one with too few
            devices, or stages of both run side by side; ``pools.NAME.shares_with`` is the field.
    """
    homes = {pool.home: pool for pool in pools if pool.home and not pool.shares_with}
    for guest in (pool for pool in pools if pool.shares_with):
        field = f"pools.{guest.home}.shares_with"
        host = homes.get(guest.shares_with)
        itself = next((each for each in pools if each.home == guest.shares_with), None)
        if host is None and itself is not None and itself is not guest:
            raise SilicastError(
                f"{itself.home} has no devices of its own: it shares with {itself.shares_with}",
                field=field,
                hint="leave shares_with out of the pool whose devices they are",
            )
        if host is None:
            raise unknown_name(
                f"no pool {guest.shares_with!r:.80} with devices of its own and stages on them",
                field,
                near(guest.shares_with, list(homes)),
            )
        if guest.gpus > host.gpus:
            raise SilicastError(
                f"{guest.gpus} devices of a pool that has {host.gpus}",
                field=field,
                hint=f"count x parallel degrees of {guest.home}: at most {host.gpus}",
            )
        if not one_item:
            raise unmodelled(
                "items under way at once would run on the same devices at once",
                field,
                "leave out workload.arrival (one item at a time), or pools of their own",
            )
        for guest_stage in guest.stages:
            for host_stage in host.stages:
                names = graph.stages[guest_stage].name, graph.stages[host_stage].name
                if not (_follows(graph, *names) or _follows(graph, *reversed(names))):
                    raise SilicastError(
                        f"stages {names[0]} and {names[1]} do not wait for each other",
                        field=field,
                        hint="after = [...]: one after the other on the same devices",
                    )


def _follows(graph: WorkflowGraph, stage: str, before: str) -> bool:
    """Whether a stage waits for another, at once or through others."""
    front, seen = [stage], set()
    while front:
        for each in graph[front.pop()].after:
            if each == before:
                return True
            if each not in seen:
                seen.add(each)
                front.append(each)
    return False
