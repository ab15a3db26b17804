"""What the columns of the collected tables say of a row's phase, kernel and model family."""

from __future__ import annotations

import re
from collections.abc import Sequence

from silicast.core.errors import SilicastError
from silicast.scenario.kernel_tables._spec import Lowering
from silicast.scenario.reading import shown
from silicast.scenario.strict import near, require
from silicast.workload.families.family import families

PHASES = ("context", "generation")
_SAYS = {
    "context": frozenset(("context", "prefill", "ctx")),
    "generation": frozenset(("generation", "decode", "gen")),
}
"""Phase -> words of kernel names that say so."""
_PARTS = ("logits", "attn_module", "topk", "gen_pre", "gen_post")
"""What names of kernels hold that are a part of a module."""


def take_names(case: Lowering, modelled: Sequence[str]) -> str:
    """Removes ``op_name`` and ``architecture`` from the words; the former is returned.

    Raises:
        SilicastError: a kernel that is no such op ("not_yet" for a part of one), or an architecture
            that no model has.
    """
    architecture = str(case.words.pop("architecture", ""))
    if architecture and architecture not in families():
        raise SilicastError(
            f"unknown architecture {shown(architecture)}",
            kind="unknown_name",
            field="architecture",
            hint=near(architecture, list(families())),
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
    """The phase of a row: its column, else as the names of op and kernel say; "" = not stated.

    Raises:
        SilicastError: the column contradicts the name of the op.
    """
    stated, named = str(case.words.pop("phase", "")), _said(op_name)
    require(
        not (stated and named) or stated == named,
        f"{stated} contradicts op_name = {op_name}",
        "phase",
        "leave one of them out",
    )
    return stated or named or _said(str(case.table.get("variant", "")))


def guessed(case: Lowering, phase: str) -> str:
    """A phase that sizes alone do not tell, said aloud."""
    case.warnings.append(f"the phase is not stated: taken as {phase}; say phase = ...")
    return phase


def _said(name: str) -> str:
    words = frozenset(re.split(r"[^a-z]+", name.casefold()))
    found = [phase for phase, says in _SAYS.items() if says & words]
    return found[0] if len(found) == 1 else ""
