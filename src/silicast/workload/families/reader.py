"""Reads a configuration as the table of its family states."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.formats.fields import Fields
from silicast.workload.families import layers
from silicast.workload.families.family import PARTS, TYPES, ModelFamily, Value, ValueRule
from silicast.workload.models.model import LayerSizes, ModelConfig, check_size, divided
from silicast.workload.models.precision import Precision

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu", "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu", "gelu_python": "gelu", "relu": "relu", "relu2": "relu2",
    "relu_squared": "relu2", "xielu": "gelu", "quick_gelu": "gelu", "gelu_tanh": "gelu",
    "gelu_accurate": "gelu", "swiglu": "silu", "geglu": "gelu",
}  # fmt: skip
"""Names of activation functions in configurations -> ours; xIELU is a few operations and one
exponential an element, as GELU is."""
_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "*": operator.mul,
    "+": operator.add,
    "//": operator.floordiv,
    "/": divided,
}
"""Operators of formulas, applied from left to right; "/" must leave no remainder."""


@final
@dataclass(frozen=True, slots=True)
class ClassDefaults:
    """What the class of an architecture gives to fields that a configuration leaves out.

    Attributes:
        values: field -> value.
        sizes: also to fields that the family requires.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    sizes: bool = False


def read_model(
    family: ModelFamily,
    fields: Fields,
    name: str,
    precision: Precision,
    defaults: ClassDefaults | None = None,
) -> ModelConfig:
    """The model of a configuration of ``family``.

    Args:
        name: what to call it.
        precision: number formats of the checkpoint.
        defaults: values of fields that the configuration leaves out, by the architecture's class.

    Raises:
        SilicastError: a field is missing, of the wrong type or contradicts another.
    """
    defaults = defaults or ClassDefaults()
    for name_of_field, missing in family.refuse.items():
        fields.refuse(name_of_field, missing)
    rules, encoder = family.rules(), None
    if family.encoder is not None:
        before = Reader(family, rules | family.encoder.rules(), fields, defaults)
        encoder = before.model(f"{name}, encoder", precision)
    return Reader(family, rules, fields, defaults).model(name, precision, encoder)


