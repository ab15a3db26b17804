"""Reads a Hugging Face ``config.json`` into a :class:`~silicast.workload.models.model.ModelConfig`.

The architecture selects the family (``catalog/families``, one table each); the number formats of
the checkpoint become the model's default precision. An unknown architecture is read as the common
structure of decoders (``catalog/families/common.toml``) or the nearest family, and the model lists
what was assumed; a structure that no family has is an error that names it.

Fields that a configuration leaves out have the values of its class: ``catalog/model_classes.json``
by ``model_type``, which ``lab/model_classes.py`` makes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec

from silicast.core.catalog import CATALOG
from silicast.core.errors import SilicastError, unmodelled
from silicast.core.plain_data import check_depth
from silicast.formats.fields import Fields
from silicast.workload.families.family import ModelFamily, common_family, families, find_family
from silicast.workload.families.reader import ACTIVATIONS, ClassDefaults, activation, read_model
from silicast.workload.models.checkpoint import checkpoint_precision
from silicast.workload.models.checkpoint_modules import with_module_formats
from silicast.workload.models.counting import parameters
from silicast.workload.models.language_part import (
    ENCODERS,
    language_model,
    language_part,
    part_name,
    tables,
)
from silicast.workload.models.model import LIMITS, ModelConfig
from silicast.workload.models.model_file import HF_NAMES
from silicast.workload.models.structures import structures, unread_structures

_PATTERNS = (
    r".*_token_id[s]?", r".*_token_index", r".*dropout.*", r".*_pdrop", r".*_eps", r".*epsilon",
    r".*_coef(f)?", r".*_std", r".*initializer.*", r"init_.*", r"rope_.*", r".*_theta",
    r".*rotary.*", r".*_version", r"use_.*cache", r"summary_.*", r"problem_type", r"id2label",
    r"label2id", r"return_.*", r"output_(attentions|hidden_states|router_logits|scores)",
    r".*softcapping", r".*_multiplier", r".*_scaling.*", r".*logit_scale", r"scale_attn.*",
    r"reorder_and_upcast.*", r".*_scale", r"rescale_.*", r"router_.*", r"norm_topk_prob",
    r"scoring_func", r"topk_method", r"topk_group", r"n_group", r"seq_aux", r".*_aux_.*",
    r"gradient_checkpointing", r"(quantization|generation|task_specific)_.*", r"_.*", r".*_limit",
    r".*layerdrop", r"forced_.*", r".*(min|max)_length", r"(image|video|vision|audio)_.*",
    r"(text|speech)_config", r"num_beams", r"(bos|eos|pad|sep|cls|mask|unk|boi|eoi|boa|eoa).*",
    r"time_step_.*",
)  # fmt: skip
"""Names, as whole patterns: tokens, training, numerics, rotation, generation, routing's scores."""

_NAMES = frozenset(
    (
        "architectures", "model_type", "torch_dtype", "dtype", "auto_map", "tokenizer_class",
        "pretraining_tp", "chunk_size_feed_forward", "is_decoder", "is_encoder_decoder",
        "prefix", "name_or_path", "tie_encoder_decoder", "cross_attention_hidden_size",
        "finetuning_task", "pruned_heads", "remove_invalid_values", "torchscript", "tf_legacy_loss",
        "use_bfloat16", "no_repeat_ngram_size", "repetition_penalty", "temperature", "top_k",
        "top_p", "typical_p", "diversity_penalty", "do_sample", "early_stopping", "length_penalty",
        "encoder_no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "num_return_sequences",
        "original_max_position_embeddings", "position_embedding_type", "attn_implementation",
        "use_return_dict", "hidden_act", "activation_function", "hidden_activation", "use_cache",
        "ep_size", "attn_softmax_bf16", "fp32_residual_connection", "apply_residual_connection",
        "apply_residual_connection_post_layernorm", "bias_dropout_fusion", "masked_softmax_fusion",
        "n_ctx", "max_length", "clip_qkv", "logits_to_keep", "num_logits_to_keep",
        "aux_loss_alpha", "num_beam_groups",
        "ignore_index", "max_window_layers", "initial_context_length", "use_mamba_kernels",
    )
)  # fmt: skip
_WITHOUT_STRUCTURE = re.compile("|".join(f"(?:{pattern})" for pattern in _PATTERNS))


