"""Number formats that a checkpoint states in its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from silicast.core.errors import SilicastError, errors_at, unmodelled
from silicast.formats.fields import Fields
from silicast.workload.models.precision import HIDDEN_FORMATS, Precision

_ALGORITHMS = {
    "FP8": "fp8_static", "FP8_BLOCK_SCALES": "fp8_block", "MXFP8": "mxfp8", "NVFP4": "nvfp4",
    "W4A16_AWQ": "int4_wo", "W4A16": "int4_wo", "W8A16": "int8_wo", "W4A8_AWQ": "w4afp8",
    "W8A8_SQ": "sq", "W4A16_MXFP4": "w4a16_mxfp4", "W4A8_MXFP4_MXFP8": "w4a8_mxfp4_mxfp8",
    "W4A8_MXFP4_FP8": "w4a8_mxfp4_mxfp8", "W4A16_NVFP4": "nvfp4_wo",
}  # fmt: skip
"""Names of ModelOpt and TensorRT-LLM -> recipes."""
AUTO_ROUND = ("auto-round", "auto_round", "intel/auto-round", "inc")
"""Names of one method, whose checkpoints hold weights as GPTQ's do."""
_INSTEAD = "state precision.recipe in the scenario instead"
_TORCHAO = {
    "int4weightonly": "int4_wo",
    "int8weightonly": "int8_wo",
    "float8weightonly": "fp8_wo",
    "int8dynamicactivationint8weight": "int8",
    "float8dynamicactivationfloat8weight": "fp8",
    "float8dynamicactivationint4weight": "w4afp8",
}
"""torchao's configurations, without underscores -> recipes."""


def checkpoint_precision(data: Mapping[str, Any]) -> Precision:
    """Number formats a checkpoint states (``torch_dtype`` and ``quantization_config``), bf16
    where it says nothing.

    Raises:
        SilicastError: a quantisation method that is not known.
    """
    dtype = data.get("torch_dtype") or data.get("dtype") or "bfloat16"
    if not isinstance(dtype, str):
        raise SilicastError(f"expected text, found {str(dtype)[:40]!r}", field="torch_dtype")
    try:
        hidden = Precision.from_formats(weights=dtype if dtype != "auto" else "bf16")
    except SilicastError as error:
        raise SilicastError(error.message, field="torch_dtype", hint=error.hint) from None
    if hidden.hidden not in HIDDEN_FORMATS:
        raise SilicastError(f"unexpected format {dtype!r}", field="torch_dtype")
    quantisation = stated_quantisation(data)
    if not quantisation:
        return hidden
    with errors_at("quantization_config"):
        recipe, group = _recipe(quantisation, hidden.recipe)
        cache = "fp8" if _fp8_cache(quantisation) else None
        upper = str(quantisation.get("moe_quant_algo") or "").upper()
        if upper in _ALGORITHMS:  # the routed experts in a format of their own
            experts = _ALGORITHMS[upper]
            return Precision.from_formats(
                recipe=recipe, experts=experts, kv_cache=cache, default=hidden
            )
        if method_of(quantisation) == "mxfp4":  # of routed experts alone
            return Precision.from_formats(
                experts=recipe, group_size=group, kv_cache=cache, default=hidden
            )
        precision = Precision.from_formats(
            recipe=recipe, group_size=group, kv_cache=cache, default=hidden
        )
        # GPTQ and AutoRound state it of the head
        return replace(precision, head=recipe) if quantisation.get("lm_head") is True else precision