@final
class Reader:
    """Values of a configuration by the names of a family's rules, each read when first asked for.

    Args:
        rules: the family's, in an encoder with those that differ there.
        defaults: values of fields that are left out; one that is null has the rule's default.
    """

    def __init__(
        self,
        family: ModelFamily,
        rules: Mapping[str, Value],
        fields: Fields,
        defaults: ClassDefaults,
    ) -> None:
        self.fields = fields
        self._defaults = defaults
        self._family = family
        self._rules = rules
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            rule = self._rules[name]
            flag = (
                isinstance(rule, ValueRule) and rule.values is None and type(rule.default) is bool
            )
            kind = TYPES.get(name) or ("bool" if flag else "int")
            self._values[name] = self.value(rule, kind)
            if name == "layers":  # what is held per layer depends on it
                check_size(name, self._values[name])
        return self._values[name]

    def has(self, name: str) -> bool:
        """Whether the family has a rule of this name."""
        return name in self._rules

    def value(self, rule: Value, kind: str = "int") -> Any:
        """A fixed value, the result of a formula, or what the configuration states by a rule.

        Args:
            kind: int, bool, text or activation.
        """
        if not isinstance(rule, ValueRule):
            return self._fixed(rule, kind)
        if rule.stated is not None and any(self.fields.has(key) for key in rule.keys):
            self.fields.get(*rule.keys)
            return self.value(rule.stated, kind)
        if rule.values is None:
            return self._stated(rule, kind)
        default_kind = {bool: "bool", int: "int"}.get(type(rule.default), "text")
        text = str(self._stated(rule, default_kind))
        text = text.lower() if default_kind == "bool" else text
        meant = rule.values.get(text, rule.other)
        if meant is None:
            raise layers.not_modelled(rule.keys[0], text, rule.values)
        return self.value(meant, kind)

    def _stated(self, rule: ValueRule, kind: str) -> Any:
        """What the configuration states, or the rule's default."""
        fields = self.fields
        pairs = ((key, fields.get(key)) for key in rule.keys)
        key = next((k for k, v in pairs if v is not None and (v is False or v != rule.unset)), None)
        if key is None and (of_class := self._of_class(rule)) is not None:
            fields = Fields(self._defaults.values)
            key = of_class
        if key is None and rule.default is not None:
            return self._fixed(rule.default, kind)
        if key is None or kind == "int":
            return _one_integer(fields, key or rule.keys[0])
        if kind == "bool":
            return fields.flag(key, default=False)
        return activation(fields, key) if kind == "activation" else fields.text(key)

    def _of_class(self, rule: ValueRule) -> str | None:
        """The field of a rule whose value the architecture's class gives where a configuration
        leaves all of them out.
        """
        required = rule.default is None and not self._defaults.sizes
        if required or any(key in self.fields.values for key in rule.keys):
            return None
        return next((key for key in rule.keys if key in self._defaults.values), None)

    def _fixed(self, value: bool | int | str, kind: str) -> Any:
        if not isinstance(value, str) or kind == "text":
            return value
        if kind == "activation":
            return ACTIVATIONS[value]
        number = self._formula(value)
        return bool(number) if kind == "bool" else number

    def _formula(self, text: str) -> int:
        terms = text.split()
        try:
            numbers = [int(term) if term.isdigit() else self[term] for term in terms[::2]]
            value = int(numbers[0])
            for sign, number in zip(terms[1::2], numbers[1:], strict=True):
                value = _OPERATORS[sign](value, number)
        except (KeyError, IndexError, ValueError):
            file = f"{self._family.name}.toml"
            raise SilicastError(f"{text!r} is not a formula", field=text, file=file) from None
        return value

    def model(
        self, name: str, precision: Precision, encoder: ModelConfig | None = None
    ) -> ModelConfig:
        """The model, with the encoder before it.

        Raises:
            SilicastError: see :func:`read_model`.
        """
        family = self._family
        table: dict[str, Any] = {"family": family.name, "encoder": encoder}
        if family.layers:
            described = layers.READERS[family.layers](self)
            self._values |= described
            table |= described
        by_rule = {rule: self[rule] for rule in self._rules if "." not in rule}
        table |= {rule: value for rule, value in by_rule.items() if rule in TYPES}
        table |= self._windows()
        if sizes := layers.stated_sizes(self):
            table["sizes"] = sizes
        if family.mixers is not None:
            table["mixers"] = layers.mixers(self, family.mixers)
        without_experts = "feeds" in table and "experts" not in table["feeds"]
        for part in (
            "mla",
            "sparse",
            "recurrent",
            "shared_block",
            *(() if without_experts else ("moe",)),
        ):
            if values := self._part(part):
                table[part] = PARTS[part](**values)
        if family.vision:
            from silicast.workload.families.vision import encoder_heads, encoder_parameters

            table["encoder_parameters"] = encoder_parameters(family.vision, self.fields)
            table["encoder_heads"] = encoder_heads(family.vision, self.fields)
        if table.get("position") == "learned":
            table.setdefault("position_rows", table["max_positions"])
        if table.get("embedding_width") == table["hidden"]:
            table["embedding_width"] = 0  # no product leads from the embedding
        return ModelConfig(name=name, default_precision=self._formats(precision), **table)

    def _part(self, part: str) -> dict[str, Any]:
        """Values of a part of the model; none where the model does not have it."""
        rules = [rule for rule in self._rules if rule.startswith(f"{part}.") and rule in TYPES]
        condition = self._family.when.get(part)
        if not rules or (condition and not self[condition]):
            return {}
        values = {rule.partition(".")[2]: self[rule] for rule in rules}
        if part == "moe" and self._family.dense_layers is not None:
            values["dense_layers"] = layers.dense_layers(self, self._family.dense_layers)
        return values

    def _windows(self) -> dict[str, Any]:
        """Windows of the layers, and sizes of the layers with and without one."""
        rule, windows = self._family.windows, dict[str, Any]()
        if rule is None or not self.value(rule.when, "bool"):
            return windows
        size, marks = layers.window_size(self, rule), layers.have_window(self, rule)
        if size and any(marks):
            windows["windows"] = tuple(size if mark else 0 for mark in marks)
        full, windowed = self._part("full_sizes"), self._part("window_sizes")
        if full or windowed:
            sizes = LayerSizes(**full), LayerSizes(**windowed)
            windows["sizes"] = layers.reusing(self, [sizes[mark] for mark in marks])
        return windows

    def _formats(self, precision: Precision) -> Precision:
        """Number formats of the checkpoint, with those that the family adds."""
        formats = {name: value or None for name, value in self._part("precision").items()}
        if not formats:
            return precision
        if precision.experts:
            formats.pop("experts", None)
        return Precision.from_formats(**formats, default=precision)


def _one_integer(fields: Fields, name: str) -> int:
    """A whole number, which a list with an entry a layer may state if all are the same."""
    value = fields.get(name)
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        return Fields({name: value[0]}, fields.path, fields.file).integer(name)
    return fields.integer(name)


def activation(fields: Fields, name: str) -> str:
    """An activation function by one of its names.

    Raises:
        SilicastError: kind "not_yet": it is not known.
    """
    value = fields.text(name)
    if value not in ACTIVATIONS:
        message = f"the activation {value[:40]!r} is not known"
        raise fields.error(message, name, f"one of {', '.join(ACTIVATIONS)}", "not_yet")
    return ACTIVATIONS[value]
