"""Our own model format: the files of ``catalog/models``, and ``{base: name, ...}`` in a scenario.

A file gives the fields of :class:`~silicast.workload.model.ModelConfig`, or a ``base`` and what
differs from it (docs/reference/models.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import msgspec
from msgspec import structs

from silicast.core.errors import SilicastError
from silicast.workload.huggingface import HF_NAMES
from silicast.workload.model import (
    LIMITS,
    MLA,
    LayerSizes,
    ModelConfig,
    MoE,
    Norm,
    NormAt,
    Position,
    QkNorm,
    Recurrent,
    Residual,
    check_size,
    divided,
)
from silicast.workload.precision import Precision
from silicast.workload.sparse import Sparse

_REQUIRED = ("layers", "hidden", "heads", "vocab")


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Unknown keys are errors."""


class PrecisionTable(_Strict, frozen=True):
    """Number formats, as in a scenario (DESIGN section 4)."""

    weights: str | None = None
    activations: str | None = None
    kv_cache: str | None = None
    recipe: str | None = None
    group_size: int | None = None
    experts: str | None = None
    attention: str | None = None

    def over(self, default: Precision) -> Precision:
        """These formats, and ``default`` where they say nothing."""
        return Precision.of(
            weights=self.weights,
            activations=self.activations,
            kv_cache=self.kv_cache,
            recipe=self.recipe,
            group_size=self.group_size,
            experts=self.experts,
            attention=self.attention,
            default=default,
        )


class ParametersTable(_Strict, frozen=True):
    """The count its publisher states: exactly, or rounded as printed ("145.6B").

    Attributes:
        active: what a token passes of it, as printed.
        mtp: the count includes the layers for multi-token prediction; mtp_copies: and copies of
            embedding and head in each of them.
        encoder: it includes the encoder of images; embedding: the embedding table.
    """

    source: str
    exact: int | None = None
    rounded: str | None = None
    active: str | None = None
    mtp: bool = True
    mtp_copies: bool = False
    encoder: bool = True
    embedding: bool = True


class MoETable(_Strict, frozen=True):
    """Experts; see :class:`~silicast.workload.model.MoE`."""

    experts: int | None = None
    topk: int | None = None
    intermediate: int | None = None
    shared_intermediate: int | None = None
    shared_gate: bool | None = None
    router_bias: bool | None = None
    dense_layers: list[int] | None = None
    capacity: int | None = None
    latent: int | None = None


class RecurrentTable(_Strict, frozen=True):
    """Recurrent layers; see :class:`~silicast.workload.model.Recurrent`."""

    key_heads: int | None = None
    key_dim: int | None = None
    value_heads: int | None = None
    value_dim: int | None = None
    taps: int | None = None
    taps_bias: bool | None = None
    chunk: int | None = None
    decay_rank: int | None = None
    gate_rank: int | None = None


class MLATable(_Strict, frozen=True):
    """Latent attention; see :class:`~silicast.workload.model.MLA`."""

    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    q_lora_rank: int | None = None


class SizesTable(_Strict, frozen=True):
    """Sizes of one layer; see :class:`~silicast.workload.model.LayerSizes`."""

    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0
    intermediate: int = 0
    shared_kv: bool = False
    sinks: bool | None = None


class SparseTable(_Strict, frozen=True):
    """Sparse attention; see :class:`~silicast.workload.sparse.Sparse`."""

    index_heads: int | None = None
    index_dim: int | None = None
    selected: int | None = None
    block: int | None = None
    window: int | None = None
    q_rank: int | None = None
    out_groups: int | None = None
    out_rank: int | None = None
    rope_dim: int | None = None
    csa_ratio: int | None = None
    hca_ratio: int | None = None
    streams: int | None = None


class ModelTable(_Strict, frozen=True):
    """A model file; see ``ModelConfig`` for the fields."""

    name: str = ""
    base: str = ""
    aliases: list[str] = []
    family: str | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    intermediate: int | None = None
    vocab: int | None = None
    norm: Norm | None = None
    norm_bias: bool | None = None
    gated: bool | None = None
    activation: Literal["silu", "gelu", "relu", "relu2"] | None = None
    qkv_bias: bool | None = None
    o_bias: bool | None = None
    mlp_bias: bool | None = None
    head_bias: bool | None = None
    qk_norm: bool | None = None
    position: Position | None = None
    position_rows: int | None = None
    embedding_norm: bool | None = None
    residual: Residual | None = None
    tied: bool | None = None
    window: int | None = None
    windows: list[int] | None = None
    max_positions: int | None = None
    mtp_layers: int | None = None
    qk_norm_over: QkNorm | None = None
    no_rope_every: int | None = None
    output_norms: bool | None = None
    sinks: bool | None = None
    chunked: bool | None = None
    mixers: list[str] | None = None
    feeds: list[str] | None = None
    sizes: list[SizesTable] | None = None
    norm_at: NormAt | None = None
    embedding_width: int | None = None
    causal: bool | None = None
    encoder: ModelTable | None = None
    pooler: bool | None = None
    type_rows: int | None = None
    k_bias: bool | None = None
    relative_buckets: int | None = None
    mel_bins: int | None = None
    moe: MoETable | None = None
    mla: MLATable | None = None
    sparse: SparseTable | None = None
    recurrent: RecurrentTable | None = None
    output_gate: bool | None = None
    encoder_parameters: int | None = None
    precision: PrecisionTable = PrecisionTable()
    parameters: ParametersTable | None = None
    source: str | None = None


_OWN = (
    "name", "base", "aliases", "window", "windows", "encoder", "moe", "mla", "sparse",
    "recurrent", "precision", "parameters", "source",
)  # fmt: skip
"""Fields that do not pass into ``ModelConfig`` as they stand."""


