"""Fields of a configuration that were not read although they may describe sizes or structure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

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
    known = _NAMES.union(read)
    return tuple(
        sorted(
            name[:60]
            for name, value in data.items()
            if name not in known
            and value not in (None, False, "", [], {})
            and not _WITHOUT_STRUCTURE.fullmatch(name)
        )
    )
