"""BERT and RoBERTa: an encoder with its norms on the residual's sums, segments, a pooler."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Bert(Family):
    """Every architecture on top of the same encoder is read as the encoder with its pooler: other
    heads are a product over the hidden states.
    """

    architectures = (
        "BertModel", "BertLMHeadModel", "BertForMaskedLM", "BertForPreTraining",
        "BertForSequenceClassification", "BertForQuestionAnswering", "RobertaModel",
        "RobertaForMaskedLM", "XLMRobertaModel", "XLMRobertaForMaskedLM",
    )  # fmt: skip
    model_types = ("bert", "roberta", "xlm-roberta")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        fields.refuse("add_cross_attention", "cross attention")
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        positions = fields.integer("max_position_embeddings", default=512)
        return ModelConfig(
            name=name,
            family="bert",
            layers=fields.layers("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size", default=30522),
            norm="layernorm",
            norm_bias=True,
            norm_at="sum",
            gated=False,
            activation=fields.activation("hidden_act", default="gelu"),
            qkv_bias=True,
            o_bias=True,
            mlp_bias=True,
            position="learned",
            position_rows=positions,
            embedding_norm=True,
            type_rows=fields.integer("type_vocab_size", default=2),
            tied=True,
            causal=False,
            pooler=True,
            max_positions=positions,
            default_precision=precision,
        )
