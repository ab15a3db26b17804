"""Names of checkpoints that no file of the catalog has: a model's name and what follows it.

``catalog/models/suffixes.toml`` lists what may follow: words of further training, which change no
structure, and formats of weights.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import cache
from typing import final

import msgspec

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.workload.models.model_file import ModelPrecisionTable

FILE = CATALOG / "models" / "suffixes.toml"


@final
class CheckpointFormat(Strict, frozen=True):
    """A format that an end of a name states.

    Attributes:
        ends: how it is written; catalog_end: the end of models of the catalog that have it.
        means: in words.
        vague: an end before it that states a format goes before it.
    """

    ends: list[str]
    catalog_end: str
    precision: ModelPrecisionTable
    means: str
    vague: bool = False


@final
class _Suffixes(Strict, frozen=True):
    same: list[str]
    before: list[str]
    format: list[CheckpointFormat]


@final
class Understood(msgspec.Struct, frozen=True):
    """What a name was taken for.

    Attributes:
        model: a name of the catalog; format: of its weights, None = as there.
        formats_of: the model of the catalog that has that very format; "" = none.
    """

    model: str
    format: CheckpointFormat | None
    formats_of: str = ""


@cache
def _suffixes() -> _Suffixes:
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), _Suffixes)


@cache
def _formats() -> dict[str, CheckpointFormat]:
    """Every end, in the form in which ends are compared, and its format."""
    return {_plain(end): entry for entry in _suffixes().format for end in entry.ends}


@cache
def _end() -> re.Pattern[str]:
    words = {*_formats(), *map(_plain, _suffixes().same)}
    either = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"-({either})$")


def understood(
    name: str, canonical: Callable[[str], str | None], base_of: Callable[[str], str] = lambda _: ""
) -> Understood | None:
    """The model and format that a name states, None where nothing is left that is known.

    Args:
        canonical: the catalog's name for a name, None = unknown.
        base_of: the model whose variant a model of the catalog is; "" = of none.

    >>> from silicast.core.naming import normalise
    >>> known = {"qwen2.57b": "Qwen2.5-7B"}.get
    >>> found = understood("Qwen/Qwen2.5-7B-Instruct-AWQ", lambda name: known(normalise(name)))
    >>> found.model, found.format.precision.recipe
    ('Qwen2.5-7B', 'int4_wo')
    """
    remaining, weight_format = _plain(name.rsplit("/", 1)[-1].strip()), None
    while True:
        model = _known(remaining, canonical)
        if model is not None:
            if weight_format is None:
                return Understood(model, None)
            formatted = canonical(f"{model}-{weight_format.catalog_end}")
            if formatted is not None:
                return Understood(formatted, None)
            base = base_of(model)
            like = canonical(f"{base}-{weight_format.catalog_end}") if base else None
            return Understood(model, weight_format, like or "")
        match = _end().search(remaining)
        if match is None:
            return None
        if weight_format is None or weight_format.vague:
            weight_format = _formats().get(match.group(1), weight_format)
        remaining = remaining[: match.start()]


def _known(name: str, canonical: Callable[[str], str | None]) -> str | None:
    """The model of a name, also without its publisher."""
    model = canonical(name)
    for word in _suffixes().before:
        if model is None and name.startswith(f"{word}-"):
            model = canonical(name.removeprefix(f"{word}-"))
    return model


def _plain(text: str) -> str:
    """Lower case, with hyphens between words; dots within numbers stay.

    >>> _plain("Llama-3.1-8B.Q4_K_M.gguf")
    'llama-3.1-8b-q4-k-m-gguf'
    """
    return re.sub(r"[-_ ]+|\.(?!\d)", "-", text.casefold())
