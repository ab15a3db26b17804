"""All weight tensors of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from silicast.workload.mixers._mixer import mixer_named
from silicast.workload.models.model import LayerKind, ModelConfig, MoE
from silicast.workload.models.weight_tensor import Weight


def layer_weights(model: ModelConfig, kind: LayerKind) -> tuple[Weight, ...]:
    """Weights of one decoder layer."""
    parts = (kind.mixer != "") + (kind.feed != "")
    norms = 1 if model.residual == "parallel" else parts
    norms += parts if model.output_norms else 0
    weights: list[Weight] = []
    if kind.mixer:
        weights += mixer_named(kind.mixer).weights(model, kind)
    if kind.feed == "experts" and model.moe is not None:
        weights += _expert_weights(model, model.moe)
    elif kind.feed:
        weights += _mlp_weights(model, kind)
    if kind.mixer and model.encoder is not None:
        from silicast.workload.transformers.encoder_nodes import cross_weights

        weights += cross_weights(model, model.encoder, kind)
        norms += 1
    weights.append(Weight("norms", model.hidden, count=norms * _norm_vectors(model)))
    if model.layer_input:
        h, width = model.hidden, model.layer_input
        weights.append(Weight("layer_input_gate", width, h, "none", "linear"))
        weights.append(Weight("layer_input_up", h, width, "none", "linear"))
        weights.append(Weight("layer_input_norm", h + 1))
    if kind.formats:
        weights = [replace(weight, formats=kind.formats) for weight in _apart(weights, kind)]
    return tuple(weights)


def _apart(weights: list[Weight], kind: LayerKind) -> list[Weight]:
    """Keys and values, and values and gates of recurrent layers, as two tensors where the second
    has a format of its own.
    """
    format_by_name = dict(kind.formats)
    apart: list[Weight] = []
    for weight in weights:
        second = {"kv": "v", "vz": "z"}.get(weight.name, "")
        if (
            second in format_by_name
            and weight.count == 2
            and second not in {other.name for other in weights}
        ):
            apart += [replace(weight, name=name, count=1) for name in (weight.name, second)]
        else:
            apart.append(weight)
    return apart


def weights_of_layers(
    model: ModelConfig, layers: range | None = None
) -> Iterator[tuple[Weight, int]]:
    """Each weight of the kinds of ``layers``, by default of all, and how many layers have it."""
    for kind, count in model.kind_counts(layers).items():
        for weight in layer_weights(model, kind):
            yield weight, count


def _mlp_weights(model: ModelConfig, kind: LayerKind) -> list[Weight]:
    h, f, ups = model.hidden, kind.intermediate, 2 if model.gated else 1
    weights = [
        Weight("up", f, h, "dense_outputs", "linear", ups),
        Weight("down", h, f, "dense_inputs", "linear"),
    ]
    if model.mlp_bias:
        weights.append(Weight("up_bias", f, cut="dense_outputs", count=ups))
        weights.append(Weight("down_bias", h))
    return weights


def _expert_weights(model: ModelConfig, moe: MoE) -> list[Weight]:
    h, f, ups = model.hidden, moe.intermediate, 2 if model.gated else 1
    count, topk = moe.held, moe.topk
    inside = moe.latent or h
    weights = [
        Weight("router", moe.experts, h, "none", "router"),
        Weight("expert_up", f, inside, "expert_outputs", "expert", ups * count, ups * topk),
        Weight("expert_down", inside, f, "expert_inputs", "expert", count, topk),
    ]
    if moe.latent:
        weights.append(Weight("latent_down", moe.latent, h, "none", "linear"))
        weights.append(Weight("latent_up", h, moe.latent, "none", "linear"))
    if moe.router_bias:
        weights.append(Weight("router_bias", moe.experts))
    if model.mlp_bias:
        weights.append(
            Weight("expert_up_bias", f, 1, "expert_outputs", "vector", ups * count, ups * topk)
        )
        weights.append(Weight("expert_down_bias", h, 1, "experts", "vector", count, topk))
    if moe.shared_intermediate:
        s = moe.shared_intermediate
        weights.append(Weight("shared_up", s, h, "outputs", "linear", ups))
        weights.append(Weight("shared_down", h, s, "inputs", "linear"))
        if moe.shared_gate:
            weights.append(Weight("shared_gate", 1, h, "none", "router"))
    return weights


def input_weights(model: ModelConfig) -> tuple[Weight, ...]:
    """Weights before the first layer of a decoder, an encoder before it included."""
    width = model.embedding_width or model.hidden
    weights = [Weight("embedding", model.vocab, width, "vocab", "table")]
    if model.embedding_width:
        weights.append(Weight("project_in", model.hidden, width, "none", "table"))
    if model.layer_input:
        width = model.layers * model.layer_input
        weights.append(Weight("layer_embedding", model.vocab, width, "vocab", "table"))
        weights.append(Weight("layer_inputs", width, model.hidden, "none", "table"))
        weights.append(Weight("layer_inputs_norm", model.layer_input))
    weights += _stem_weights(model)
    if model.encoder_parameters:
        weights.append(Weight("encoder", model.encoder_parameters, cut="encoder"))
    if model.encoder is not None:
        weights += encoder_weights(model.encoder)
    return tuple(weights)


def encoder_weights(encoder: ModelConfig) -> list[Weight]:
    """Weights of a whole encoder, which shares the decoder's embedding."""
    from silicast.workload.transformers.encoder_nodes import frontend_weights

    value = frontend_weights(encoder) if encoder.mel_bins else []
    value += _stem_weights(encoder)
    value += [
        replace(weight, count=count * weight.count, per_token=count * weight.per_token)
        for weight, count in weights_of_layers(encoder)
    ]
    value += _final_norm(encoder)
    return [replace(weight, name=f"encoder_{weight.name}") for weight in value]


