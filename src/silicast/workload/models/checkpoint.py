"""Number formats that a checkpoint states in its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from silicast.core.errors import SilicastError, unmodelled
from silicast.formats.fields import Fields
from silicast.workload.models.precision import HIDDEN_FORMATS, Precision

_ALGORITHMS = {
    "FP8": "fp8_static", "FP8_BLOCK_SCALES": "fp8_block", "MXFP8": "mxfp8", "NVFP4": "nvfp4",
    "W4A16_AWQ": "int4_wo", "W4A16": "int4_wo", "W8A16": "int8_wo", "W4A8_AWQ": "w4afp8",
    "W8A8_SQ": "sq", "W4A16_MXFP4": "w4a16_mxfp4", "W4A8_MXFP4_MXFP8": "w4a8_mxfp4_mxfp8",
    "W4A8_MXFP4_FP8": "w4a8_mxfp4_mxfp8",
}  # fmt: skip
"""Names of ModelOpt and TensorRT-LLM -> recipes."""


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
        hidden = Precision.from_formats(weights=stated if stated != "auto" else "bf16")
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
        upper = str(quantisation.get("moe_quant_algo") or "").upper()
        if upper in _ALGORITHMS:  # the routed experts in a format of their own
            experts = _ALGORITHMS[upper]
            return Precision.from_formats(
                recipe=recipe, experts=experts, kv_cache=cache, default=hidden
            )
        left_out = _left_out(quantisation)
        attention = hidden.recipe if "attention" in left_out else _of_attention(quantisation)
        if "mlp" in left_out:  # only the routed experts are quantised
            return Precision.from_formats(
                experts=recipe, group_size=group, kv_cache=cache, default=hidden
            )
        return Precision.from_formats(
            recipe=recipe, group_size=group, kv_cache=cache, attention=attention, default=hidden
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
    if algorithm in _ALGORITHMS:
        return _ALGORITHMS[algorithm], 0
    if method == "compressed-tensors" or "config_groups" in q:
        return _grouped(q)
    if method in ("awq", "gptq"):
        bits = Fields(dict(q)).integer("bits", default=4)
        if bits in (4, 8):
            group = Fields(dict(q)).integer("group_size", default=128)
            return f"int{bits}_wo", max(group, 0)
    if method == "mxfp4":
        return "w4a16_mxfp4", 0
    raise unmodelled(
        f"the quantisation {(method or algorithm or 'without a name')[:40]!r} is not known",
        "quant_method",
        "state precision.recipe in the scenario instead",
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
    items = []
    for name in groups.names():
        targets = groups.table(name).words("targets")
        if targets and all("_attn" in target[:200] for target in targets):
            items.append(name)
    return items if len(items) < len(groups.names()) else []


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
        else:
            raise unmodelled(f"{bits}-bit {kind[:20]} weights are not known", "config_groups")
    if len(distinct) != 1:
        raise unmodelled(
            f"expected one quantisation for all layers, found {len(distinct)}", "config_groups"
        )
    return distinct.pop()


def _left_out(q: Mapping[str, Any]) -> set[str]:
    """Parts that a quantised checkpoint keeps in 16 bits: "attention", "mlp" (what all tokens
    pass, so that only routed experts are quantised); heads and routers always are.
    """
    left_out = {"mlp"} if str(q.get("quant_method") or "").casefold() == "mxfp4" else set()
    for field in ("ignore", "modules_to_not_convert", "exclude_modules"):
        entries = q.get(field)
        for entry in entries if isinstance(entries, list) else ():
            if re.search(r"self_attn\W*$", str(entry)[:200]):
                left_out.add("attention")
            elif re.search(r"shared_experts?\W*$", str(entry)[:200]):
                left_out.add("mlp")
    return left_out


def _fp8_cache(q: Mapping[str, Any]) -> bool:
    scheme = q.get("kv_cache_scheme") or q.get("kv_cache_quant_algo")
    if isinstance(scheme, dict):
        return scheme.get("num_bits") == 8
    return isinstance(scheme, str) and scheme.casefold().startswith("fp8")
