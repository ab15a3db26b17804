"""What a decoder model is made of: sizes and structure, no weights, no devices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final, get_args

from silicast.workload.models.model_parts import (
    MLA,
    LayerKind,
    LayerSizes,
    MoE,
    Recurrent,
    SharedBlock,
    Sparse,
    check_divisor,
    check_int,
    check_sizes,
    require,
)
from silicast.workload.models.precision import Precision

__all__ = [
    "LIMITS", "MLA", "LayerKind", "LayerSizes", "MoE", "ModelConfig", "Precision", "Recurrent",
    "SharedBlock", "Sparse", "check_size", "divided",
]  # fmt: skip

Norm = Literal["rmsnorm", "layernorm"]
NormAt = Literal["input", "output", "sum"]
Position = Literal["rope", "learned", "alibi", "none"]
QkNorm = Literal["head", "all_heads", "no_weights"]
Residual = Literal["sequential", "parallel", "parallel_two_norms"]
Activation = Literal["silu", "gelu", "relu", "relu2"]

LIMITS: dict[str, tuple[int, int]] = {
    "layers": (1, 1024), "hidden": (1, 1 << 20), "heads": (1, 1 << 14), "kv_heads": (1, 1 << 14),
    "head_dim": (1, 1 << 14), "intermediate": (1, 1 << 22), "vocab": (1, 1 << 24),
    "max_positions": (0, 1 << 28), "position_rows": (0, 1 << 28), "mtp_layers": (0, 64),
    "predicts": (0, 64),
    "no_rope_every": (0, 1024), "encoder_parameters": (0, 1 << 40),
    "encoder_heads": (0, 1 << 16), "embedding_width": (0, 1 << 20),
    "type_rows": (0, 1 << 20), "relative_buckets": (0, 1 << 16), "mel_bins": (0, 1 << 12),
    "layer_input": (0, 1 << 14),
}  # fmt: skip
"""Smallest and largest sensible sizes; outside them the input is a mistake."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "norm": get_args(Norm),
    "norm_at": get_args(NormAt),
    "position": get_args(Position),
    "residual": get_args(Residual),
    "qk_norm_over": get_args(QkNorm),
    "activation": get_args(Activation),
}


