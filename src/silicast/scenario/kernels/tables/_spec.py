"""Fields of one op, and a table that is being lowered to an op."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from silicast.core.errors import SilicastError, require, unknown_name
from silicast.core.naming import near
from silicast.core.plain_data import shown
from silicast.kernels.registry import implementation_for
from silicast.kernels.rows.chain_model import BACKWARD, BOTH, ChainedKernel
from silicast.workload.families.family import families
from silicast.workload.graphs.op import Dim, Op

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
    phases = [phase for phase, phase_words in _WORDS.items() if phase_words & words]
    return phases[0] if len(phases) == 1 else ""


Range = tuple[int, int]

SIZE: Range = (1, 1 << 31)
TOKENS: Range = (1, 100_000_000)
LENGTH: Range = (0, 100_000_000)
BATCH: Range = (1, 1_000_000)
HEADS: Range = (1, 65_536)
WIDTH: Range = (1, 1 << 24)
DEGREE: Range = (1, 65_536)
ELEMENTS: Range = (1, 1 << 40)


@final
@dataclass(frozen=True)
class Lowering:
    """A table whose values were checked one by one, before it is an op. ``lower`` changes it.

    Attributes:
        table: the stated fields.
        dims, flags: of the op.
        words: textual properties, formats among them; only "kv_dtype" becomes part of the op.
        warnings: of guesses.
    """

    table: Mapping[str, Any]
    dims: dict[str, Dim]
    flags: dict[str, bool]
    words: dict[str, object]
    warnings: list[str] = field(default_factory=list)

    def whole(self, name: str) -> int:
        """A dimension that is no list."""
        value = self.dims[name]
        assert isinstance(value, int)
        return value


def _as_stated(case: Lowering) -> None:
    del case


@final
@dataclass(frozen=True)
class OpSpec:
    """Fields of one op.

    Attributes:
        meaning: one line for the reference.
        required: dimension -> range of sizes.
        optional: dimension -> (range, default); a default of None = left out.
        lists: dimensions that may be lists, one size a sequence.
        flags: yes/no properties and their defaults.
        words: textual properties -> allowed values; () = free text.
        dtypes: textual properties that name a number format.
        main_dtype: the one of these that is the op's ``dtype`` where that is left out; "" = none.
        default_dtype: of the op where no format is stated.
        dtype_names: names of formats in the op's tables alone -> usual names.
        lower: checks the sizes against each other and turns the table's columns into the op's
            own dimensions, flags and formats.
    """

    meaning: str
    required: Mapping[str, Range] = field(default_factory=dict)
    optional: Mapping[str, tuple[Range, int | None]] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()
    flags: Mapping[str, bool] = field(default_factory=dict)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    main_dtype: str = ""
    default_dtype: str = "bf16"
    dtype_names: Mapping[str, str] = field(default_factory=dict)
    lower: Callable[[Lowering], None] = _as_stated

    def names(self) -> list[str]:
        """All fields of the op besides the common ones."""
        return [*self.required, *self.optional, *self.flags, *self.words, *self.dtypes]


DIRECTION = "pass"
"""The field of a table that says which."""
FORWARD, FULL = "forward", "full"
FLAGS = {FORWARD: "", "backward": BACKWARD, FULL: BOTH}
PASSES = tuple(FLAGS)
"""What a call runs: the result, the gradients of its operands, or both."""


def with_pass(op: Op, direction: str) -> Op:
    """The op in a direction.

    Args:
        op: in the family of its table.
        direction: one of :data:`PASSES`, "" = forward, or both of a loss with its gradient.

    Raises:
        SilicastError: gradients of a table whose size is not stated; a loss with its gradient
            that is to run in one direction.

    >>> with_pass(Op.make("rmsnorm", tokens=8, hidden=4096), "backward").variant.flags
    (('backward', True),)
    """
    if not isinstance(implementation_for(op.family, "simt"), ChainedKernel):
        return op
    flags = dict(op.variant.flags)
    if flags.pop(BACKWARD, False):
        direction = direction or FULL
        if direction != FULL:
            hint = "a loss with its gradient is both passes"
            raise SilicastError('is true, but "pass" is not "full"', field="backward", hint=hint)
    flag = FLAGS[direction or FORWARD]
    if flag:
        flags[flag] = True
    if flag and op.family == "embedding" and "vocab" not in dict(op.dims):
        hint = "the gradient is as large as the table"
        raise SilicastError("is missing", field="vocab", hint=hint)
    return replace(op, variant=replace(op.variant, flags=tuple(sorted(flags.items()))))


def without_pass(op: Op) -> tuple[Op, str]:
    """The op as its table states it, and the direction that the table must state ("" = none)."""
    flags = dict(op.variant.flags)
    if not isinstance(implementation_for(op.family, "simt"), ChainedKernel):
        return op, ""
    direction = next((name for name, flag in FLAGS.items() if flag and flags.pop(flag, False)), "")
    return replace(op, variant=replace(op.variant, flags=tuple(sorted(flags.items())))), direction
