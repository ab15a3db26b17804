"""Our own model format: the files of ``catalog/models``, and ``{base: name, ...}`` in a scenario.

A file gives the fields of :class:`~silicast.workload.models.model.ModelConfig`, or a ``base`` and
what
differs from it (docs/reference/models.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any, ForwardRef, get_type_hints

import msgspec

from silicast.core.decode import Terse, decode
from silicast.core.errors import SilicastError, errors_at
from silicast.workload.models.model import (
    LIMITS,
    MLA,
    LayerSizes,
    ModelConfig,
    MoE,
    Recurrent,
    SharedBlock,
    Sparse,
    check_size,
    divided,
)
from silicast.workload.models.precision import Precision

HF_NAMES: dict[str, str] = {
    "num_hidden_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads", "intermediate_size": "intermediate", "vocab_size": "vocab",
    "max_position_embeddings": "max_positions", "tie_word_embeddings": "tied",
    "hidden_act": "activation", "n_layer": "layers", "n_embd": "hidden", "n_head": "heads",
    "n_inner": "intermediate", "ffn_dim": "intermediate",
}  # fmt: skip
"""Fields of Hugging Face -> fields of ``ModelConfig``."""

_REQUIRED = ("layers", "hidden", "heads", "vocab")
_PARTS: dict[str, type] = {
    "moe": MoE,
    "mla": MLA,
    "sparse": Sparse,
    "recurrent": Recurrent,
    "shared_block": SharedBlock,
}
_NOT_STATED = (
    "name",
    "source",
    "default_precision",
    "published_parameters",
    "assumed",
    "ignored_fields",
    "implied",
)


class ModelPrecisionTable(Terse, frozen=True):
    """Number formats, as in a scenario (DESIGN section 4)."""

    weights: str | None = None
    activations: str | None = None
    kv_cache: str | None = None
    recipe: str | None = None
    group_size: int | None = None
    experts: str | None = None
    attention: str | None = None


class ParametersTable(Terse, frozen=True):
    """The count its publisher states: exactly, or rounded as printed ("145.6B").

    Attributes:
        active: the part of it that a token passes, as printed.
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


class ModelHeader(Terse, frozen=True):
    """What a model file states beside the fields of ``ModelConfig``.

    Attributes:
        window: of all layers, instead of ``windows``.
        variants: checkpoints of the same structure whose configurations differ in some fields:
            each a table like a file with this one as its ``base``.
    """

    name: str = ""
    base: str = ""
    aliases: list[str] = []
    variants: list[dict[str, Any]] = []
    window: int | None = None
    precision: ModelPrecisionTable = ModelPrecisionTable()
    parameters: ParametersTable | None = None
    source: str | None = None


def _table(kind: type, base: type, types: dict[str, Any]) -> Any:
    """A strict table with the fields of a dataclass, each of which may be left out.

    Args:
        types: fields whose type is another one in the table; None = not in it.
    """
    value = get_type_hints(kind) | types
    members: list[tuple[str, Any, Any]] = [
        (field.name, value[field.name] | None, None)
        for field in fields(kind)
        if value[field.name] is not None
    ]
    name = f"{kind.__name__}Table"
    return msgspec.defstruct(name, members, bases=(base,), module=__name__, frozen=True)


ModelTable: type[ModelHeader] = _table(
    ModelConfig,
    ModelHeader,
    {part: _table(kind, Terse, {}) for part, kind in _PARTS.items()}
    | dict.fromkeys(_NOT_STATED)
    | {"sizes": list[_table(LayerSizes, Terse, {})], "encoder": ForwardRef("ModelTable")},  # type: ignore[misc]
)
"""A model file: a header, and the fields of ``ModelConfig``."""


def decode_model(data: dict[str, Any], *, file: str = "") -> ModelHeader:
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
    return decode(renamed, ModelTable, file=file, page="docs/reference/models.md", also=HF_NAMES)


def build_model(
    table: ModelHeader, find: Callable[[str], ModelConfig], *, file: str = ""
) -> ModelConfig:
    """The model of a decoded table.

    Args:
        find: resolves ``base``.

    Raises:
        SilicastError: a size is missing or contradicts another; names file and field.
    """
    try:
        base = find(table.base) if table.base else None
        model = _whole(table) if base is None else _changed(table, base)
    except SilicastError as error:
        raise error.located(file=error.file or file) from None
    default = Precision() if base is None else base.default_precision
    with errors_at("precision", file):
        precision = Precision.from_formats(**_stated(table.precision), default=default)
    same = precision == model.default_precision
    return model if same else replace(model, default_precision=precision)


def _stated(table: msgspec.Struct) -> dict[str, Any]:
    """The fields that a table states."""
    entries = {name: getattr(table, name) for name in table.__struct_fields__}
    return {name: value for name, value in entries.items() if value is not None}


