"""Latent attention (MLA): its kernels and the whole block, with the columns of their tables.

``isl`` new tokens follow ``step`` past ones in a context row. In a generation row ``isl - 1 +
step`` tokens are cached before the new one: tables that count the context in ``step`` have
``isl`` = 1, those that count it in ``isl`` have ``step`` = 0. ``num_heads`` is the rank's; so is
every size: ``tp_size`` changes nothing. Without a phase, a row of a block with
``step`` = 0 may be either: it is then taken as a prefill, or as a decode step if ``isl`` = 1, and
a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from silicast.core.errors import require
from silicast.scenario.kernels.tables._spec import (
    BATCH,
    DEGREE,
    HEADS,
    LENGTH,
    PHASES,
    TOKENS,
    WIDTH,
    Lowering,
    OpSpec,
    Range,
    guessed,
    stated_phase,
    take_names,
)
from silicast.scenario.kernels.tables.attention import require_past
from silicast.workload.graphs.op import Dim
from silicast.workload.models.lookup import find_model

WIDTHS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
"""DeepSeek-V3's widths of a head, and of the block below: for tables that name no model."""
BLOCK = {"hidden": 7168, "q_lora_rank": 1536}
OP_NAMES = {phase: (f"mla_{phase}", f"{phase}_mla") for phase in PHASES}
"""Phase -> names of the kernel in the tables."""
MODULE_NAMES = tuple(
    name
    for phase, names in OP_NAMES.items()
    for name in (f"mla_{phase}_module", *names, f"wideep_{phase}_mla")
)


def _prefill(case: Lowering) -> None:
    _require_phase(case, "context")
    _lengths(case, decode=False)
    case.dims.update(_widths(case, WIDTHS))
    _formats(case)


def _decode(case: Lowering) -> None:
    _require_phase(case, "generation")
    _lengths(case, decode=True)
    case.dims.update(_widths(case, WIDTHS))
    _formats(case)


def _module(case: Lowering) -> None:
    """The phase and the format of the linear layers become flags of the op."""
    decode = _phase(case) == "generation"
    _lengths(case, decode=decode)
    case.dims.update(_widths(case, WIDTHS | BLOCK))
    _formats(case)
    if decode:
        case.flags["generation"] = True
    if linear := case.words.pop("gemm_type", ""):
        case.flags[f"gemm_{linear}"] = True


def _require_phase(case: Lowering, phase: str) -> None:
    take_names(case, OP_NAMES[phase])
    stated = str(case.words.pop("phase", phase))
    require(
        stated == phase,
        f"this op is of {phase}, not of {stated}",
        "phase",
        "mla_prefill is of context, mla_decode of generation",
    )


def _phase(case: Lowering) -> str:
    phase = stated_phase(case, take_names(case, MODULE_NAMES))
    if phase:
        return phase
    phase = "context" if case.dims.get("isl", 1) != 1 or "q_len" in case.dims else "generation"
    in_doubt = "isl" in case.dims and case.dims.get("step", 0) == 0
    return guessed(case, phase) if in_doubt else phase


def _lengths(case: Lowering, *, decode: bool) -> None:
    """``batch_size``, ``isl`` and ``step``, or one length a sequence."""
    dims = case.dims
    dims.pop("tp_size", None)
    batch, isl, step = (dims.pop(name, None) for name in ("batch_size", "isl", "step"))
    stated = dims.pop("batch", None)
    if "q_len" in dims or "kv_len" in dims:
        require(
            isl is None and step is None,
            "both isl/step and lengths are given",
            "isl" if isl is not None else "step",
            "keep one of the two ways",
        )
        kv = dims.setdefault("kv_len", dims.get("q_len", 0))
        if not decode:
            dims.setdefault("q_len", kv)
        lists = [v for v in (dims.get("q_len"), kv) if isinstance(v, tuple)]
        require(
            not lists or batch in (None, len(lists[0])),
            f"batch_size is {batch}, but the lists have {len(lists[0]) if lists else 0} lengths",
            "batch_size",
            "leave batch_size out",
        )
        if not lists:
            dims["batch"] = batch or stated or 1
        if not decode:
            require_past(case)
        return
    require(isl is not None or step is not None, "is missing", "isl", "give isl and step")
    new, past = int(str(isl if isl is not None else 1)), int(str(step or 0))
    require(new >= 1, f"isl = {new}", "isl", "at least one token")
    dims["batch"] = batch or stated or 1
    dims["q_len"] = 1 if decode else new
    dims["kv_len"] = new - 1 + past if decode else new + past


def _widths(case: Lowering, names: Mapping[str, int]) -> dict[str, Dim]:
    """Stated widths, else those of the model, else DeepSeek-V3's."""
    table: dict[str, Dim] = dict(names)
    name = str(case.words.pop("model", "") or "")
    if name:
        model = find_model(name)
        mla = model.mla
        require(mla is not None, f"{model.name} has no latent attention", "model")
        assert mla is not None
        widths = {n: getattr(mla, n) for n in (*WIDTHS, "q_lora_rank")} | {"hidden": model.hidden}
        table = {n: int(widths[n] or 0) for n in names}
    return table | {n: case.dims[n] for n in names if n in case.dims}


def _formats(case: Lowering) -> None:
    case.words.pop("mla_dtype", None)
    if cache := case.words.pop("kv_cache_dtype", ""):
        case.words["kv_dtype"] = cache


_LENGTHS: Mapping[str, tuple[Range, int | None]] = {
    "batch_size": (BATCH, None),
    "batch": (BATCH, None),
    "isl": (LENGTH, None),
    "step": (LENGTH, None),
    "q_len": (TOKENS, None),
    "kv_len": (LENGTH, None),
    "tp_size": (DEGREE, 1),
    **dict.fromkeys(WIDTHS, ((1, 1 << 16), None)),
}
_WORDS = {"phase": PHASES, "model": (), "architecture": (), "op_name": ()}


def _spec(meaning: str, lower: object, *, block: bool = False) -> OpSpec:
    table: dict[str, tuple[Range, int | None]] = {}
    if block:
        table = {"hidden": (WIDTH, None), "q_lora_rank": ((0, 1 << 24), None)}
    return OpSpec(
        meaning,
        {"num_heads": HEADS},
        {**_LENGTHS, **table},
        lists=frozenset({"q_len", "kv_len"}),
        words=_WORDS,
        dtypes=("mla_dtype", "kv_cache_dtype", "gemm_type"),
        main_dtype="mla_dtype",
        lower=lower,  # type: ignore[arg-type]
    )


OPS: Mapping[str, OpSpec] = {
    "mla_prefill": _spec("latent attention of a prefill, the kernel or an engine's call", _prefill),
    "mla_decode": _spec("latent attention of a decode step, absorbed", _decode),
    "mla_module": _spec("latent attention with its projections", _module, block=True),
}
