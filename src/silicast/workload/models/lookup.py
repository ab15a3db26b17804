"""Models by name: the catalog's, a user's own, a path to a configuration, or one given inline.

The catalog holds one JSON file a model. ``index.json`` lists all their names, so that a lookup
reads two small files; ``python -m silicast.workload.models.lookup`` rewrites it, and a test
checks that it
is current. ``not_yet.toml`` names models whose structure is not modelled.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.core.errors import SilicastError, unmodelled, unsupported
from silicast.core.files import read_text
from silicast.core.naming import NameIndex, normalise
from silicast.core.plain_data import check_depth, json_object
from silicast.workload.graphs.networks import network_file
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.model_file import (
    HF_NAMES,
    ModelHeader,
    ModelTable,
    build_model,
    decode_model,
)
from silicast.workload.models.precision import Precision

if TYPE_CHECKING:
    from silicast.workload.models.checkpoint_names import Understood

FOLDER = CATALOG / "models"
INDEX = FOLDER / "index.json"
NOT_YET = FOLDER / "not_yet.toml"
_MAX_BASES = 8
_MODELOPT = "hf_quant_config.json"
"""Beside ``config.json``: the quantisation, where only that states it."""
MOST_REF = 256
"""Bytes of a file that names a revision."""


@final
class ModelEntry(Strict, frozen=True):
    """A line of the index: a model's file, within :data:`FOLDER` or absolute, or the structure that
    it needs and that is not modelled.

    Attributes:
        base: the model of the file whose variant it is; "" = it is that model itself.
    """

    name: str
    aliases: list[str]
    file: str = ""
    missing: str = ""
    base: str = ""


@cache
def model_index() -> NameIndex[ModelEntry]:
    """All names of models, those that are not modelled yet included."""
    entries = msgspec.json.decode(INDEX.read_bytes(), type=list[ModelEntry])
    user_folder = os.environ.get("SILICAST_CATALOG")
    for path, table in _tables(Path(user_folder) / "models") if user_folder else ():
        entries += _entries(table, table.name or path.stem, str(path.resolve()))
    return NameIndex("model", {entry.name: (entry, entry.aliases) for entry in entries})


def model_names(*, variants: bool = False) -> tuple[str, ...]:
    """Catalog names of all models that can be predicted, in order; their variants only if asked."""
    index = model_index()
    entries = ((name, index.get(name)) for name in index.names)
    return tuple(name for name, entry in entries if entry.file and (variants or not entry.base))


def base_of(name: str) -> str:
    """The model whose variant a model of the catalog is; "" = it is no variant.

    >>> base_of("QwQ-32B"), base_of("Qwen2.5-32B")
    ('Qwen2.5-32B', '')
    """
    return model_index().get(name).base


def names_model(name: str) -> bool:
    """Whether a name is one of the catalog, or one of a checkpoint that states such a name.

    >>> [names_model(name) for name in ("Qwen3-8B", "Qwen/QwQ-32B-AWQ", "H100")]
    [True, True, False]
    """
    return name in model_index() or _meaning_of(name[:200]) is not None


def not_yet_models() -> dict[str, str]:
    """Name of each model that is known but not modelled -> what its structure needs."""
    index = model_index()
    return {name: index.get(name).missing for name in index.names if not index.get(name).file}


def find_model(name: str) -> ModelConfig:
    """A model by catalog name or alias, or by the path of a ``config.json`` or its folder,
    or of a GGUF file.

    Raises:
        SilicastError: unknown name (the nearest are offered), a model whose structure is not
            modelled (kind "not_yet"), or an unreadable or contradictory file.

    >>> find_model("meta-llama/Llama-3.1-8B-Instruct").layers
    32
    """
    if not name.strip():
        raise SilicastError("expected a name, found nothing", field="model")
    if name.endswith(".json"):
        return _from_path(Path(name))
    if name.endswith(".gguf") and (name[0] in "./~" or Path(name).is_file()):
        from silicast.workload.models.gguf_model import model_of_gguf

        return model_of_gguf(Path(name))
    is_network = name not in model_index() and network_file(name) is not None
    if is_network or name.endswith((".onnx", ".pt2", ".tflite")):
        raise unsupported(
            f"{name!r} is a program that runs once, not a language model",
            "model",
            f"`silicast graph {name} --device DEVICE`, or workload.graph of the task graph",
        )
    if os.sep in name and (config := configuration_in(Path(name))) is not None:
        return _from_path(config)
    return _named_model(name[:200])


def model_from(value: str | dict[str, Any]) -> ModelConfig:
    """The model of a scenario: a name, a path, an inline configuration or ``{base: name, ...}``.

    A Hugging Face configuration (:func:`is_configuration`), else our own format
    (docs/reference/models.md).

    Raises:
        SilicastError: see :func:`find_model`.

    >>> model_from({"base": "Llama-3.1-8B", "layers": 16}).layers
    16
    """
    if isinstance(value, str):
        return find_model(value)
    return _from_object(value, "", "", 0)


def is_configuration(data: dict[str, Any]) -> bool:
    """Whether an object is a Hugging Face configuration: it names its architecture, or it has that
    format's names of sizes, none of our own for them, and fields that our format does not know.

    >>> [is_configuration({"hidden_size": 8, **more}) for more in (
    ...     {}, {"rms_norm_eps": 1e-5}, {"layers": 2, "rms_norm_eps": 1e-5})]
    [False, True, False]
    """
    if "base" in data:
        return False
    if "architectures" in data or "model_type" in data:
        return True
    names = data.keys()
    theirs = names & HF_NAMES.keys() and not names & set(HF_NAMES.values())
    return bool(theirs and names - HF_NAMES.keys() - set(ModelTable.__struct_fields__))


def configuration_in(folder: Path) -> Path | None:
    """The ``config.json`` of a checkpoint's folder, or of a model in Hugging Face's cache
    (``models--org--name``), there of the revision that it names last; None of anything else.
    """
    try:
        if not folder.is_dir():
            return None
        if (folder / "config.json").is_file():
            return folder / "config.json"
        main = folder / "refs" / "main"
        if main.is_file():
            snapshot = folder / "snapshots" / read_text(main, MOST_REF, "a revision").strip()
            if (snapshot / "config.json").is_file():
                return snapshot / "config.json"
        return max(folder.glob("snapshots/*/config.json"), default=None, key=_changed_at)
    except (OSError, ValueError, SilicastError):  # a name that no file can have
        return None


def _changed_at(path: Path) -> float:
    return path.stat().st_mtime


@cache
def _named_model(name: str) -> ModelConfig:
    """A model by its name in the catalog, or by what a checkpoint's name states beside it."""
    index = model_index()
    if name in index:
        return _catalog_model(index.canonical(name))
    meaning = _meaning_of(name)
    if meaning is None:
        if os.sep in name and Path(name).is_dir():
            raise SilicastError(
                f"the folder {name} has no config.json",
                field="model",
                hint="name the folder of a checkpoint, or a model of Hugging Face's cache",
            )
        index.canonical(name)  # raises, with the nearest names
    assert meaning is not None
    model = _catalog_model(meaning.model)
    if meaning.format is None:
        return model
    if meaning.formats_of:
        full_name = f"{model.name}-{meaning.format.catalog_end}"
        published = _catalog_model(meaning.formats_of).default_precision
        return replace(model, name=full_name, default_precision=published)
    shown = name.rsplit("/", 1)[-1]
    formats = {k: v for k, v in msgspec.structs.asdict(meaning.format.precision).items() if v}
    precision = Precision.from_formats(**formats, default=model.default_precision)
    message = f"{shown}: taken from its name as {model.name}, {meaning.format.means}"
    return replace(model, name=shown, default_precision=precision, implied=message)


