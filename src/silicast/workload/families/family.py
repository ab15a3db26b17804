"""A family of models: the table that states how its configurations are read.

Each family is one TOML file of ``catalog/families`` (docs/how-to/add-a-model.md). It is data:
:mod:`silicast.workload.families.reader` interprets it.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Literal, final

import msgspec

from silicast.core.catalog import catalog_files
from silicast.core.decode import MOST_TOML_BYTES, Strict, read_table
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded
from silicast.workload.models.model import (
    MLA,
    LayerSizes,
    ModelConfig,
    MoE,
    Recurrent,
    SharedBlock,
    Sparse,
)
from silicast.workload.models.precision import Precision

Structure = Literal[
    "experts",
    "latent",
    "sparse",
    "mamba",
    "linear",
    "convolution",
    "vision",
    "encoder",
    "sizes",
    "inputs",
    "loops",
]
PARTS: dict[str, type] = {
    "moe": MoE,
    "mla": MLA,
    "sparse": Sparse,
    "recurrent": Recurrent,
    "shared_block": SharedBlock,
    "precision": Precision,
    "window_sizes": LayerSizes,
    "full_sizes": LayerSizes,
}
"""Parts of a model, whose fields a table names as "part.field"; "window_sizes" are those of layers
with a window, "full_sizes" those of layers without."""

_TYPES = {"int": "int", "bool": "bool", "bool | None": "bool"} | dict.fromkeys(
    ("str", "Norm", "NormAt", "Position", "QkNorm", "Residual"), "text"
)
TYPES: dict[str, str] = {
    prefix + field.name: _TYPES[str(field.type)]
    for prefix, kind in (("", ModelConfig), *((f"{name}.", part) for name, part in PARTS.items()))
    for field in fields(kind)
    if str(field.type) in _TYPES
} | {"activation": "activation"}
"""Fields that a table can state -> int, bool, text or activation."""


@final
class ValueRule(Strict, frozen=True):
    """How one value is read from a configuration.

    Attributes:
        key: field of the configuration, or several of which the first that is present counts.
        default: the value where none is present; text is a formula for numbers. None = required.
        values: what each value of the field means; None = the value itself.
        other: what any further value means; None = it is not modelled.
        unset: a number or a word that means the same as a missing field.
        stated: what it means that one of the fields is stated at all, whatever its value.
    """

    key: str | list[str]
    default: bool | int | str | None = None
    values: dict[str, bool | int | str | ValueRule] | None = None
    other: bool | int | str | ValueRule | None = None
    unset: int | str | None = None
    stated: bool | int | str | ValueRule | None = None

    @property
    def keys(self) -> list[str]:
        """The fields of the configuration, in order."""
        return [self.key] if isinstance(self.key, str) else self.key


Value = bool | int | str | ValueRule
"""A fixed value, a formula or a rule."""


class Overlay(Strict, frozen=True):
    """Rules for the fields of a model. A key may name several fields, with spaces between them.

    Attributes:
        structure: our field -> its fixed value; text is a formula for numbers.
        fields: our field -> the field or fields of the configuration, or a rule.
        numbers: further names for formulas -> the same; those named as "part.name" are read only
            where the model has the part.
    """

    structure: dict[str, bool | int | str] = {}
    fields: dict[str, str | list[str] | ValueRule] = {}
    numbers: dict[str, str | list[str] | ValueRule] = {}

    def rules(self) -> dict[str, Value]:
        """Our field or a name for formulas -> its fixed value, formula or rule."""
        read = {**self.fields, **self.numbers}
        rules: dict[str, Value] = {
            name: rule if isinstance(rule, ValueRule) else ValueRule(rule)
            for names, rule in read.items()
            for name in names.split()
        }
        return rules | {n: value for names, value in self.structure.items() for n in names.split()}


@final
class Windows(Strict, frozen=True):
    """Which layers see only the last keys, and how many.

    Attributes:
        size: keys that a query sees; 0 = there are no windows.
        when: there are windows only where this is true.
        below: windows of at least this size change nothing and are dropped.
        per_layer: list of the configuration with an entry a layer; kinds: entry -> a window or not.
        every: where that list is missing, every so many-th layer has none.
        first: and the layers before this one have none.
    """

    size: Value
    when: Value = True
    below: Value | None = None
    per_layer: str = ""
    kinds: dict[str, bool] = msgspec.field(
        default_factory=lambda: {"sliding_attention": True, "full_attention": False}
    )
    every: Value | None = None
    first: Value = 0


@final
class DenseLayers(Strict, frozen=True):
    """Which layers have an MLP instead of experts.

    Attributes:
        first: so many layers at the start.
        every, offset: of the others, all but layer ``offset`` and every ``every``-th from there on.
        last: and the layers behind this one.
        named: list of the configuration with the numbers of further layers.
        per_layer: list of the configuration: 0 or "dense" for a dense layer, 1 or "sparse" for one
            with experts; where it is present nothing else counts.
    """

    first: Value = 0
    every: Value = 1
    offset: Value = 0
    last: Value = "layers"
    named: str = ""
    per_layer: str = "mlp_layer_types"


@final
class Mixers(Strict, frozen=True):
    """Which token mixer each layer has.

    Attributes:
        per_layer: list of the configuration; kinds: its entries -> mixers.
        usual: entry of all layers where the list is missing; "" = the list is required.
        nth, every, offset: entry of layer ``offset`` and every ``every``-th from there on there.
        named: list of the configuration with the numbers of further layers of this entry.
        longer: the list may go on behind the layers, for those of multi-token prediction.
    """

    per_layer: str
    kinds: dict[str, str]
    usual: str = ""
    nth: str = ""
    every: Value | None = None
    offset: Value = -1
    named: str = ""
    longer: bool = False


@final
class ModelFamily(Overlay, frozen=True):
    """How the configurations of some architectures are read.

    Attributes:
        architectures: entries of ``architectures`` that it reads.
        model_types: values of ``model_type`` that it reads where ``architectures`` is missing.
        like: the family whose rules hold where this one has none; "" = none.
        structures: of its models beyond a dense decoder; fields of other structures in its
            configurations are refused.
        text_part: its fields may lie in ``text_config``.
        alone: architectures of no family are not read as this one, however like it they look.
        refuse: field of the configuration -> the structure, not modelled yet, that it asks for.
        ignored: fields that state nothing more of the structure in this family.
        when: part -> name of a rule; the part exists only where its value is not 0 or false.
        windows, dense_layers, mixers: kinds of layers.
        layers: function of :mod:`silicast.workload.families.layers` that reads the layers instead.
        vision: function of :mod:`silicast.workload.families.vision` that counts an encoder.
        encoder: rules that differ in the encoder before a decoder.
        name: of its file.
    """

    architectures: list[str] = []
    model_types: list[str] = []
    like: str = "decoder"
    structures: list[Structure] = []
    text_part: bool = False
    alone: bool = False
    refuse: dict[str, str] = {}
    ignored: list[str] = []
    when: dict[str, str] = {}
    windows: Windows | None = None
    dense_layers: DenseLayers | None = None
    mixers: Mixers | None = None
    layers: Literal[
        "", "block_configs", "one_part_a_layer", "linear_attn_config", "shared_blocks"
    ] = ""
    vision: Literal["", "moon_vit", "qwen3", "llama4", "siglip", "gemma4"] = ""
    encoder: Overlay | None = None
    name: str = ""

    def over(self, parent: ModelFamily) -> ModelFamily:
        """The same with what ``parent`` states where this family states nothing."""
        rules = parent.rules() | self.rules()
        inherited = ("windows", "dense_layers", "mixers", "layers", "vision", "encoder", "when")
        return msgspec.structs.replace(
            self,
            like=parent.like,
            structure={
                name: rule for name, rule in rules.items() if not isinstance(rule, ValueRule)
            },
            fields={name: rule for name, rule in rules.items() if isinstance(rule, ValueRule)},
            numbers={},
            refuse=parent.refuse | self.refuse,
            ignored=[*parent.ignored, *self.ignored],
            **{name: getattr(self, name) or getattr(parent, name) for name in inherited},
        )


def find_family(key: str) -> ModelFamily | None:
    """The family that reads an architecture or model type; None = there is none.

    Only files that hold ``key`` in quotes are parsed.

    Raises:
        SilicastError: a file is wrong; names file and field.
    """
    quoted = f'"{key}"'.encode()
    for path in catalog_files("families", ".toml"):
        if quoted in read_bounded(path, MOST_TOML_BYTES, "a family of models"):
            family = _family(path)
            if key in (*family.architectures, *family.model_types):
                return family
    return None


def common_family() -> ModelFamily:
    """The common structure of decoders, which reads what no other family does."""
    return next(_family(p) for p in catalog_files("families", ".toml") if p.stem == "common")


@cache
def families() -> dict[str, ModelFamily]:
    """Architecture or model type -> its family, of all files.

    Raises:
        SilicastError: a file is wrong, or two read the same; names file and field.
    """
    families: dict[str, ModelFamily] = {}
    for path in catalog_files("families", ".toml"):
        family = _family(path)
        for key in (*family.architectures, *family.model_types):
            if families.setdefault(key, family) is not family:
                raise SilicastError(f"{families[key].name} reads {key} too", file=str(path))
    return families


@cache
def _family(path: Path) -> ModelFamily:
    """The family of one file, over those that it is like."""
    family, seen = _table(path), {path.stem}
    files = {catalog_file.stem: catalog_file for catalog_file in catalog_files("families", ".toml")}
    while family.like:
        if family.like not in files or family.like in seen:
            raise SilicastError(
                "no other family of this name", field="like", hint=", ".join(files), file=str(path)
            )
        seen.add(family.like)
        family = family.over(_table(files[family.like]))
    return family


@cache
def _table(path: Path) -> ModelFamily:
    """The content of one file."""
    family = msgspec.structs.replace(
        read_table(path, ModelFamily, "docs/how-to/add-a-model.md"), name=path.stem
    )
    for rules in filter(None, (family, family.encoder)):
        for name in " ".join((*rules.structure, *rules.fields)).split():
            if name not in TYPES:
                raise SilicastError("no field of a model", field=name, file=str(path))
    return family
