"""Phase, kernel and model family of a row by the columns of the collected tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from silicast.core.errors import SilicastError, require, unknown_name
from silicast.core.naming import near
from silicast.core.plain_data import shown
from silicast.scenario.kernels.tables._spec import Lowering
from silicast.workload.families.family import families

PHASES = ("context", "generation")
_WORDS = {
    "context": frozenset(("context", "prefill", "ctx")),
    "generation": frozenset(("generation", "decode", "gen")),
}
"""Phase -> words in kernel names that mean it."""
_PARTS = ("logits", "attn_module", "topk", "gen_pre", "gen_post")
"""Words in names of kernels that are a part of a module."""


def take_names(case: Lowering, modelled: Sequence[str]) -> str:
    """Removes ``op_name`` and ``architecture`` from the words; returns the former.

    Raises:
        SilicastError: a kernel that is no such op ("not_yet" for a part of one), or an architecture
            that no model has.
    """
    architecture = str(case.words.pop("architecture", ""))
    if architecture and architecture not in families():
        raise unknown_name(
            f"unknown architecture {shown(architecture)}",
            "architecture",
            near(architecture, list(families())),
        )
    name = str(case.words.pop("op_name", ""))
    if name and name not in modelled:
        part = any(word in name for word in _PARTS)
        raise SilicastError(
            f"{shown(name)} is not modelled on its own" if part else f"unknown {shown(name)}",
            kind="not_yet" if part else "unknown_name",
            field="op_name",
            hint=f"one of {', '.join(modelled)}",
        )
    return name


def stated_phase(case: Lowering, op_name: str) -> str:
    """The phase of a row: its column, else by the names of op and kernel; "" = not stated.

    Raises:
        SilicastError: the column contradicts the name of the op.
    """
    stated, named = str(case.words.pop("phase", "")), _phase_in(op_name)
    require(
        not (stated and named) or stated == named,
        f"{stated} contradicts op_name = {op_name}",
        "phase",
        "leave one of them out",
    )
    return stated or named or _phase_in(str(case.table.get("variant", "")))


def guessed(case: Lowering, phase: str) -> str:
    """A phase that sizes alone do not determine, with a warning."""
    case.warnings.append(f"the phase is not stated: taken as {phase}; say phase = ...")
    return phase


def _phase_in(name: str) -> str:
    words = frozenset(re.split(r"[^a-z]+", name.casefold()))
    items = [phase for phase, known in _WORDS.items() if known & words]
    return items[0] if len(items) == 1 else ""
