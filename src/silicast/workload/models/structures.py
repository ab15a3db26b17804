"""Structures beyond a dense decoder that the fields of a configuration belong to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

_STRUCTURES: dict[str, tuple[str, ...]] = {
    "latent": ("multi-head latent attention (MLA)", r"(kv|q)_lora_rank", "share_q_dim"),
    "sparse": ("sparse attention", r"index_(topk|n_heads|block_size).*", "sparse_attention_config"),
    "experts": (
        "mixture of experts (MoE)",
        r"(moe_)?(num|n)_(local_|routed_)?experts",
        "moe_intermediate_size",
    ),
    "mamba": (
        "Mamba layers",
        "hybrid_override_pattern",
        r"attn_layer(s|_(period|offset|indices|idx))",
        r"(ssm|mamba)_.*",
        "state_size",
        "time_step_rank",
        "mb_per_layer",
    ),
    "linear": (
        "linear attention layers",
        r"linear_(?!bias).*",
        r"lightning_.*",
        "lru_width",
        r"attn_mode|expand_([kv]|ratio)|(q_|k_)?feature_map|use_short_conv|(a|v|decay|gate)_low_rank_dim",
        r"rwkv_.*|[ms]lstm_.*",
        r".*retention_heads|attention_hidden_size|head_size_divisor",
        "layer_group_size",
        "full_attention_interval",
    ),
    "convolution": ("convolution layers", "conv_L_cache", "conv_dim"),
    "vision": ("a vision or audio encoder", r"(vision|audio)_config"),
    "encoder": ("an encoder", "is_encoder_decoder", "num_decoder_layers"),
    "sizes": (
        "layers of different sizes",
        "block_configs",
        "swa_head_dim",
        "global_head_dim",
        "num_attention_heads_per_layer",
        "per_layer_config",
    ),
    "inputs": ("an embedding per layer", "hidden_size_per_layer_input", r"altup_num_.*"),
    "loops": ("layers that run several times", r".*recurrent_l.*", r"[HL]_cycles"),
    "others": ("layers of a kind that is not known",),
}
"""Key -> name for messages, and patterns of the fields that belong to it."""
_PATTERNS = {
    key: re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    for key, (_, *patterns) in _STRUCTURES.items()
    if patterns
}
_KERNELS_CHOSEN = re.compile(r"(use_mamba.*|mamba_ssm_(cache_)?dtype|.*_kernels)")
"""Fields that name a way to run a structure, and are there without it."""
_RECURRENT = frozenset(("mamba", "linear", "convolution"))
"""Structures in whose layers tokens meet in a state instead of in attention."""
_LISTS = ("layer_types", "layers_block_type", "block_types", "attn_type_list")
_MIXERS: dict[str | int, str] = {
    0: "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "hybrid": "mamba",
    "recurrent": "linear",
    "linear_attention": "linear",
    "conv": "convolution",
}
"""Entries of lists of layers that stand for no attention -> the structure."""
_ATTENTION = re.compile(
    r"(?!.*(?:linear|lightning|delta|recurrent)).*att(?:entio)?n.*"
    r"|full|global|local|sliding.*|mlp|moe|dense"
)
"""Entries of such lists that stand for attention, or for a layer without any mixer."""


def structures(tables: Iterable[Mapping[str, Any]], known: Collection[str] = ()) -> dict[str, str]:
    """Structures, beyond ``known``, that fields belong to: key -> name for messages.

    Args:
        tables: the fields of a configuration, and of the tables in it that describe the model.

    >>> structures([{"num_local_experts": 8, "kv_lora_rank": None}])
    {'experts': 'mixture of experts (MoE)'}
    """
    present = {key for table in tables for key in _stated(table)}
    return {
        key: name for key, (name, *_) in _STRUCTURES.items() if key in present and key not in known
    }


def unread_structures(unread: Iterable[str], needed: Collection[str]) -> list[str]:
    """Those of the fields that nobody read which describe a structure of the decoder's layers.

    Args:
        needed: structures that the configuration's fields belong to; a list of layers describes
            one only where some layers have no attention.

    >>> unread_structures(["mamba_d_state", "use_mamba_kernels", "layer_types"], ["mamba"])
    ['mamba_d_state', 'layer_types']
    """
    recurrent = bool(_RECURRENT.intersection(needed))
    return [
        name
        for name in unread
        if set(_structures_of(name)) - {"vision", "encoder"} or (recurrent and name in _LISTS)
    ]


def _stated(table: Mapping[str, Any]) -> Iterator[str]:
    """Structures of one table's fields."""
    for name, value in table.items():
        if value not in (None, False, 0, "", {}, []):
            yield from _structures_of(name)
        if name in _LISTS and isinstance(value, list):
            mixers = {_MIXERS[entry] for entry in value if _named(entry)}
            yield from {"mamba"} if mixers and _has_mamba(table) else mixers
            if any(isinstance(entry, str) and _foreign(entry) for entry in value):
                yield "others"


def _structures_of(name: str) -> list[str]:
    if _KERNELS_CHOSEN.fullmatch(name):
        return []
    return [key for key, pattern in _PATTERNS.items() if pattern.fullmatch(name)]


def _has_mamba(table: Mapping[str, Any]) -> bool:
    """Whether other fields say which layers those are that a list names linear attention."""
    return any("mamba" in _structures_of(name) for name in table)


def _foreign(entry: str) -> bool:
    return entry not in _MIXERS and not _ATTENTION.fullmatch(entry)


def _named(entry: object) -> bool:
    return isinstance(entry, str | int) and entry in _MIXERS
