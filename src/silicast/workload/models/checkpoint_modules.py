"""Modules of a checkpoint that its configuration keeps out of its quantisation by name, or gives
another format.

Every list that publishers use is read: which modules it means is the same for all of them
(:mod:`silicast.workload.models.module_names`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from silicast.core.errors import SilicastError, errors_at
from silicast.workload.models.checkpoint import (
    AUTO_ROUND,
    group_recipes,
    method_of,
    recipe_of_algorithm,
    stated_quantisation,
)
from silicast.workload.models.language_part import ENCODERS, LANGUAGE_PARTS
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.model_weights import layer_weights
from silicast.workload.models.module_names import (
    REGEX,
    ModulePart,
    ModulePattern,
    loose,
    parts_of,
    pattern_of,
)
from silicast.workload.models.precision import Precision

EXCLUSIONS = (
    *("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "exclude"),
    *("llm_int8_skip_modules", "skip_modules"),
)
"""Fields that list what is not quantised."""
MOST = 1 << 16
"""Entries of the longest list."""
_IN_BLOCK = "modules_in_block_to_quantize"
_BY_SUBSTRING = ("awq", "bitsandbytes", "gptq", "hqq")
"""Methods whose engines look for the words anywhere in a module's name."""
UNMATCHED = "{} names modules that {} does not have, and they change nothing: {}"


@final
@dataclass(frozen=True)
class FormatRule:
    """One entry of a list.

    Attributes:
        recipe: of the modules that it means; "" = they are not quantised.
        field: of the configuration that lists it.
    """

    pattern: ModulePattern
    recipe: str
    field: str


def with_module_formats(model: ModelConfig, data: Mapping[str, Any]) -> ModelConfig:
    """The model with the formats that its configuration gives single modules.

    What all products of a kind share becomes part of ``default_precision``; what is left stands in
    ``formats`` layer by layer, and names that no module has in ``remarks``.

    Raises:
        SilicastError: a list or pattern that cannot be read; names the field.
    """
    quantisation = stated_quantisation(data)
    with errors_at("quantization_config"):
        rules = list(_rules(quantisation))
    if not rules:
        return model
    nested = any(data.get(name) for name in (*LANGUAGE_PARTS, *ENCODERS))
    substring = method_of(quantisation) in _BY_SUBSTRING
    layers, used = _by_layer(model, rules, nested=nested, substring=substring)
    remarks = _unmatched(model, rules, used)
    return replace(_settled(model, layers), remarks=(*model.remarks, *remarks))


def _rules(quantisation: Mapping[str, Any]) -> Iterator[FormatRule]:
    """All rules, those that count first at the front."""
    if quantisation.get("moe_quant_algo"):
        return  # its list is about the routed experts' second format alone
    yield from _dynamic(quantisation)
    yield from _extra(quantisation)
    for field in EXCLUSIONS:
        for entry in _entries(quantisation, field):
            yield FormatRule(pattern_of(entry, field), "", field)
    for entry, recipe in group_recipes(quantisation):
        yield FormatRule(pattern_of(entry, "config_groups"), recipe, "config_groups")
    layers = quantisation.get("quantized_layers")
    if isinstance(layers, dict):
        for entry, content in layers.items():
            algorithm = content.get("quant_algo") if isinstance(content, dict) else ""
            recipe = recipe_of_algorithm(str(algorithm or ""), "quantized_layers")
            yield FormatRule(pattern_of(str(entry), "quantized_layers"), recipe, "quantized_layers")

    for entry, recipe in _quantised(quantisation):
        yield FormatRule(pattern_of(entry, _IN_BLOCK), recipe, _IN_BLOCK)