def ignored_config_fields(data: Mapping[str, Any], read: Iterable[str]) -> tuple[str, ...]:
    """Fields that are set, were not read, and may describe the structure.

    Args:
        read: names of the fields that were read.

    >>> ignored_config_fields({"hidden_size": 8, "bos_token_id": 1, "gadgets": 3}, ["hidden_size"])
    ('gadgets',)
    """
    understood = _NAMES.union(read)
    return tuple(
        sorted(
            name[:60]
            for name, value in data.items()
            if name not in understood
            and value not in (None, False, "", [], {})
            and not _WITHOUT_STRUCTURE.fullmatch(name)
        )
    )


CLASSES = CATALOG / "model_classes.json"


def class_defaults(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Field -> value, for the configuration's ``model_type``; empty where it is not known."""
    return _classes().get(str(data.get("model_type")), {})


@cache
def _classes() -> dict[str, dict[str, bool | int | str]]:
    return msgspec.json.decode(CLASSES.read_bytes(), type=dict[str, dict[str, bool | int | str]])


_NEEDED = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)
"""What every decoder states under some name."""

_APART = frozenset(("vision",))
"""Structures that stand beside the language model: it is read without them."""
_ENCODER_LEFT_OUT = "encoder of images or sound is left out"


def read_config(data: dict[str, Any], *, name: str = "", file: str = "") -> ModelConfig:
    """The model of a decoded configuration.

    An architecture that is not known, or one with structures that it does not have, is read as the
    nearest family that has them, and as the common structure of decoders where no family
    understands more of its fields; heads that contradict each other are brought to the nearest
    sizes that do not. ``ModelConfig.assumed`` then states it, and ``ModelConfig.ignored_fields``
    names the fields that were not read.

    Args:
        name: what to call it; else ``_name_or_path``, else the architecture.
        file: for error messages.

    Raises:
        SilicastError: a field is missing, wrong or contradicts another; kind "not_yet" where no
            family has the structures that its fields belong to. Names file and field.
    """
    try:
        check_depth(data)
        _check_known(data)
        architecture = _architecture(data)
        called = name or Fields(data).text("_name_or_path", default="") or architecture
        called = called or "unnamed model"
        family, remark, part = find_family(architecture), "", ""
        if family is None and (part := part_name(data)):
            family, remark = _family_of_part(data, part)
            data = language_part(data)
        known_structures = {*_APART, "others", *(family.structures if family else ())}
        if family is not None and not structures(tables(data), known_structures):
            if not remark and _has_encoder(data) and "vision" not in family.structures:
                remark = f"the {_ENCODER_LEFT_OUT}"
            return replace(_read(family, data, called, part)[0], implied=remark)
        return _nearest(architecture, family, data, called)
    except SilicastError as error:
        raise _named(error, data, file) from None


def _read(
    family: ModelFamily, data: dict[str, Any], name: str, part: str = ""
) -> tuple[ModelConfig, int]:
    """The model as ``family`` reads it, with contradictory sizes of heads corrected, and how many
    fields it looked for that are missing. ``part`` is the table that held the fields of
    a language model; "" = none.

    Raises:
        SilicastError: it cannot be read so.
    """
    text = language_part(data) if family.text_part else data
    precision = checkpoint_precision(text)
    assumed: tuple[str, ...] = ()
    # a model that states nothing of a size is a mistake, a part of one is not
    defaults = ClassDefaults(class_defaults(text), sizes=bool(part or part_name(data)))
    try:
        fields = Fields(text)
        model = read_model(family, fields, name, precision, defaults)
    except SilicastError as error:
        text, assumed = _with_fitting_heads(text, error)
        fields = Fields(text)
        model = read_model(family, fields, name, precision, defaults)
    names_read = fields.names_read() | set(family.ignored)
    model = with_module_formats(model, text)
    model = replace(model, ignored_fields=ignored_config_fields(text, names_read), assumed=assumed)
    return model, sum(1 for field in names_read if text.get(field) is None)


