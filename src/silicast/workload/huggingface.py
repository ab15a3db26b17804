"""Reads a Hugging Face ``config.json`` into a :class:`~silicast.workload.model.ModelConfig`.

The architecture picks the family (``workload/families``, one file each); what the checkpoint says
of number formats becomes the model's default precision. Nothing is guessed: an architecture or a
structure that is not modelled is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError
from silicast.workload.document import check_depth, json_object
from silicast.workload.families._family import Fields, families
from silicast.workload.model import ModelConfig
from silicast.workload.precision import HIDDEN_FORMATS, Precision

HF_NAMES: dict[str, str] = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "intermediate",
    "vocab_size": "vocab",
    "max_position_embeddings": "max_positions",
    "tie_word_embeddings": "tied",
    "hidden_act": "activation",
    "n_layer": "layers",
    "n_embd": "hidden",
    "n_head": "heads",
    "n_inner": "intermediate",
    "ffn_dim": "intermediate",
}
"""Fields of Hugging Face -> fields of ``ModelConfig``."""

_CLUES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("latent", ("kv_lora_rank", "q_lora_rank"), "multi-head latent attention (MLA)"),
    ("sparse", ("index_topk", "sparse_attention_config"), "sparse attention"),
    (
        "experts",
        ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"),
        "mixture of experts (MoE)",
    ),
    (
        "mamba",
        ("hybrid_override_pattern", "ssm_state_size", "mamba_num_heads", "state_size"),
        "Mamba layers",
    ),
    ("linear", ("linear_num_value_heads", "linear_attn_config"), "linear attention layers"),
    ("vision", ("vision_config", "audio_config"), "a vision or audio encoder"),
    ("encoder", ("is_encoder_decoder", "num_decoder_layers"), "an encoder"),
    ("sizes", ("block_configs", "swa_head_dim", "global_head_dim"), "layers of different sizes"),
)
"""Structure, the fields that give it away, and what it is called."""


def read_config_file(path: Path) -> ModelConfig:
    """The model in a ``config.json``; the folder names it if the file has its usual name.

    Raises:
        SilicastError: see :func:`read_config`; names the file.
    """
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    return read_config(json_object(path), name=name, file=str(path))


def read_config(data: dict[str, Any], *, name: str = "", file: str = "") -> ModelConfig:
    """The model of a decoded configuration.

    Args:
        name: what to call it; else ``_name_or_path``, else the architecture.
        file: for error messages.

    Raises:
        SilicastError: a field is missing, wrong or contradicts another; kind "not_yet" where the
            architecture or a structure of it is not modelled. Names file and field.
    """
    try:
        check_depth(data)
        architecture = _architecture(data)
        family = families().get(architecture)
        if family is None:
            raise _unknown(architecture, data)
        _refuse_foreign(data, family.structures)
        called = name or Fields(data).text("_name_or_path", default="") or architecture
        text = _text_part(data) if family.text_part else data
        return family.read(Fields(text), called, checkpoint_precision(text))
    except SilicastError as error:
        raise _named(error, data, file) from None


def checkpoint_precision(data: Mapping[str, Any]) -> Precision:
    """Number formats a checkpoint states (``torch_dtype`` and ``quantization_config``), bf16
    where it says nothing.

    Raises:
        SilicastError: a quantisation method that is not known.
    """
    stated = data.get("torch_dtype") or data.get("dtype") or "bfloat16"
    if not isinstance(stated, str):
        raise SilicastError(f"expected text, found {str(stated)[:40]!r}", field="torch_dtype")
    try:
        hidden = Precision.of(weights=stated if stated != "auto" else "bf16")
    except SilicastError as error:
        raise SilicastError(error.message, field="torch_dtype", hint=error.hint) from None
    if hidden.hidden not in HIDDEN_FORMATS:
        raise SilicastError(f"unexpected format {stated!r}", field="torch_dtype")
    quantisation = data.get("quantization_config")
    if quantisation in (None, {}):
        return hidden
    if not isinstance(quantisation, dict):
        raise SilicastError(
            f"expected an object, found {str(quantisation)[:40]!r}", field="quantization_config"
        )
    try:
        recipe, group = _recipe(quantisation)
        cache = "fp8" if _fp8_cache(quantisation) else None
        left_out = _left_out(quantisation)
        attention = hidden.recipe if "attention" in left_out else _of_attention(quantisation)
        if "mlp" in left_out:  # only the routed experts are quantised
            return Precision.of(experts=recipe, group_size=group, kv_cache=cache, default=hidden)
        return Precision.of(
            recipe=recipe,
            group_size=group,
            kv_cache=cache,
            attention=attention,
            default=hidden,
        )
    except SilicastError as error:
        raise error.at("quantization_config") from None


def _recipe(q: Mapping[str, Any]) -> tuple[str, int]:
    """Recipe and group size of a ``quantization_config``."""
    method = str(q.get("quant_method") or "").casefold()
    algorithm = str(q.get("quant_algo") or "").upper()
    if method == "fp8":
        if q.get("weight_block_size"):
            return "fp8_block", 0
        return ("fp8_static" if q.get("activation_scheme") == "static" else "fp8"), 0
    if method == "fbgemm_fp8":
        return "fp8", 0
    if algorithm:
        known = {"FP8": "fp8_static", "NVFP4": "nvfp4", "W4A16_AWQ": "int4_wo", "W8A8_SQ": "sq"}
        if algorithm in known:
            return known[algorithm], 0
    if method == "compressed-tensors" or "config_groups" in q:
        return _grouped(q)
    if method in ("awq", "gptq"):
        bits = Fields(dict(q)).integer("bits", default=4)
        if bits in (4, 8):
            group = Fields(dict(q)).integer("group_size", default=128)
            return f"int{bits}_wo", max(group, 0)
    if method == "mxfp4":
        return "w4a16_mxfp4", 0
    raise SilicastError(
        f"the quantisation {(method or algorithm or 'without a name')[:40]!r} is not known",
        kind="not_yet",
        field="quant_method",
        hint="state precision.recipe in the scenario instead",
    )


def _grouped(q: Mapping[str, Any]) -> tuple[str, int]:
    """Recipe of compressed-tensors groups; all but those of attention must agree."""
    groups = Fields(dict(q)).table("config_groups")
    apart = _attention_groups(groups)
    return _agreed(groups, [name for name in groups.names() if name not in apart])


def _of_attention(q: Mapping[str, Any]) -> str | None:
    """Recipe of groups for attention alone, where there are others beside them."""
    if "config_groups" not in q:
        return None
    groups = Fields(dict(q)).table("config_groups")
    apart = _attention_groups(groups)
    return _agreed(groups, apart)[0] if apart else None


def _attention_groups(groups: Fields) -> list[str]:
    """Groups whose targets all are parts of token mixers, if there are others too."""
    found = []
    for name in groups.names():
        targets = groups.table(name).words("targets")
        if targets and all("_attn" in target[:200] for target in targets):
            found.append(name)
    return found if len(found) < len(groups.names()) else []


def _agreed(groups: Fields, names: list[str]) -> tuple[str, int]:
    """The one recipe and group size of some groups."""
    found: set[tuple[str, int]] = set()
    for name in names:
        group = groups.table(name)
        weights, inputs = group.table("weights"), group.table("input_activations")
        bits, kind = weights.integer("num_bits"), weights.text("type", default="int")
        size = max(weights.integer("group_size", default=0), 0)
        quantised_inputs = bool(inputs.names())
        if kind == "float" and bits == 8:
            found.add(("fp8" if inputs.flag("dynamic", default=False) else "fp8_static", 0))
        elif kind == "float" and bits == 4 and group.text("format", default="")[:5] == "mxfp4":
            found.add(("w4a8_mxfp4_mxfp8" if quantised_inputs else "w4a16_mxfp4", 0))
        elif kind == "float" and bits == 4:
            found.add(("nvfp4" if quantised_inputs else "nvfp4_wo", 0))
        elif kind == "int" and bits == 8:
            found.add(("int8" if quantised_inputs else "int8_wo", 0 if quantised_inputs else size))
        elif kind == "int" and bits == 4 and not quantised_inputs:
            found.add(("int4_wo", size))
        else:
            raise SilicastError(
                f"{bits}-bit {kind[:20]} weights are not known",
                kind="not_yet",
                field="config_groups",
            )
    if len(found) != 1:
        raise SilicastError(
            f"expected one quantisation for all layers, found {len(found)}",
            kind="not_yet",
            field="config_groups",
        )
    return found.pop()


def _left_out(q: Mapping[str, Any]) -> set[str]:
    """Parts that a quantised checkpoint keeps in 16 bits: "attention", "mlp" (what all tokens
    pass, so that only routed experts are quantised); heads and routers always are.
    """
    found = {"mlp"} if str(q.get("quant_method") or "").casefold() == "mxfp4" else set()
    for field in ("ignore", "modules_to_not_convert", "exclude_modules"):
        entries = q.get(field)
        for entry in entries if isinstance(entries, list) else ():
            if re.search(r"self_attn\W*$", str(entry)[:200]):
                found.add("attention")
            elif re.search(r"shared_experts?\W*$", str(entry)[:200]):
                found.add("mlp")
    return found


def _fp8_cache(q: Mapping[str, Any]) -> bool:
    scheme = q.get("kv_cache_scheme") or q.get("kv_cache_quant_algo")
    if isinstance(scheme, dict):
        return scheme.get("num_bits") == 8
    return isinstance(scheme, str) and scheme.casefold().startswith("fp8")


def _architecture(data: Mapping[str, Any]) -> str:
    stated = data.get("architectures")
    if stated:
        if not isinstance(stated, list) or not isinstance(stated[0], str):
            raise SilicastError("expected a list of names", field="architectures")
        return str(stated[0])
    kind = data.get("model_type")
    if isinstance(kind, str) and kind:
        return kind
    raise SilicastError(
        "missing",
        field="architectures",
        hint="is this the config.json of a model? it names its architecture",
    )


def _text_part(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of the text part, and beside them those of the whole model."""
    text = Fields(data).table("text_config")
    inner = data.get("text_config") if text.names() else {}
    assert isinstance(inner, dict)
    return {**data, **{key: value for key, value in inner.items() if value is not None}}


