"""Sizes that a program leaves open, by their place in its inputs; of every format of programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from silicast.core.errors import SilicastError, unknown_name

USUAL = {"batch": 0, "seq_len": 1}
"""Names of axes as workloads use them."""


def sizes_of_places(
    positions: Mapping[str, str], size_by_name: Mapping[str, int]
) -> dict[str, int]:
    """Sizes of dynamic dimensions by their place.

    Args:
        positions: input and axis ("tokens.0") -> name of the dimension in the program, "" = none.
        size_by_name: size by such a name, by place, or as "batch" and "seq_len": the only dynamic
            dimension that is first, or second, in inputs.

    Raises:
        SilicastError: a name in ``size_by_name`` is unknown, or its size is below 1.
    """
    sizes: dict[str, int] = {}
    for name, size in size_by_name.items():
        if size < 1:
            raise SilicastError(f"expected at least 1, found {size}", field=name)
        hit = [position for position, item in positions.items() if name == item]
        hit = hit or [position for position in positions if name == position]
        if not hit and name in USUAL:
            hit = [position for position in positions if position.endswith(f".{USUAL[name]}")]
            if len({positions[position] for position in hit}) != 1:
                continue  # a workload may state sizes that a program does not leave open
        if not hit:
            raise unknown_name(
                f"the program has no dynamic dimension {name!r}",
                "dynamic",
                f"it has: {listed(positions, positions)}",
            )
        sizes |= dict.fromkeys(hit, size)
    return sizes


def listed(indices: Mapping[str, str], shown: Iterable[str]) -> str:
    """Places with their names, for errors.

    >>> listed({"tokens.0": "s77", "mask.0": ""}, ["tokens.0", "mask.0"])
    'tokens.0 (s77), mask.0'
    """
    labels = (
        f"{position} ({indices[position]})" if indices[position] else position for position in shown
    )
    return ", ".join(labels) or "none"
