"""A model from a GGUF file: its sizes, and the format of each tensor as the file has it."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, final

import msgspec

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.core.dtypes import stored_bytes
from silicast.core.errors import SilicastError, unmodelled, unsupported
from silicast.formats.gguf import GgufHead, read_gguf
from silicast.workload.models.counting import parameters
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.weight_mix import with_tensor_formats

FILE = CATALOG / "gguf.toml"
PLAIN = "fp16"
LEAST_STORED, MOST_STORED = 0.97, 1.2
"""Numbers in the tensors of a file over parameters that its head describes; layers for drafts and
tables of positions are more."""
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


@final
class GgufArchitecture(Strict, frozen=True, rename={"model_class": "class"}):
    """What keys of an architecture are in a ``config.json``; see the head of the file."""

    model_class: str
    keys: dict[str, str] = {}
    differences: dict[str, tuple[str, str]] = {}
    choices: dict[str, list[str]] = {}


@final
class GgufNames(Strict, frozen=True):
    """``catalog/gguf.toml``."""

    types: dict[str, str]
    keys: dict[str, str]
    architectures: dict[str, GgufArchitecture]


@cache
def gguf_names() -> GgufNames:
    """What files call formats, sizes and architectures."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), GgufNames)


def model_of_gguf(path: Path) -> ModelConfig:
    """The model of a file of weights.

    Raises:
        SilicastError: it is no such file, a size is missing, or kind "not_yet": an architecture
            or a type of weights that is not known.
    """
    from silicast.workload.models.huggingface import read_config

    head = read_gguf(path)
    if 0 < head.held < (whole := _bytes_of(head)):
        raise SilicastError(
            f"holds {head.held:,} bytes of weights, of {whole:,}",
            file=str(path),
            hint="was it cut off? load it whole; a head without any weights is enough",
        )
    name = " ".join(str(head.facts.get("general.name") or path.stem).split())
    model = read_config(configuration(head, str(path)), name=name[:80], file=str(path))
    stored = sum(math.prod(tensor.shape) for tensor in head.tensors)
    described = parameters(model, mtp=False)
    if not LEAST_STORED <= stored / described <= MOST_STORED:
        doubt = f"the file's tensors hold {stored:,} numbers, its head describes {described:,}"
        model = replace(model, assumed=(*model.assumed, doubt))
    return with_tensor_formats(model, _formats(head, str(path)), PLAIN, path.stem[:80])


def _bytes_of(head: GgufHead) -> int:
    """What the tensors take whose types are known."""
    types = gguf_names().types
    stored = ((types.get(str(tensor.type)), math.prod(tensor.shape)) for tensor in head.tensors)
    return sum(stored_bytes(name, count) for name, count in stored if name is not None)


def configuration(head: GgufHead, file: str) -> dict[str, Any]:
    """The fields of a ``config.json`` that the head states.

    Raises:
        SilicastError: a size is missing or differs between layers; kind "not_yet": the architecture
            is not known.
    """
    names = gguf_names()
    architecture = str(head.facts.get("general.architecture", ""))
    table = names.architectures.get(_variety(architecture, head))
    if table is None:
        known_names = ", ".join(sorted(names.architectures))
        raise unmodelled(
            f"the architecture {architecture[:40]!r} of a GGUF file is not known",
            file=file,
            field="general.architecture",
            hint=f"state the model by its name or its config.json; known: {known_names}",
        )
    tensors = {tensor.name: tensor for tensor in head.tensors}
    fields: dict[str, Any] = {"architectures": [table.model_class]}
    for key, field in (names.keys | table.keys).items():
        value = head.facts.get(f"{architecture}.{key}")
        if field and value is not None:
            fields[field] = _one(value, f"{architecture}.{key}", file)
    for field, (first, second) in table.differences.items():
        values = [head.facts.get(f"{architecture}.{key}") for key in (first, second)]
        if not all(isinstance(value, int) for value in values):
            raise unsupported(
                "is missing", f"{architecture}.{first}", "convert the model anew", file=file
            )
        fields[field] = values[0] - values[1]  # type: ignore[operator]
    for key, (field, *choices) in table.choices.items():
        number = head.facts.get(f"{architecture}.{key}")
        if isinstance(number, int) and 0 <= number < len(choices) and choices[number]:
            fields[field] = choices[number]
    if "vocab_size" not in fields and "token_embd.weight" in tensors:
        fields["vocab_size"] = tensors["token_embd.weight"].shape[-1]
    fields["tie_word_embeddings"] = "output.weight" not in tensors
    return fields


def _variety(name: str, head: GgufHead) -> str:
    """The architecture's name in the table: some have models with experts and without."""
    experts = f"{name}-experts"
    return experts if f"{name}.expert_count" in head.facts and _known(experts) else name


def _known(name: str) -> bool:
    return name in gguf_names().architectures


def _one(value: Any, key: str, file: str) -> Any:
    """A size that all layers share."""
    if not isinstance(value, list):
        return value
    if len(set(value)) != 1:
        raise unmodelled(
            "differs between layers, which is not modelled from a GGUF file",
            file=file,
            field=key,
            hint="state the model by its name or its config.json",
        )
    return value[0]


def _formats(head: GgufHead, file: str) -> dict[tuple[int, str], str]:
    """(layer, kind of tensor) -> format; the embedding and the head are of layer -1."""
    types = gguf_names().types
    formats = {}
    for tensor in head.tensors:
        recipe = types.get(str(tensor.type))
        if recipe is None:
            raise unmodelled(
                f"has weights of the unknown type {tensor.type}",
                tensor.name[:80],
                "its types are those of llama.cpp of 2026",
                file=file,
            )
        match = _BLOCK.fullmatch(tensor.name)
        if match is not None:
            formats[int(match[1]), match[2]] = recipe
        elif tensor.name in ("token_embd.weight", "output.weight"):
            formats[-1, tensor.name.removesuffix(".weight")] = recipe
    return formats
