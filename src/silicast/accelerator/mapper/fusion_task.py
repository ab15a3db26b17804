"""Two neighbours as the command line gives them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from silicast.accelerator.counting.neighbours import pair_of
from silicast.accelerator.mapper.budget import EFFORT
from silicast.accelerator.mapper.fusion_search import Fused, best_fusion
from silicast.accelerator.mapper.task import Change, aimed, as_stated, einsum_of, task_of
from silicast.core.errors import SilicastError

NEIGHBOURS = "neighbours"
"""What asks for all pairs of a file of layers."""


def fused_task(
    design: str,
    op: str,
    sizes: Sequence[str],
    following: str,
    objective: str = "",
    effort: int = EFFORT,
    at: Change = as_stated,
) -> Fused:
    """An operation and the one that takes what it leaves.

    Args:
        following: the second, in words: ``"matmul m=64 n=64 k=256"``.
        at: what is done to the design before.

    Raises:
        SilicastError: an unknown design or size, or operations that are no neighbours.
    """
    task = at(task_of(design, op, sizes))
    words = shlex.split(following)
    if not words or words == [NEIGHBOURS]:
        raise SilicastError(
            f"expected the operation that follows, found {following!r}",
            field="fuse",
            hint=f'as in --fuse "{op} ..."; `{NEIGHBOURS}` asks for the pairs of a file of layers',
        )
    pair = pair_of(task.einsum, einsum_of(words[0], words[1:]))
    task, wanted, remark = aimed(task, objective)
    fused = best_fusion(pair, task.architecture, task.constraints, objective=wanted, effort=effort)
    return replace(fused, remark=remark) if remark else fused


def all_neighbours(fuse: str) -> bool:
    """Whether pairs of a file of layers are asked for.

    Raises:
        SilicastError: something else is.
    """
    if fuse not in ("", NEIGHBOURS):
        raise SilicastError(
            f"expected {NEIGHBOURS}, found {fuse!r}",
            field="fuse",
            hint="a file of layers says itself what follows what",
        )
    return bool(fuse)