def _with_fitting_heads(
    text: dict[str, Any], error: SilicastError
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields with the nearest number of key-value heads that divides the heads, or the nearest
    width of a head, and what was assumed.

    Raises:
        SilicastError: ``error``, if it is about something else.
    """
    sizes = Fields(text)
    heads = sizes.integer("num_attention_heads", default=0)
    hidden = sizes.integer("hidden_size", default=0)
    groups = sizes.integer("num_key_value_heads", default=0)
    if not 1 <= heads <= LIMITS["heads"][1] or not 1 <= hidden <= LIMITS["hidden"][1]:
        raise error
    if error.field == "kv_heads" and 1 <= groups <= heads:
        divisors = [d for d in range(1, heads + 1) if heads % d == 0]
        nearest = min(divisors, key=lambda d: (abs(d - groups), -d))
        assumed = f"{error.message}: {nearest} key-value heads are taken"
        return {**text, "num_key_value_heads": nearest}, (assumed,)
    if error.field == "heads" and heads <= hidden and "head_dim" not in text:
        width = max((hidden + heads // 2) // heads, 1)
        return {**text, "head_dim": width}, (f"{error.message}: a head_dim of {width} is taken",)
    raise error


def _nearest(
    architecture: str, family: ModelFamily | None, data: dict[str, Any], name: str
) -> ModelConfig:
    """The model as read by the family that ignores the fewest fields, of those that have all the
    structures that the fields belong to; then by the one with the fewest structures and the fewest
    missing fields.

    Raises:
        SilicastError: no family has these structures, none can read the fields, or a size that
            the common structure needs is missing.
    """
    needed = set(structures(tables(data))) - _APART
    _check_activation(data)
    best: tuple[tuple[int, int, bool, int, int, str], ModelFamily, ModelConfig] | None = None
    problem = _unknown(architecture, data) if family is None else _foreign(data, family)
    common = common_family()
    plain = family is None and needed <= set(common.structures)
    if plain:
        _require_sizes(common, architecture, data)
    candidates = {family.name: family for family in families().values()}
    for candidate in (*([common] if plain else []), *candidates.values()):
        if not needed <= set(candidate.structures):
            continue
        if candidate is not family and (candidate.alone or "inputs" in needed):
            continue  # state spaces and inputs of layers differ in what no field states
        try:
            result, missing = _read(candidate, data, name)
        except SilicastError as error:
            problem = error if candidate is family else problem
            continue
        misread = unread_structures(result.ignored_fields, needed)
        if misread or not _has_activation(result, data):
            continue  # other layers, or another MLP, than the fields describe
        extra = len(set(candidate.structures) - needed)
        rank = (
            _invented(result, data, needed),
            len(result.ignored_fields),
            candidate is not common,
            extra,
            missing,
            candidate.name,
        )
        if best is None or rank < best[0]:
            best = (rank, candidate, result)
    if best is None:
        raise problem
    _, chosen, model = best
    title = f"the architecture {architecture[:60]!r} "
    title += "is not known" if family is None else "does not have all that its fields say"
    if not architecture:
        title = "no architecture is named"
    nearest = f"{title}: read as {_structure_of(chosen)}, {_described(model)}"
    counted = "vision" in chosen.structures and model.encoder_parameters
    encoder = (f"its {_ENCODER_LEFT_OUT}",) if _has_encoder(data) and not counted else ()
    return replace(model, assumed=(nearest, *encoder, *model.assumed))


def _family_of_part(data: dict[str, Any], part: str) -> tuple[ModelFamily | None, str]:
    """The family of the language model inside a configuration whose whole is not known, and what
    to say of it.
    """
    inner = language_model(data)
    family = find_family(_architecture(inner)) if inner.get("architectures") else None
    if family is None and isinstance(inner.get("model_type"), str):
        family = find_family(inner["model_type"])
    if family is None:
        return None, ""
    text = f"the language model under {part} is read as {family.architectures[0]}"
    return family, f"{text}; the {_ENCODER_LEFT_OUT}" if _has_encoder(data) else text


def _has_encoder(data: Mapping[str, Any]) -> bool:
    return any(data.get(name) for name in ENCODERS)


def _check_activation(data: Mapping[str, Any]) -> None:
    """Raises SilicastError for an activation that no family knows."""
    if (name := _activation_field(data)) and data[name] not in ACTIVATIONS:
        activation(Fields(data), name)


def _has_activation(model: ModelConfig, data: Mapping[str, Any]) -> bool:
    """Whether a model has the activation that the configuration states, if it states one."""
    name = _activation_field(data)
    return not name or ACTIVATIONS[data[name]] == model.activation


def _activation_field(data: Mapping[str, Any]) -> str:
    names = ("hidden_act", "hidden_activation", "activation_function")
    return next((name for name in names if isinstance(data.get(name), str)), "")


def _require_sizes(common: ModelFamily, architecture: str, data: dict[str, Any]) -> None:
    """Raises SilicastError for a field without which the common structure cannot be read; defaults
    of other families do not stand for it.
    """
    try:
        _read(common, data, architecture)
    except SilicastError as error:
        if error.message != "missing":
            return  # another family may know the value
        if not architecture:
            raise _nameless(data) from None
        raise unmodelled(
            f"missing: the architecture {architecture[:60]!r} is not known, and the common "
            "structure of decoders needs it",
            error.field,
            "state it, or trace the module: silicast trace",
        ) from None


def _invented(model: ModelConfig, data: Mapping[str, Any], needed: Collection[str]) -> int:
    """Parts of a model that no field of the configuration stands for: its family's defaults."""
    names = {name for table in tables(data) for name in table}
    experts = model.moe is not None and "experts" not in needed
    shared = model.moe is not None and model.moe.shared_intermediate > 0
    windows = any(model.windows) and not any("window" in name or "chunk" in name for name in names)
    unstated = shared and not any("shared" in name for name in names)
    return experts + windows + unstated


def _structure_of(family: ModelFamily) -> str:
    """How a family is named in messages."""
    if not family.architectures:
        return "the common structure of decoders"
    return f"{family.architectures[0]}, the nearest structure that is modelled"


def _described(model: ModelConfig) -> str:
    """Parts and size of a model, in words."""
    parts = [f"{model.layers} layers"]
    if model.moe is not None:
        parts.append(f"{model.moe.experts} experts of which {model.moe.topk} run")
        if model.moe.shared_intermediate:
            parts.append("a shared expert")
    if any(model.windows):
        parts.append(f"windows in {sum(map(bool, model.windows))} of them")
    return f"with {', '.join(parts)} and {parameters(model) / 1e9:.3g} billion parameters"


def _check_known(data: Mapping[str, Any]) -> None:
    """Raises SilicastError for a value that no architecture can have, whoever reads the field."""
    for table in tables(data):
        kinds, layers = table.get("layer_types"), table.get("num_hidden_layers")
        if isinstance(kinds, list) and isinstance(layers, int) and len(kinds) != layers:
            raise SilicastError(
                f"{len(kinds)} names for {layers} layers",
                field="layer_types",
                hint="give one for each layer",
            )
        window = table.get("sliding_window")
        if isinstance(window, int) and window < 0:
            raise SilicastError(f"expected 0 or more keys, found {window}", field="sliding_window")
        width = table.get("head_dim")
        if isinstance(width, int) and (width < 0 or width % 2):
            raise SilicastError(f"expected an even width, found {width}", field="head_dim")


def _architecture(data: Mapping[str, Any]) -> str:
    architectures = data.get("architectures")
    if architectures:
        if not isinstance(architectures, list) or not isinstance(architectures[0], str):
            raise SilicastError("expected a list of names", field="architectures")
        return str(architectures[0])
    kind = data.get("model_type")
    if isinstance(kind, str) and kind:
        return kind
    if data.keys() & HF_NAMES.keys():
        return ""
    raise _nameless(data)


def _nameless(data: Mapping[str, Any]) -> SilicastError:
    """What a configuration without an architecture lacks to be read as the nearest one."""
    lacking = [name for name in _NEEDED if name not in data]
    return SilicastError(
        f"missing, as are {', '.join(lacking)}" if lacking else "missing",
        field="architectures",
        hint="is this the config.json of a model? it names its architecture",
    )


def _unknown(architecture: str, data: Mapping[str, Any]) -> SilicastError:
    if not architecture:
        return _nameless(data)
    needed = structures(tables(data))
    known_names = sorted(name for name in families() if name[0].isupper())
    missing = f": it needs {', '.join(needed.values())}" if needed else ""
    return unmodelled(
        f"the architecture {architecture[:60]!r} is not modelled yet{missing}",
        "architectures",
        f"modelled: {', '.join(known_names)}",
    )


def _foreign(data: Mapping[str, Any], family: ModelFamily) -> SilicastError:
    needed = structures(tables(data), family.structures)
    return unmodelled(
        f"fields of {', '.join(needed.values())} in an architecture without them",
        "architectures",
        "remove those fields or state the right architecture",
    )


def _named(error: SilicastError, data: Mapping[str, Any], file: str) -> SilicastError:
    """The same error with the configuration's own name of the field, and the file."""
    hf_names = [hf for hf, ours in HF_NAMES.items() if ours == error.field and hf in data]
    return error.located(hf_names[0] if hf_names else "", error.file or file)