def _structures(data: Mapping[str, Any], known: tuple[str, ...] = ()) -> list[str]:
    """Structures beyond a dense decoder, and beyond ``known``, that the fields give away."""
    tables = [data]
    text = data.get("text_config")
    if isinstance(text, dict):
        tables.append(text)
    found: list[str] = []
    for key, names, structure in _CLUES:
        if key not in known and any(
            table.get(name) not in (None, False, 0, {}) for table in tables for name in names
        ):
            found.append(structure)
    return found


def _unknown(architecture: str, data: Mapping[str, Any]) -> SilicastError:
    found = _structures(data)
    known = sorted(name for name in families() if name[0].isupper())
    missing = f": it needs {', '.join(found)}" if found else ""
    return SilicastError(
        f"the architecture {architecture[:60]!r} is not modelled yet{missing}",
        kind="not_yet",
        field="architectures",
        hint=f"modelled: {', '.join(known)}",
    )


def _refuse_foreign(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """A known architecture must not carry structures that it does not have."""
    found = _structures(data, known)
    if found:
        raise SilicastError(
            f"fields of {', '.join(found)} in an architecture without them",
            kind="not_yet",
            field="architectures",
            hint="remove those fields or state the right architecture",
        )


def _named(error: SilicastError, data: Mapping[str, Any], file: str) -> SilicastError:
    """The same error with the configuration's own name of the field, and the file."""
    own = [hf for hf, ours in HF_NAMES.items() if ours == error.field and hf in data]
    return SilicastError(
        error.message,
        kind=error.kind,
        field=own[0] if own else error.field,
        hint=error.hint,
        file=error.file or file,
    )