def _meaning_of(name: str) -> Understood | None:
    """The model and format that a checkpoint's name states; None = it states no model."""
    from silicast.workload.models.checkpoint_names import understood

    index = model_index()

    def canonical(part: str) -> str | None:
        return index.canonical(part) if part in index else None

    return understood(name, canonical, base_of)


@cache
def _catalog_model(canonical: str) -> ModelConfig:
    return _indexed(canonical, 0)


def _indexed(name: str, depth: int) -> ModelConfig:
    """The model of a name in the index; one that is not modelled is an error."""
    canonical = model_index().canonical(name[:200])
    entry = model_index().get(canonical)
    if not entry.file:
        raise unmodelled(
            f"{canonical} is not modelled yet: it needs {entry.missing}",
            "model",
            "see `silicast models` for those that can be predicted",
        )
    path = FOLDER / entry.file
    if not entry.base:
        return _from_path(path, depth)
    variants = decode_model(json_object(path), file=str(path)).variants
    changes = next(table for table in variants if table["name"] == entry.name)
    variant = _from_object({"base": entry.base, **changes}, "", str(path), depth)
    from silicast.workload.models.counting import parameters

    base = _indexed(entry.base, depth)
    if "parameters" in changes or parameters(variant) != parameters(base):
        return variant
    return replace(variant, published_parameters=base.published_parameters)