def _changes(table: ModelHeader) -> dict[str, Any]:
    """The fields of ``ModelConfig`` that a table states, its parts left out."""
    values = _stated(table)
    header = {*ModelHeader.__struct_fields__, *_PARTS, "encoder"} - {"source"}
    changes = {name: value for name, value in values.items() if name not in header}
    if "sizes" in changes:
        changes["sizes"] = tuple(LayerSizes(**_stated(change)) for change in changes["sizes"])
    if table.name:
        changes["name"] = table.name
    if table.parameters is not None and table.parameters.exact is not None:
        changes["published_parameters"] = table.parameters.exact
    return changes


def _changed(table: ModelHeader, base: ModelConfig) -> ModelConfig:
    """``base`` with what the table states."""
    changes = {"name": f"{base.name} (changed)"} | _changes(table)
    changes |= _parts(table, base)
    return changed_model(base, _window(table, changes, changes.get("layers", base.layers)))


def changed_model(base: ModelConfig, changes: dict[str, Any]) -> ModelConfig:
    """``base`` with some fields changed.

    Relations that the base has follow along unless given: ``head_dim`` stays hidden / heads, or the
    width of the latent's heads, and ``kv_heads`` stays equal to heads. One window for all layers
    stays so for another number of layers; with fewer layers, patterns over them are cut. The
    published count does not carry over.

    Raises:
        SilicastError: the result contradicts itself.
    """
    for name in LIMITS:
        if name in changes:
            check_size(name, changes[name])
    old = {field.name: getattr(base, field.name) for field in fields(base)}
    values: dict[str, Any] = old | {"published_parameters": 0} | changes
    layers, follows = values["layers"], old.keys() - changes.keys()
    if "kv_heads" in follows and (base.kv_heads == base.heads or values["mla"] is not None):
        values["kv_heads"] = values["heads"]
    if "head_dim" in follows and values["mla"] is not None:
        values["head_dim"] = values["mla"].qk_head_dim
    elif "head_dim" in follows and base.head_dim * base.heads == base.hidden:
        values["head_dim"] = divided(values["hidden"], values["heads"])
    if "windows" in follows and len(set(base.windows)) == 1:
        values["windows"] = base.windows[:1] * layers
    for name in follows & {"windows", "mixers", "feeds", "sizes"}:
        values[name] = values[name][:layers]
    if base.moe is not None and "moe" in follows:
        dense_layers = tuple(layer for layer in base.moe.dense_layers if layer < layers)
        values["moe"] = replace(base.moe, dense_layers=dense_layers)
    return ModelConfig(**values)


def _parts(table: Any, base: ModelConfig | None) -> dict[str, Any]:
    """Experts, latent attention and further parts that the table states, each over the base's."""
    parts: dict[str, Any] = {}
    for name, kind in _PARTS.items():
        changed, base_part = getattr(table, name), getattr(base, name, None)
        if changed is None:
            continue
        values = _stated(changed)
        if base_part is None:
            for field in fields(kind):
                if field.default is MISSING and field.name not in values:
                    raise SilicastError("missing", field=f"{name}.{field.name}")
            parts[name] = kind(**values)
            continue
        if name == "moe" and table.layers is not None:
            cut = tuple(layer for layer in base_part.dense_layers if layer < table.layers)
            values.setdefault("dense_layers", cut)
        parts[name] = replace(base_part, **values)
    if table.encoder is not None:
        parts["encoder"] = _whole(table.encoder)
    return parts


def _window(table: ModelHeader, changes: dict[str, Any], layers: int) -> dict[str, Any]:
    """``window`` (all layers) or ``windows`` (one a layer) as ``ModelConfig`` holds them."""
    if table.window is None:
        return changes
    if "windows" in changes:
        raise SilicastError("give window or windows, not both", field="windows")
    check_size("layers", layers)
    return changes | {"windows": (table.window,) * layers if table.window else ()}


def _whole(table: ModelHeader) -> ModelConfig:
    """The model of a table without a base."""
    changes = _changes(table)
    missing = [name for name in _REQUIRED if name not in changes]
    if missing:
        raise SilicastError(
            f"missing, as are {', '.join(missing[1:])}" if missing[1:] else "missing",
            field=missing[0],
            hint="state it, a base to start from, or the architectures of a config.json",
        )
    moe: Any = getattr(table, "moe", None)
    if moe is not None and moe.intermediate and not moe.dense_layers:
        changes.setdefault("intermediate", moe.intermediate)  # no layer has an MLP of its own
    if "intermediate" not in changes:
        raise SilicastError(
            "missing", field="intermediate", hint="state it, or a base to start from"
        )
    for name in LIMITS:
        if name in changes:
            check_size(name, changes[name])
    changes |= _parts(table, None)
    changes.setdefault("kv_heads", changes["heads"])
    if "head_dim" not in changes:
        mla = changes.get("mla")
        changes["head_dim"] = (
            mla.qk_head_dim if mla else divided(changes["hidden"], changes["heads"])
        )
    changes = {"name": "inline model", "family": "decoder"} | changes
    return ModelConfig(**_window(table, changes, changes["layers"]))