@final
@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer.

    Attributes:
        name: catalog name or what the user calls it.
        family: the architecture it was read from ("llama", "qwen3", "gpt2", ...).
        layers: decoder layers; hidden: width of the residual stream.
        heads, kv_heads, head_dim: attention; ``heads * head_dim`` need not equal ``hidden``.
        intermediate: width of the MLP after its activation; no layer has it where all have experts.
        vocab: rows of the embedding table.
        norm, norm_bias: kind of the norms and whether they have a bias.
        gated: the MLP has a gate projection beside the up projection.
        activation: of the MLP.
        qkv_bias, o_bias, mlp_bias, head_bias: which projections have a bias.
        qk_norm: queries and keys are normalised; qk_norm_over: over each head's ``head_dim``, over
            all heads together, or over each head without weights.
        position: rope, a learned table of ``position_rows`` rows, alibi or none.
        embedding_norm: a norm right after the embedding.
        residual: attention then MLP, or both side by side on one norm or on two.
        tied: the head shares the embedding's weights.
        no_rope_every: every so many layers one has no rotary positions; 0 = all have.
        output_norms: a norm also after attention and after the MLP, before the residual.
        norm_at: where the norms stand: on the input of attention and MLP, on their output before
            the residual instead, or on the sum with the residual (then the stack ends without one).
        sinks: each head has a learned logit that takes a share of its attention.
        windows: per layer, how many last keys a query sees; 0 = all; () = all in every layer.
        chunked: windows are chunks: a query sees the keys of its own chunk only.
        mixers: per layer, its token mixer, "" = none; () = latent attention in every layer where
            ``mla`` is given, else attention of heads.
        feeds: per layer, "mlp", "experts" or "" = none; () = experts wherever ``moe`` has them.
        sizes: per layer, what of its sizes differs from the model's; () = nothing.
        formats: per layer, (weight or node, recipe) of modules that the checkpoint keeps in another
            format than their kind, "" = unquantised; () = none; they hold where
            ``Precision.by_module``.
        embedding_width: of the embedding where products lead from and to it; 0 = ``hidden``.
        causal: a token sees those before it only; False = an encoder: every token sees all, and
            nothing is cached or generated.
        encoder: the stack whose outputs every layer also attends to; None = a decoder alone.
        pooler: the head is a product over each sequence's first token, not logits (BERT).
        type_rows: rows of a table of segments beside the embedding; 0 = none.
        k_bias: keys have a bias where ``qkv_bias``; not so in Whisper.
        relative_buckets: distances that a table a stack gives each head a score for (T5); 0 = none.
        mel_bins: of the spectrogram that two convolutions read instead of an embedding; 0 = none.
        max_positions: longest context the model was made for; 0 = not stated.
        mtp_layers: extra layers that predict further tokens, counted apart: speculation runs them.
        predicts: further tokens that training predicts, by a layer, the head and a loss each.
        moe: routed experts, None = a dense model; mla: latent attention, None = of heads.
        sparse: sizes of the sparse attention that ``mixers`` names ("dsa", "csa", "msa", ...).
        recurrent: sizes of the recurrent layers that ``mixers`` names ("gdn", "kda", "mamba2").
        shared_block: what layers of the mixer "shared_mamba2" add to one block's weights.
        layer_input: width of an embedding of the token that every layer has for itself; 0 = none.
        output_gate: attention's output is scaled by a gate that is projected beside the queries.
        encoder_parameters: of encoders before the decoder (vision), which this graph does not run.
        encoder_heads: of their attention, which servers' tensor ranks share out; 0 = servers'
            code holds them whole on every rank, or not known.
        default_precision: formats of the published checkpoint, bf16 where it does not say.
        published_parameters: exact count its publisher states, 0 = none.
        source: where the numbers come from.
        assumed: what of its structure was assumed because its configuration did not state it or was
            not understood, in sentences.
        ignored_fields: fields of the configuration that were not read and may describe structure.
        implied: what was taken from its name alone, in words.
        remarks: what else a reader of its configuration must know.

    Raises:
        SilicastError: sizes that contradict each other, or outside :data:`LIMITS`.

    >>> ModelConfig("toy", "llama", 2, 64, 4, 3, 16, 128, 100)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    silicast.core.errors.SilicastError: kv_heads: 3 key-value heads do not divide 4 heads (...)
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    norm: Norm = "rmsnorm"
    norm_bias: bool = False
    gated: bool = True
    activation: Activation = "silu"
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: bool = False
    position: Position = "rope"
    position_rows: int = 0
    embedding_norm: bool = False
    residual: Residual = "sequential"
    tied: bool = False
    windows: tuple[int, ...] = ()
    max_positions: int = 0
    mtp_layers: int = 0
    predicts: int = 0
    qk_norm_over: QkNorm = "head"
    no_rope_every: int = 0
    output_norms: bool = False
    sinks: bool = False
    chunked: bool = False
    mixers: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    sizes: tuple[LayerSizes, ...] = ()
    formats: tuple[tuple[tuple[str, str], ...], ...] = ()
    norm_at: NormAt = "input"
    embedding_width: int = 0
    causal: bool = True
    encoder: ModelConfig | None = None
    pooler: bool = False
    type_rows: int = 0
    k_bias: bool = True
    relative_buckets: int = 0
    mel_bins: int = 0
    moe: MoE | None = None
    mla: MLA | None = None
    sparse: Sparse | None = None
    recurrent: Recurrent | None = None
    shared_block: SharedBlock | None = None
    layer_input: int = 0
    output_gate: bool = False
    encoder_parameters: int = 0
    encoder_heads: int = 0
    default_precision: Precision = Precision()
    published_parameters: int = 0
    source: str = ""
    assumed: tuple[str, ...] = ()
    ignored_fields: tuple[str, ...] = ()
    implied: str = ""
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_sizes(self, LIMITS)
        for field, allowed in _CHOICES.items():
            value = getattr(self, field)
            wanted = f"expected one of {', '.join(allowed)}, found {value!r}"
            require(value in allowed, wanted, field)
        check_divisor(self.heads, self.kv_heads, "kv_heads")
        require(
            (self.position == "learned") == (self.position_rows > 0),
            f"{self.position} positions with a table of {self.position_rows} rows",
            "position_rows",
            "give the rows of a learned table, and only then",
        )
        self._check_layers()
        self._check_stacks()

    def _check_layers(self) -> None:
        hints = {"windows": "give one window per layer, 0 where a layer sees everything"}
        for field in ("windows", "mixers", "feeds", "sizes", "formats"):
            count = len(getattr(self, field))
            text = f"{count} {field} for {self.layers} layers"
            require(count in (0, self.layers), text, field, hints.get(field, "give one per layer"))
        for window in self.windows:
            check_int("windows", window, 0, 1 << 28)
        if self.moe is not None:
            last, sequential = max(self.moe.dense_layers, default=0), self.residual == "sequential"
            text, hint = f"layer {last} of {self.layers}", f"from 0 to {self.layers - 1}"
            require(last < self.layers, text, "moe.dense_layers", hint)
            text = "experts beside attention are not modelled yet"
            require(sequential, text, "residual", kind="not_yet")
        for feed in set(self.feeds):
            is_known = feed in ("", "mlp") or (feed == "experts" and self.moe is not None)
            hint = '"mlp", "" or, with experts given, "experts"'
            require(is_known, f"unknown feed {feed[:40]!r}", "feeds", hint)
        for kind in self.kinds:
            if kind.mixer:
                check_divisor(kind.heads, kind.kv_heads, "sizes", "state both for the layer")
            even = (kind.head_dim + kind.value_dim) % 2 == 0
            require(
                even and not (kind.shared_kv and kind.v_head_dim),
                f"keys {kind.head_dim} and values {kind.value_dim} wide",
                "sizes.v_head_dim",
                "an even sum, and no width of its own where both share a projection",
            )
        from silicast.workload.mixers._mixer import mixer_named

        for name in {kind.mixer for kind in self.kinds} - {""}:
            mixer_named(name).check(self)

    def _check_stacks(self) -> None:
        require(
            self.encoder is None or (self.causal and not self.encoder.causal),
            "an encoder sees all of its tokens, the decoder behind it those before it",
            "encoder.causal",
            "false in the encoder, true in the decoder",
        )
        require(
            self.causal or not (self.windows or self.mla is not None),
            "windows or latent attention in an encoder are not modelled yet",
            "windows",
            kind="not_yet",
        )
        plain = self.residual == "sequential" and not self.output_norms
        require(
            self.norm_at == "input" or plain,
            f"norms on the {self.norm_at} with other residuals are not modelled yet",
            "norm_at",
            kind="not_yet",
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """Assumptions about its configuration, and fields of it that were ignored."""
        caveats = (self.implied, *self.assumed) if self.implied else self.assumed
        caveats = (*caveats, *self.remarks)
        if not self.ignored_fields:
            return caveats
        fields = ", ".join(self.ignored_fields)
        return (*caveats, f"fields of {self.name} that were not understood: {fields}")

    @property
    def predicting_layers(self) -> int:
        """Layers that predict further tokens in training: where the model has fewer than tokens,
        the same ones run again.
        """
        return min(self.predicts, self.mtp_layers or self.predicts)

    @property
    def staged_layers(self) -> int:
        """Layers as stages of a pipeline share them: those that predict further tokens are behind
        the others, on the last stage.
        """
        return self.layers + self.predicts

    @property
    def mlp_layers(self) -> int:
        """Layers with an MLP."""
        return sum(1 for layer in range(self.layers) if self.feed(layer) == "mlp")

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The different kinds of layers, in the order of their first layer."""
        return _kinds_in_order(self)

    def mixer(self, layer: int) -> str:
        """The token mixer of ``layer``, "" = none."""
        if self.mixers:
            return self.mixers[layer]
        return "heads" if self.mla is None else "latent"

    def feed(self, layer: int) -> str:
        """What follows the mixer of ``layer``: "mlp", "experts" or "" = nothing."""
        if self.feeds:
            return self.feeds[layer]
        routed = self.moe is not None and layer not in self.moe.dense_layers
        return "experts" if routed else "mlp"

    def window(self, layer: int) -> int:
        """Keys that a query of ``layer`` sees, 0 = all."""
        return self.windows[layer] if self.windows else 0

    def has_rope(self, layer: int) -> bool:
        """Whether ``layer`` rotates queries and keys."""
        left_out = self.no_rope_every > 0 and (layer + 1) % self.no_rope_every == 0
        return self.position == "rope" and not left_out

    def kind_counts(self, layers: range | None = None) -> dict[LayerKind, int]:
        """How many of ``layers``, by default of all, are of each kind."""
        return dict(_kind_counts(self, range(self.layers) if layers is None else layers))

    def kind(self, layer: int) -> LayerKind:
        """What ``layer`` looks like; sizes of parts that it does not have are 0."""
        return _kinds_of_layers(self)[layer]


def divided(hidden: int, heads: int) -> int:
    """``head_dim`` of a model that does not state it.

    Raises:
        SilicastError: ``hidden`` is not a multiple of ``heads``.
    """
    text = f"hidden size {hidden} is not a multiple of {heads} heads"
    fits = heads >= 1 and hidden % heads == 0
    require(fits, text, "heads", "change one of them or state head_dim")
    return hidden // heads


def check_size(field: str, value: object) -> None:
    """Refuses what is not a whole number within :data:`LIMITS`.

    Raises:
        SilicastError: names the field.
    """
    check_int(field, value, *LIMITS[field])


@lru_cache(maxsize=1024)
def _kinds_of_layers(model: ModelConfig) -> tuple[LayerKind, ...]:
    """The kind of every layer: asked for again and again, made once a model."""
    return tuple(_kind(model, layer) for layer in range(model.layers))


@lru_cache(maxsize=1024)
def _kinds_in_order(model: ModelConfig) -> tuple[LayerKind, ...]:
    return tuple(dict.fromkeys(_kinds_of_layers(model)))


@lru_cache(maxsize=1024)
def _kind_counts(model: ModelConfig, layers: range) -> tuple[tuple[LayerKind, int], ...]:
    kinds, counts = _kinds_of_layers(model), dict[LayerKind, int]()
    for layer in layers:
        counts[kinds[layer]] = counts.get(kinds[layer], 0) + 1
    return tuple(counts.items())


def _kind(model: ModelConfig, layer: int) -> LayerKind:
    mixer, feed = model.mixer(layer), model.feed(layer)
    sizes = model.sizes[layer] if model.sizes else LayerSizes()
    sinks = model.sinks if sizes.sinks is None else sizes.sinks
    return LayerKind(
        mixer=mixer,
        feed=feed,
        window=model.window(layer) if mixer else 0,
        rope=model.has_rope(layer) if mixer else True,
        heads=(sizes.heads or model.heads) if mixer else 0,
        kv_heads=(sizes.kv_heads or model.kv_heads) if mixer else 0,
        head_dim=(sizes.head_dim or model.head_dim) if mixer else 0,
        intermediate=(sizes.intermediate or model.intermediate) if feed == "mlp" else 0,
        v_head_dim=sizes.v_head_dim if mixer else 0,
        shared_kv=bool(mixer) and sizes.shared_kv,
        sinks=bool(mixer) and sinks,
        reuses=bool(mixer) and sizes.reuses,
        formats=model.formats[layer] if model.formats else (),
    )