def stated_quantisation(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ``quantization_config`` of a configuration; {} = it has none.

    Older compressed-tensors call it ``compression_config``; ModelOpt's own form holds the fields in
    a table ``quantization``.

    Raises:
        SilicastError: it is no object.
    """
    quantisation = data.get("quantization_config") or data.get("compression_config") or {}
    if not isinstance(quantisation, dict):
        raise SilicastError(
            f"expected an object, found {str(quantisation)[:40]!r}", field="quantization_config"
        )
    inner = quantisation.get("quantization")
    return {**quantisation, **inner} if isinstance(inner, dict) else quantisation


def method_of(quantisation: Mapping[str, Any]) -> str:
    """What wrote a quantisation."""
    return str(quantisation.get("quant_method") or "").casefold()


def recipe_of_algorithm(name: str, field: str) -> str:
    """The recipe that ModelOpt calls so.

    Raises:
        SilicastError: unknown.
    """
    if name.upper() not in _ALGORITHMS:
        algorithms = ", ".join(_ALGORITHMS)
        raise unmodelled(
            f"the quantisation {name[:40]!r} is not known", field, f"known: {algorithms}"
        )
    return _ALGORITHMS[name.upper()]


def _recipe(q: Mapping[str, Any], plain: str) -> tuple[str, int]:
    """Recipe and group size of a ``quantization_config``; ``plain`` where it quantises only modules
    that it names.
    """
    method = method_of(q)
    algorithm = str(q.get("quant_algo") or "").upper()
    if method == "fp8":
        if q.get("weight_block_size"):
            return "fp8_block", 0
        return ("fp8_static" if q.get("activation_scheme") == "static" else "fp8"), 0
    if method in _READERS:
        return _READERS[method](q)
    if algorithm in _ALGORITHMS:
        return _ALGORITHMS[algorithm], 0
    if method == "compressed-tensors" or "config_groups" in q:
        return _grouped(q, plain)
    if algorithm == "MIXED_PRECISION" and q.get("quantized_layers"):
        return plain, 0
    if method == "bitsandbytes":
        # a scale of 4 bytes for 64 weights, or of one byte: as many as of 2 bytes for 32 or 128
        double = bool(q.get("bnb_4bit_use_double_quant"))
        return ("int4_wo", 128 if double else 32) if q.get("load_in_4bit") else ("int8_wo", 0)
    if method == "quark":
        return _of_quark(Fields(dict(q)).table("global_quant_config"))
    if method in ("awq", "gptq", *AUTO_ROUND):
        fields = Fields(dict(q))
        bits = fields.integer("bits" if fields.has("bits") else "w_bit", default=4)
        if bits not in (4, 8):
            raise unmodelled(f"{bits}-bit weights of {method} are not modelled", "bits", _INSTEAD)
        group = fields.integer(
            "group_size" if fields.has("group_size") else "q_group_size", default=128
        )
        return f"int{bits}_wo", max(group, 0)
    if method == "mxfp4":
        return "w4a16_mxfp4", 0
    raise unmodelled(
        f"the quantisation {(method or algorithm or 'without a name')[:40]!r} is not known",
        "quant_method",
        _INSTEAD,
    )


def _grouped(q: Mapping[str, Any], plain: str) -> tuple[str, int]:
    """Recipe of the compressed-tensors groups that are about all linear layers, which must agree;
    ``plain``, with the weights a scale of the others, where all groups name their modules.
    """
    groups = Fields(dict(q)).table("config_groups")
    whole = [name for name in groups.names() if not _named_targets(groups.table(name))]
    if whole or not groups.names():
        return _agreed(groups, whole)
    sizes = {_agreed(groups, [name])[1] for name in groups.names()} - {0}
    return plain, min(sizes, default=0)


def group_recipes(q: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name or pattern of modules, recipe) of groups that are about named modules."""
    recipes: list[tuple[str, str]] = []
    if "config_groups" in q:
        groups = Fields(dict(q)).table("config_groups")
        for name in groups.names():
            targets = _named_targets(groups.table(name))
            recipes += [(target, _agreed(groups, [name])[0]) for target in targets]
    if method_of(q) == "quark" and isinstance(q.get("layer_quant_config"), dict):
        layers = Fields(dict(q)).table("layer_quant_config")
        recipes += [(name, _of_quark(layers.table(name))[0]) for name in layers.names()]
    return recipes


def _named_targets(group: Fields) -> list[str]:
    """Targets of a group that are modules, not a class of them ("Linear")."""
    targets = group.words("targets") if group.has("targets") else ()
    return [t for t in targets if ":" in t or "." in t or "*" in t or not t[:1].isupper()]


def _of_torchao(q: Mapping[str, Any]) -> tuple[str, int]:
    """Recipe and group size of a torchao configuration: its name, or the table of its class.

    >>> _of_torchao({"quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}})
    ('int4_wo', 64)
    """
    quant_type = q.get("quant_type")
    if isinstance(quant_type, dict):
        table = Fields(dict(q)).table("quant_type").table("default")
        name, options = table.text("_type", default=""), table.table("_data")
    else:
        name, options = str(quant_type or ""), Fields(dict(q)).table("quant_type_kwargs")
    word = name.casefold().replace("_", "").removesuffix("config")
    if word not in _TORCHAO:
        raise unmodelled(f"torchao's {name[:40]!r} is not known", "quant_type", _INSTEAD)
    recipe = _TORCHAO[word]
    grouped = recipe == "int4_wo"
    return recipe, max(options.integer("group_size", default=128), 0) if grouped else 0


def _of_hqq(q: Mapping[str, Any]) -> tuple[str, int]:
    """Recipe and group size of HQQ's parameters."""
    params = Fields(dict(q)).table("quant_config").table("weight_quant_params")
    bits = params.integer("nbits", default=4)
    if bits not in (4, 8):
        raise unmodelled(f"HQQ's weights of {bits} bits are not known", "quant_config")
    return f"int{bits}_wo", max(params.integer("group_size", default=64), 0)


def _of_fbgemm(_: Mapping[str, Any]) -> tuple[str, int]:
    return "fp8", 0


_READERS = {"torchao": _of_torchao, "hqq": _of_hqq, "fbgemm_fp8": _of_fbgemm}
"""Methods with a form of their own -> what reads it."""


def _of_quark(group: Fields) -> tuple[str, int]:
    """Recipe and group size of one of Quark's configurations."""
    weights, inputs = group.table("weight"), group.table("input_tensors")
    dtype, size = weights.text("dtype"), max(weights.integer("group_size", default=0), 0)
    quantised = bool(inputs.names())
    if dtype.startswith("fp8"):
        dynamic = quantised and inputs.flag("is_dynamic", default=False)
        return ("fp8" if dynamic else "fp8_static" if quantised else "fp8_wo"), 0
    if dtype == "fp4":
        return ("mxfp4" if quantised else "w4a16_mxfp4"), 0
    if dtype in ("int8", "uint8"):
        return ("int8", 0) if quantised else ("int8_wo", size)
    if dtype in ("int4", "uint4") and not quantised:
        return "int4_wo", size
    raise unmodelled(f"weights in {dtype[:20]!r} are not known", "weight.dtype")


def _agreed(groups: Fields, names: list[str]) -> tuple[str, int]:
    """The one recipe and group size of some groups."""
    distinct: set[tuple[str, int]] = set()
    for name in names:
        group = groups.table(name)
        weights, inputs = group.table("weights"), group.table("input_activations")
        bits, kind = weights.integer("num_bits"), weights.text("type", default="int")
        size = max(weights.integer("group_size", default=0), 0)
        quantised_inputs = bool(inputs.names())
        if kind == "float" and bits == 8:
            distinct.add(("fp8" if inputs.flag("dynamic", default=False) else "fp8_static", 0))
        elif kind == "float" and bits == 4 and group.text("format", default="")[:5] == "mxfp4":
            distinct.add(("w4a8_mxfp4_mxfp8" if quantised_inputs else "w4a16_mxfp4", 0))
        elif kind == "float" and bits == 4:
            distinct.add(("nvfp4" if quantised_inputs else "nvfp4_wo", 0))
        elif kind == "int" and bits == 8:
            distinct.add(
                ("int8" if quantised_inputs else "int8_wo", 0 if quantised_inputs else size)
            )
        elif kind == "int" and bits == 4 and not quantised_inputs:
            distinct.add(("int4_wo", size))
        elif kind == "int" and bits == 4 and inputs.text("type", default="int") == "float":
            distinct.add(("w4afp8", size))
        else:
            beside = " with inputs of 8 bits" if quantised_inputs else ""
            raise unmodelled(
                f"{bits}-bit {kind[:20]} weights{beside} are not known", "config_groups", _INSTEAD
            )
    if not names:
        raise unmodelled(
            "there is no group", "config_groups", "sparse weights without a format are not modelled"
        )
    if len(distinct) != 1:
        raise unmodelled(
            f"expected one quantisation for all layers, found {len(distinct)}", "config_groups"
        )
    return distinct.pop()


def _fp8_cache(q: Mapping[str, Any]) -> bool:
    scheme = q.get("kv_cache_scheme") or q.get("kv_cache_quant_algo")
    if isinstance(scheme, dict):
        return scheme.get("num_bits") == 8
    return isinstance(scheme, str) and scheme.casefold().startswith("fp8")
