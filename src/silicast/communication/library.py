"""Which algorithm a library takes for which size: rules of ``catalog/libraries``.

The size limits are the libraries' own defaults; they are rules of software, not measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import final

from silicast.communication.algorithms.algorithm import Collective, algorithm, algorithms
from silicast.communication.topology import Topology
from silicast.core.errors import unknown_name, unsupported
from silicast.core.releases import is_within
from silicast.workload.libraries.catalog import libraries, library
from silicast.workload.libraries.library_file import CollectiveRule, Limit

MIB = 1 << 20
UNLIMITED = 1 << 62

_OWN_SECTION = frozenset({"nvls", "nvls_tree", "short_ring", "multimem", "one_shot", "two_shot"})
"""Algorithms with constants of their own, which only the library's rules name."""

Candidates = tuple[tuple[str, str], ...]


@final
@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """Algorithms that compete for sizes up to a limit; the fastest of them is taken.

    Attributes:
        largest: the largest size in bytes that they serve.
        candidates: (algorithm name, section of the constants) pairs.
    """

    largest: int
    candidates: Candidates


@cache
def usual_library() -> str:
    """The library that carries out collectives where none is named."""
    return next(entry.name for entry in libraries() if entry.usual_collectives)


@cache
def collective_libraries() -> tuple[str, ...]:
    """Libraries with collectives of their own, the usual one first."""
    others = [entry.name for entry in libraries() if entry.collectives]
    return tuple(dict.fromkeys((usual_library(), *others)))


@cache
def usual_algorithms() -> frozenset[str]:
    """Algorithms of the usual library."""
    rules = library(usual_library()).collectives
    return frozenset(name for rule in rules for name, _ in rule.algorithms)


def require_library(name: str) -> None:
    """Refuses a name that is no library with collectives of its own; "" = the usual one.

    Raises:
        SilicastError: unknown library; names all.
    """
    if name and name not in collective_libraries():
        *first, last = collective_libraries()
        raise unknown_name(
            f"unknown communication library {name!r}",
            "implementation",
            f"{', '.join(first)} or {last}",
        )


def choices(
    name: str, op: Collective, topology: Topology, dtype: str = "bf16", version: str = ""
) -> list[AlgorithmChoice]:
    """The choices of a library in order of size; the last has no limit.

    Args:
        name: one of :func:`collective_libraries`; "" = the usual one.
        dtype: element format; the switch adds only some.
        version: of the library; "" = the kernels that most of its releases have.

    Raises:
        SilicastError: unknown library.
    """
    require_library(name)
    usual = [] if name in ("", usual_library()) else choices("", op, topology, dtype, version)
    table: list[AlgorithmChoice] = []
    for rule in library(name or usual_library()).collectives:
        limit = _limit(rule, topology)
        if limit is None or not _holds(rule, op, topology, dtype, version):
            continue
        if rule.algorithms:
            beside = usual[-1].candidates if rule.beside_usual else ()
            table.append(AlgorithmChoice(limit, (*_candidates(rule, topology), *beside)))
        if rule.last or limit == UNLIMITED:
            break
    return [*table, *usual]


def only(
    name: str, rules: list[AlgorithmChoice], op: Collective, topology: Topology
) -> list[AlgorithmChoice]:
    """What is left of rules when the library is told which algorithm to run, as by ``NCCL_ALGO``.

    One that it has not runs with the constants of the links.

    Raises:
        SilicastError: unknown algorithm, or one that cannot carry out the operation there.
    """
    for rule in rules:
        mine = tuple(pair for pair in rule.candidates if pair[0] == name)
        if mine:
            return [AlgorithmChoice(UNLIMITED, mine)]
    if algorithm(name).supports(op, topology) and name not in _OWN_SECTION:
        return [AlgorithmChoice(UNLIMITED, ((name, topology.section),))]
    able = [name for name, model in algorithms().items() if model.supports(op, topology)]
    raise unsupported(
        f"{name} does not carry out {op} of {topology.gpus} devices here",
        "algorithm",
        f"one of {', '.join(name for name in able if name not in _OWN_SECTION)}",
    )


def _holds(
    rule: CollectiveRule, op: Collective, topology: Topology, dtype: str, version: str
) -> bool:
    """Whether a rule's conditions hold and all its algorithms can carry out the operation."""
    least, most = rule.gpus
    if not (
        (not rule.fabric or topology.section in rule.fabric)
        and (not rule.architecture or topology.device.architecture in rule.architecture)
        and least <= topology.gpus <= most
        and rule.switch_adds in (None, topology.multicast)
        and is_within(version, rule.from_, rule.until)
    ):
        return False
    algorithms_used = [algorithm(name) for name, _ in rule.algorithms]
    return all(x.supports(op, topology) and dtype not in x.not_added for x in algorithms_used)


def _candidates(rule: CollectiveRule, topology: Topology) -> Candidates:
    return tuple(
        (name, topology.section if section == "fabric" else section)
        for name, section in rule.algorithms
    )


def _limit(rule: CollectiveRule, topology: Topology) -> int | None:
    """The largest message in bytes, None where the rule has no entry for the topology."""
    if rule.up_to is None and rule.below is None:
        return UNLIMITED
    mebibytes = _entry(rule.below if rule.up_to is None else rule.up_to, topology)
    if mebibytes is None:
        return None
    return int(mebibytes * MIB) - (rule.up_to is None)


def _entry(limit: Limit | None, topology: Topology) -> float | None:
    if limit is None or isinstance(limit, (int, float)):
        return limit
    by_group = limit.get(topology.device.architecture, limit.get("default", {}))
    return by_group.get(str(topology.gpus + topology.gpus % 2), by_group.get("default"))
