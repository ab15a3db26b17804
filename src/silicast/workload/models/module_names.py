"""Modules of a checkpoint by name, as configurations of quantisation name them: whole paths, ends
of paths, globs and regular expressions.

``catalog/module_names.toml`` lists the names that the products of a layer have.
"""

from __future__ import annotations

import re
from functools import cache
from typing import final

import msgspec
from msgspec import Struct

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.core.errors import SilicastError

FILE = CATALOG / "module_names.toml"
LONGEST = 1000
"""Characters of the longest pattern that is read."""
MOST_REPEATS = 6
"""Open repeats (``.*``) of a regular expression; the time of more grows beyond use."""
REGEX = "re:"

_NUMBERED = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+|\*)(?=\.|\*|$)")
_REPEATED = re.compile(r"\([^()]*[+*][^()]*\)[+*{]")
_OPEN = re.compile(r"(?<!\\)[+*]")


@final
class ModulePart(Strict, frozen=True):
    """Weights of a layer that engines keep in one format, because one product reads them.

    Attributes:
        kinds: mixers and feeds that have it.
        weights, nodes: what it is called in counts and in graphs.
        names: of its modules behind the number of the layer.
        families: of models that it is about, in place of the part of the others; [] = any.
    """

    kinds: list[str]
    weights: list[str]
    nodes: list[str]
    names: list[str]
    families: list[str] = []


@final
class _ModuleNames(Strict, frozen=True):
    containers: list[str]
    nested: list[str]
    other: list[str]
    part: list[ModulePart]


@cache
def _names() -> _ModuleNames:
    import tomllib

    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), _ModuleNames)


@cache
def parts_of(mixer: str, feed: str, family: str = "") -> tuple[ModulePart, ...]:
    """The parts of a layer."""
    parts = [part for part in _names().part if {mixer, feed} & set(part.kinds)]
    special = [part for part in parts if family in part.families]
    replaced = {weight for part in special for weight in part.weights}
    usual = (p for p in parts if not p.families and not replaced & set(p.weights))
    return (*special, *usual)


@final
class ModulePattern(Struct, frozen=True):
    """Modules that an entry of a list means.

    Attributes:
        text: the entry.
        layer: the only layer it is about; -1 = any.
        expression: what the path matches, from its start; behind the number of the layer where
            ``inside``, else with each of the usual beginnings of paths; or just the path there.
        other: it is about modules that are never quantised, or outside the decoder.
    """

    text: str
    expression: re.Pattern[str] | str
    layer: int = -1
    inside: bool = False
    other: bool = False

    def matches(self, layer: int, part: ModulePart, *, nested: bool) -> bool:
        """Whether it means a module of a part of a layer.

        >>> mlp = parts_of("", "mlp")[1]
        >>> [pattern_of(text).matches(3, mlp, nested=False) for text in
        ...  ("model.layers.3.mlp", "model.layers.3*", "*.down_proj", "re:.*mlp.*", "layers.4.mlp")]
        [True, True, True, True, False]
        """
        if self.layer not in (-1, layer):
            return False
        if isinstance(self.expression, str):
            path = self.expression
            return any(name == path or name.startswith(f"{path}.") for name in part.names)
        if self.inside:
            return any(self.expression.fullmatch(f".{name}") for name in part.names)
        starts = _names().nested if nested else _names().containers
        return any(
            self.expression.match(f"{start}.{layer}.{name}")
            for start in starts
            for name in part.names
        )


def pattern_of(entry: str, field: str = "") -> ModulePattern:
    """The modules that an entry means: a regular expression behind ``re:``; else a path, a part of
    one or a glob, which also means all modules inside.

    Raises:
        SilicastError: too long, or no regular expression; names the field.
    """
    if len(entry) > LONGEST:
        raise SilicastError(
            f"expected at most {LONGEST} characters, found {len(entry)}", field=field
        )
    if entry.startswith(REGEX):
        text = entry.removeprefix(REGEX)
        return ModulePattern(entry, _regex(text, field), other=_is_other(text))
    entry = re.sub(r"\.experts\.\d+", ".experts.0", entry).rstrip(".")  # "layers.0." is not 01
    number = _NUMBERED.search(entry)
    if number is None:
        body = rf"(?:.*\.)?{_glob(entry)}(?:\..*)?$"
        return ModulePattern(entry, re.compile(body), other=_is_other(entry))
    outside = _is_other(entry[: number.start()])
    layer = -1 if number.group(1) == "*" else int(number.group(1))
    other, behind = outside or _is_other(entry), entry[number.end() :]
    expression: re.Pattern[str] | str = behind.removeprefix(".")
    if outside or not expression or "*" in behind or "?" in behind:
        expression = re.compile("(?!)" if outside else rf"{_glob(behind)}(?:\..*)?")
    return ModulePattern(entry, expression, layer, inside=True, other=other)


def loose(pattern: ModulePattern) -> ModulePattern:
    """Likewise for a text that is a part of names, as some engines compare them: "attn"."""
    body = rf".*{re.escape(pattern.text)}.*"
    return ModulePattern(pattern.text, re.compile(body), pattern.layer)


def _glob(text: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in text)


def _regex(text: str, field: str) -> re.Pattern[str]:
    if _REPEATED.search(text) or len(_OPEN.findall(text)) > MOST_REPEATS:
        raise SilicastError(
            f"the pattern {text[:60]!r} repeats too much to be read",
            field=field,
            hint=f"at most {MOST_REPEATS} open repeats, none inside another",
        )
    try:
        return re.compile(text)
    except (re.error, OverflowError) as error:
        raise SilicastError(
            f"expected a regular expression, found {text[:60]!r}: {error}", field=field
        ) from None


def _is_other(text: str) -> bool:
    """Whether a word of the entry names modules that are not quantised in any case."""
    words = re.findall(r"\w+", text.casefold())
    other_words = _other()
    return any(word in other_words or word.endswith(("norm", "embedding")) for word in words)


@cache
def _other() -> frozenset[str]:
    return frozenset(_names().other)