def _quantised(quantisation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """GPTQ's list of the only modules that are quantised, then all others."""
    groups = quantisation.get(_IN_BLOCK)
    if not groups:
        return
    flat = [name for names in groups for name in (names if isinstance(names, list) else [names])]
    bits = quantisation.get("bits", 4)
    for entry in _entries({_IN_BLOCK: flat}, _IN_BLOCK):
        yield entry, f"int{bits}_wo"
    yield f"{REGEX}.*", ""


def _extra(quantisation: Mapping[str, Any]) -> Iterator[FormatRule]:
    """AutoRound's modules with bits of their own; 16 = not quantised."""
    table = quantisation.get("extra_config")
    if method_of(quantisation) not in AUTO_ROUND or table in (None, {}):
        return
    if not isinstance(table, dict):
        raise SilicastError(f"expected an object, found {table!r:.60}", field="extra_config")
    for text, content in table.items():
        bits = content.get("bits") if isinstance(content, dict) else None
        if bits not in (None, 4, 8, 16, 32):
            raise SilicastError(
                f"expected 4, 8 or 16 bits, found {bits!r:.20}",
                field=f"extra_config.{text[:40]}.bits",
            )
        if bits is not None:
            entry = REGEX + text if set(text) & set("\\^$|()[]+*") else text
            recipe = "" if bits >= 16 else f"int{bits}_wo"
            yield FormatRule(pattern_of(entry, "extra_config"), recipe, "extra_config")


def _entries(quantisation: Mapping[str, Any], field: str) -> list[str]:
    entries = quantisation.get(field)
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise SilicastError(f"expected a list of names, found {entries!r:.60}", field=field)
    if len(entries) > MOST:
        raise SilicastError(f"expected at most {MOST} names, found {len(entries)}", field=field)
    return list(dict.fromkeys(entries))


def _dynamic(quantisation: Mapping[str, Any]) -> Iterator[FormatRule]:
    """GPTQ's rules: "-:pattern" is not quantised, "+:pattern" or "pattern" has bits of its own."""
    table = quantisation.get("dynamic")
    if method_of(quantisation) != "gptq" or table in (None, {}):
        return
    if not isinstance(table, dict):
        raise SilicastError(f"expected an object, found {table!r:.60}", field="dynamic")
    for text, content in table.items():
        plain = text.startswith("-:")
        bits = content.get("bits") if isinstance(content, dict) else None
        if not plain and bits not in (4, 8):
            if bits is None:
                continue  # another group size or order alone
            raise SilicastError(
                f"expected 4 or 8 bits, found {bits!r:.20}", field=f"dynamic.{text[:40]}.bits"
            )
        pattern = pattern_of(REGEX + text.removeprefix("-:").removeprefix("+:"), "dynamic")
        yield FormatRule(pattern, "" if plain else f"int{bits}_wo", "dynamic")


Formats = list[dict[str, tuple[str, str]]]
"""Of each layer: weight or node -> (kind of weight, recipe; "" = not quantised)."""


def _by_layer(
    model: ModelConfig, rules: list[FormatRule], *, nested: bool, substring: bool
) -> tuple[Formats, set[int]]:
    """Formats of every layer's products that a rule is about, and which rules met one."""
    used: set[int] = set()
    layers = []
    numbered: dict[int, list[int]] = {}
    for number, rule in enumerate(rules):
        numbered.setdefault(rule.pattern.layer, []).append(number)
    for layer in range(model.layers):
        kind = model.kind(layer)
        numbers = sorted(numbered.get(layer, []) + numbered.get(-1, []))
        formats: dict[str, tuple[str, str]] = {}
        weights = {weight.name: weight.kind for weight in layer_weights(model, kind)}
        for part in parts_of(kind.mixer, kind.feed, model.family):
            kinds = [weights[name] for name in part.weights if name in weights]
            if not kinds:
                continue
            met = [n for n in numbers if rules[n].pattern.matches(layer, part, nested=nested)]
            if not met and substring:
                met = [n for n in numbers if _loosely(rules[n], layer, part, nested=nested)]
            used.update(met)
            if met:
                recipe = rules[met[0]].recipe
                for name in (*part.weights, *part.nodes):
                    formats[name] = kinds[0], recipe
        layers.append(formats)
    return layers, used


def _loosely(rule: FormatRule, layer: int, part: ModulePart, *, nested: bool) -> bool:
    """Whether a text that names nothing whole is a part of the names."""
    pattern = rule.pattern
    if pattern.other or not pattern.text.replace(".", "").isidentifier():
        return False
    return loose(pattern).matches(layer, part, nested=nested)


def _settled(model: ModelConfig, layers: Formats) -> ModelConfig:
    """The model with the format that most of each kind of products have as its precision's, and
    the others' by layer.
    """
    precision = model.default_precision
    usual = {
        "linear": precision.linear.name,
        "projection": precision.projection.name,
        "expert": precision.expert.name,
    }
    bare = precision.hidden
    sizes: dict[str, Counter[str]] = {kind: Counter() for kind in usual}
    for layer, formats in enumerate(layers):
        for weight in layer_weights(model, model.kind(layer)):
            if weight.kind in usual:
                recipe = formats.get(weight.name, ("", usual[weight.kind]))[1] or bare
                sizes[weight.kind][recipe] += weight.parameters
    most = {
        kind: max(counts, key=lambda name: (counts[name], name == usual[kind])) if counts else ""
        for kind, counts in sizes.items()
    }
    # of a layer with routed experts alone nothing else is quantised
    linear = most["linear"] or usual["linear"]
    settled = Precision.from_formats(
        recipe=linear,
        experts=most["expert"] or None,
        attention=most["projection"] or None,
        group_size=precision.group_size,
        kv_cache=precision.kv_cache,
        default=Precision(hidden=bare, recipe=bare),
    )
    most["linear"] = linear
    stated = tuple(
        tuple(
            sorted(
                (name, recipe)
                for name, (kind, recipe) in layer.items()
                if (recipe or bare) != most[kind]
            )
        )
        for layer in _with_usual(model, layers, usual, most)
    )
    if not any(stated):
        return replace(model, default_precision=settled)
    return replace(model, default_precision=replace(settled, by_module=True), formats=stated)


def _with_usual(
    model: ModelConfig, layers: Formats, usual: Mapping[str, str], most: Mapping[str, str]
) -> Formats:
    """The same with products that no rule is about, where most of their kind have another format
    than the quantisation's.
    """
    changed = {kind for kind in usual if most[kind] and most[kind] != usual[kind]}
    if not changed:
        return layers
    completed = []
    for layer, formats in enumerate(layers):
        kind = model.kind(layer)
        weights = {weight.name: weight.kind for weight in layer_weights(model, kind)}
        added = {
            name: (weights[part.weights[0]], usual[weights[part.weights[0]]])
            for part in parts_of(kind.mixer, kind.feed, model.family)
            if weights.get(part.weights[0]) in changed
            for name in (*part.weights, *part.nodes)
            if name not in formats
        }
        completed.append({**added, **formats})
    return completed


def _unmatched(model: ModelConfig, rules: list[FormatRule], used: set[int]) -> list[str]:
    """A remark on names that mean no module of the model."""
    lost: dict[str, list[str]] = {}
    for number, rule in enumerate(rules):
        beyond = rule.pattern.layer >= model.layers  # of multi-token prediction
        if number not in used and not rule.pattern.other and not beyond:
            lost.setdefault(rule.field, []).append(rule.pattern.text[:60])
    return [
        UNMATCHED.format(f"quantization_config.{field}", model.name, _some(names))
        for field, names in lost.items()
    ]


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