def decode_model(data: dict[str, Any], *, file: str = "") -> ModelTable:
    """A model file's content, with Hugging Face's names of the sizes accepted beside ours.

    Raises:
        SilicastError: unknown field, wrong type, or a size given under two names.
    """
    renamed: dict[str, Any] = {}
    for key, value in data.items():
        ours = HF_NAMES.get(key, key)
        if ours in renamed:
            raise SilicastError("given under two names", field=key[:80], file=file)
        renamed[ours] = value
    try:
        return msgspec.convert(renamed, ModelTable)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        field = path.strip("`").removeprefix("$").lstrip(".") or "model"
        hint = ""
        if message.startswith("Object contains unknown field"):
            message = f"unknown field {message.split('`')[1]!r}"
            hint = "see docs/reference/models.md; a config.json names its architectures"
        raise SilicastError(message, field=field, hint=hint, file=file) from None


def build_model(
    table: ModelTable, find: Callable[[str], ModelConfig], *, file: str = ""
) -> ModelConfig:
    """The model of a decoded table.

    Args:
        find: resolves ``base``.

    Raises:
        SilicastError: a size is missing or contradicts another; names file and field.
    """
    try:
        changes = _changes(table)
        if table.base:
            base = find(table.base)
            changes.setdefault("name", f"{base.name} (changed)")
            changes |= _parts(table, base)
            model = base.changed(_window(table, changes, changes.get("layers", base.layers)))
            default = base.default_precision
        else:
            model = _whole(table, changes)
            default = Precision()
    except SilicastError as error:
        raise SilicastError(
            error.message, kind=error.kind, field=error.field, hint=error.hint, file=file
        ) from None
    try:
        precision = table.precision.over(default)
    except SilicastError as error:
        raise error.at("precision", file) from None
    return model if precision == model.default_precision else _with_precision(model, precision)


def _with_precision(model: ModelConfig, precision: Precision) -> ModelConfig:
    return replace(model, default_precision=precision)


def _changes(table: ModelTable) -> dict[str, Any]:
    """The fields of ``ModelConfig`` that the table states."""
    changes = {
        name: value
        for name in table.__struct_fields__
        if name not in _OWN and (value := getattr(table, name)) is not None
    }
    for name in ("mixers", "feeds"):
        if name in changes:
            changes[name] = tuple(changes[name])
    if table.sizes is not None:
        changes["sizes"] = tuple(LayerSizes(**structs.asdict(own)) for own in table.sizes)
    if table.name:
        changes["name"] = table.name
    if table.source is not None:
        changes["source"] = table.source
    if table.parameters is not None and table.parameters.exact is not None:
        changes["published_parameters"] = table.parameters.exact
    return changes


def _parts(table: ModelTable, base: ModelConfig | None) -> dict[str, Any]:
    """Experts and latent attention that the table states, each over the base's."""
    found: dict[str, Any] = {}
    given = (
        ("moe", table.moe, MoE),
        ("mla", table.mla, MLA),
        ("sparse", table.sparse, Sparse),
        ("recurrent", table.recurrent, Recurrent),
    )
    for name, own, kind in given:
        if own is None:
            continue
        stated: dict[str, Any] = {
            field: tuple(value) if isinstance(value, list) else value
            for field in own.__struct_fields__
            if (value := getattr(own, field)) is not None
        }
        old = getattr(base, name) if base is not None else None
        if old is not None:
            if name == "moe" and table.layers is not None:
                cut = tuple(layer for layer in old.dense_layers if layer < table.layers)
                stated.setdefault("dense_layers", cut)
            found[name] = replace(old, **stated)
            continue
        for field in kind.REQUIRED:
            if field not in stated:
                raise SilicastError("missing", field=f"{name}.{field}")
        found[name] = kind(**stated)
    if table.encoder is not None:
        found["encoder"] = _whole(table.encoder, _changes(table.encoder))
    return found


def _window(table: ModelTable, changes: dict[str, Any], layers: int) -> dict[str, Any]:
    """``window`` (all layers) or ``windows`` (one a layer) as ``ModelConfig`` holds them."""
    if table.window is not None and table.windows is not None:
        raise SilicastError("give window or windows, not both", field="windows")
    if table.windows is not None:
        return changes | {"windows": tuple(table.windows)}
    if table.window is not None:
        check_size("layers", layers)
        return changes | {"windows": (table.window,) * layers if table.window else ()}
    return changes


def _require(value: object, name: str) -> None:
    if value is None:
        raise SilicastError("missing", field=name, hint="state it, or a base to start from")


def _whole(table: ModelTable, changes: dict[str, Any]) -> ModelConfig:
    missing = [name for name in _REQUIRED if changes.get(name) is None]
    if missing:
        raise SilicastError(
            f"missing, as are {', '.join(missing[1:])}" if missing[1:] else "missing",
            field=missing[0],
            hint="state it, a base to start from, or the architectures of a config.json",
        )
    if "intermediate" not in changes and table.moe is not None and table.moe.intermediate:
        changes["intermediate"] = table.moe.intermediate  # no layer has an MLP of its own
    if "intermediate" not in changes or (table.moe and table.moe.dense_layers):
        _require(table.intermediate, "intermediate")
    for name in LIMITS:
        if name in changes:
            check_size(name, changes[name])
    changes |= _parts(table, None)
    changes.setdefault("kv_heads", changes["heads"])
    if "head_dim" not in changes:
        mla = changes.get("mla")
        whole = mla.qk_head_dim if mla else divided(changes["hidden"], changes["heads"])
        changes["head_dim"] = whole
    changes.setdefault("name", "inline model")
    changes.setdefault("family", "decoder")
    return ModelConfig(**_window(table, changes, changes["layers"]))