def _stem_weights(model: ModelConfig) -> list[Weight]:
    """Tables of positions, segments and distances, and the norm behind the embedding."""
    weights: list[Weight] = []
    if model.position == "learned":
        weights.append(Weight("positions", model.position_rows, model.hidden, "none", "table"))
    if model.embedding_norm:
        weights.append(Weight("embedding_norm", model.hidden, count=_norm_vectors(model)))
    if model.type_rows:
        weights.append(Weight("types", model.type_rows, model.hidden, "none", "table"))
    if model.relative_buckets:
        weights.append(Weight("distances", model.heads, model.relative_buckets, "none", "table"))
    return weights


def _final_norm(model: ModelConfig) -> list[Weight]:
    """The norm behind the last layer, unless every layer ends with one."""
    if model.norm_at == "sum":
        return []
    return [Weight("final_norm", model.hidden, count=_norm_vectors(model))]


def output_weights(model: ModelConfig) -> tuple[Weight, ...]:
    """Weights after the last layer; a tied head is the embedding's and not listed."""
    final_norm = _final_norm(model)
    if model.pooler:
        final_norm.append(Weight("pooler", model.hidden, model.hidden, "none", "table"))
        final_norm.append(Weight("pooler_bias", model.hidden))
        return tuple(final_norm)
    width = model.embedding_width or model.hidden
    if model.embedding_width:
        final_norm.append(Weight("project_out", width, model.hidden, "none", "table"))
    if not model.tied:
        final_norm.append(Weight("head", model.vocab, width, "vocab", "table"))
    if model.head_bias:
        final_norm.append(Weight("head_bias", model.vocab, cut="vocab"))
    return tuple(final_norm)


def mtp_weights(model: ModelConfig) -> tuple[Weight, ...]:
    """Weights of one multi-token-prediction layer: a decoder layer like the last, the projection
    of token and hidden state side by side, and three norms (MiMo-7B and DeepSeek-V3); embedding
    and head are the model's own.
    """
    h = model.hidden
    return (
        *layer_weights(model, drafting_kind(model)),
        Weight("mtp_projection", h, 2 * h, "none", "router"),
        Weight("mtp_norms", h, count=3 * _norm_vectors(model)),
    )


def drafting_kind(model: ModelConfig) -> LayerKind:
    """Kind of a layer that predicts further tokens: the last layer's; where attention and feed
    stand in layers of their own, the last of both.
    """
    last = model.kind(model.layers - 1)
    if last.mixer:
        return last
    mixing = [kind for kind in model.kinds if kind.mixer in ("heads", "latent")]
    if not mixing:
        return last
    return replace(mixing[-1], feed=last.feed, intermediate=last.intermediate)


def _norm_vectors(model: ModelConfig) -> int:
    return 2 if model.norm_bias else 1
