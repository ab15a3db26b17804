"""Gemma 4: layers without a window have wider heads, one projection for keys and values."""

from __future__ import annotations

from typing import final

from silicast.workload.families._encoders import gemma4_vision
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import window_layers
from silicast.workload.model import LayerSizes, ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class Gemma4(Family):
    """``enable_moe_block`` puts experts beside the MLP, which then is like a shared expert. The
    encoder is counted, not run.
    """

    architectures = ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration")
    model_types = ("gemma4_text", "gemma4")
    structures = ("vision", "experts", "sizes")
    text_part = True

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        for field, missing in (
            ("hidden_size_per_layer_input", "an embedding per layer"),
            ("num_kv_shared_layers", "layers that share keys and values"),
            ("use_double_wide_mlp", "MLPs of double width"),
            ("audio_config", "an audio encoder"),
        ):
            fields.refuse(field, missing)
        layers, heads = fields.layers("num_hidden_layers"), fields.integer("num_attention_heads")
        width, groups = (
            fields.integer("head_dim", default=256),
            fields.integer("num_key_value_heads"),
        )
        inner = fields.integer("intermediate_size")
        windows = window_layers(fields, layers, 6, 1024)
        wide = LayerSizes(
            kv_heads=fields.integer("num_global_key_value_heads", default=groups),
            head_dim=fields.integer("global_head_dim", default=width),
            shared_kv=fields.flag("attention_k_eq_v", default=False),
        )
        return ModelConfig(
            name=name,
            family="gemma4",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=heads,
            kv_heads=groups,
            head_dim=width,
            intermediate=inner,
            vocab=fields.integer("vocab_size", default=262144),
            activation=fields.activation("hidden_activation", default="gelu_pytorch_tanh"),
            qk_norm=True,
            output_norms=True,
            tied=fields.flag("tie_word_embeddings", default=True),
            windows=windows,
            sizes=tuple(LayerSizes() if window else wide for window in windows),
            max_positions=fields.integer("max_position_embeddings", default=262144),
            moe=self._experts(fields, inner),
            encoder_parameters=gemma4_vision(fields),
            default_precision=precision,
        )

    @staticmethod
    def _experts(fields: Fields, inner: int) -> MoE | None:
        if not fields.flag("enable_moe_block", default=False):
            return None
        return MoE(
            experts=fields.integer("num_experts", default=128),
            topk=fields.integer("top_k_experts", default=8),
            intermediate=fields.integer("moe_intermediate_size", "expert_intermediate_size"),
            shared_intermediate=inner,
        )