def _from_path(path: Path, depth: int = 0) -> ModelConfig:
    data = json_object(path)
    beside = path.with_name(_MODELOPT)
    if path.name == "config.json" and not data.get("quantization_config") and beside.is_file():
        data = {**data, "quantization_config": {"quant_method": "modelopt", **json_object(beside)}}
    return _from_object(data, _name_of(path), str(path), depth)


def _name_of(path: Path) -> str:
    """What a model is called whose file does not name it: its folder, in Hugging Face's cache that
    of the repository.
    """
    if path.name != "config.json" or not path.parent.name:
        return path.stem
    repository = path.parent.parent.parent.name
    in_cache = path.parent.parent.name == "snapshots" and repository.startswith("models--")
    return repository.rsplit("--", 1)[-1] if in_cache else path.parent.name


def _from_object(data: dict[str, Any], name: str, file: str, depth: int) -> ModelConfig:
    if is_configuration(data):
        from silicast.workload.models.huggingface import read_config

        try:
            return read_config(data, name=name, file=file)
        except SilicastError as error:
            raise _with_neighbour(error, data) from None
    check_depth(data)
    if depth > _MAX_BASES:
        raise SilicastError("bases that lead back to themselves", field="base", file=file)

    def base(wanted: str) -> ModelConfig:
        if wanted.endswith(".json"):
            return _from_path(Path(wanted), depth + 1)
        if wanted not in model_index():
            return find_model(wanted)
        return _indexed(wanted, depth + 1)

    return build_model(decode_model(data, file=file), base, file=file)


def _with_neighbour(error: SilicastError, data: dict[str, Any]) -> SilicastError:
    """An error of a missing field with the field of the configuration that is nearly called so."""
    field = error.field.rpartition(".")[2]
    if error.message != "missing" or field in data:
        return error
    import difflib

    near = difflib.get_close_matches(field, [str(key)[:80] for key in data], n=1, cutoff=0.85)
    if not near:
        return error
    return SilicastError(
        error.message,
        kind=error.kind,
        field=error.field,
        file=error.file,
        hint=f"is it {near[0]!r}? It is not understood",
    )


def _tables(folder: Path) -> list[tuple[Path, ModelHeader]]:
    """Every model file of a folder."""
    paths = [path for path in sorted(folder.glob("*.json")) if path.name != INDEX.name]
    return [(path, decode_model(json_object(path), file=str(path))) for path in paths]


def catalog_tables() -> list[tuple[Path, ModelHeader]]:
    """Every model file of the package's catalog, sorted by name."""
    return sorted(_tables(FOLDER), key=lambda pair: pair[1].name.casefold())


def _entries(table: ModelHeader, name: str, file: str) -> list[ModelEntry]:
    """The entries of a file: of its model, and of each variant.

    Raises:
        SilicastError: a variant has no name, that of its model or of another variant, or a base or
            variants of its own.
    """
    entries = [ModelEntry(name, list(table.aliases), file)]
    for number, values in enumerate(table.variants):
        field = f"variants[{number}]"
        variant = decode_model(values, file=file)
        if not variant.name:
            raise SilicastError("missing", field=f"{field}.name", file=file)
        if normalise(variant.name) in (normalise(entry.name) for entry in entries):
            raise SilicastError(
                f"{variant.name!r} is the name of another model of the file",
                field=f"{field}.name",
                file=file,
                hint="without `name`, a file's model is called as the file",
            )
        for key in ("base", "variants"):
            if key in values:
                raise SilicastError(
                    f"not allowed in a variant, whose base is {name}",
                    field=f"{field}.{key}",
                    file=file,
                    hint="give it a file of its own, with `base`",
                )
        entries.append(ModelEntry(variant.name, list(variant.aliases), file, base=name))
    return entries


def make_index() -> bytes:
    """The content that ``index.json`` must have."""
    import tomllib

    entries = [
        entry
        for path, table in catalog_tables()
        for entry in _entries(table, table.name, path.name)
    ]
    for missing, models in tomllib.loads(NOT_YET.read_text(encoding="utf-8")).items():
        entries += [
            ModelEntry(name, list(aliases), missing=missing) for name, aliases in models.items()
        ]
    lines = (msgspec.json.encode(entry).decode() for entry in entries)
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode()


if __name__ == "__main__":
    INDEX.write_bytes(make_index())
    sys.stdout.write(f"wrote {INDEX}\n")
