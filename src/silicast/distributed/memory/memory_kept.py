"""What a layer keeps of its forward pass for its gradients, tensor by tensor, in closed form.

The rules are autograd's (:func:`silicast.workload.training.gradients.saved_by`): a product keeps
its input,
a norm its input, an activation its input, fused attention queries, keys, values, its result and one
number a row; a sum keeps nothing. With dropout and scores in memory they give Korthikanti et al.
2022 (arXiv 2205.05198), sbh (34 + 5 as/h) bytes a layer in 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, final

from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.model_weights import layer_weights
from silicast.workload.models.precision import Precision
from silicast.workload.training.recomputation import Part

Over = Literal["all", "sequence", "tensor", "kv", "routed", "routed_width"]
"""Which ranks share a tensor: none ("all" hold it whole), those of sequence parallelism, tensor
ranks, tensor ranks by whole key-value heads, and rows and widths of the routed experts."""


@final
@dataclass(frozen=True, slots=True)
class SavedTensor:
    """One tensor that a layer keeps.

    Attributes:
        name: of the tensor.
        width: elements a token; a token that passes several experts counts for each.
        bits: of an element.
        over: see :data:`Over`.
        part: module that can make it again.
        product: product that reads it; where its weights are frozen it need not be kept.
        heads: with "kv", whole heads that ranks share.
        per_key: ``width`` is for each key of the sequence: scores in memory.
    """

    name: str
    width: int
    bits: float
    over: Over
    part: Part
    product: str = ""
    heads: int = 1
    per_key: bool = False


@final
@dataclass(frozen=True, slots=True)
class Style:
    """How layers run, as far as what they keep depends on it.

    Attributes:
        precision: of products; their inputs are kept as they are multiplied.
        flash: attention is one kernel that keeps no scores.
        dropout: masks of one byte an element are kept; of scores, also what was dropped.
        adapted: products whose weights are trained by adapters alone, the others being frozen;
            None = everything is trained.
        adapter_rank: inner width of the adapters; frozen_bits: of a weight that is not trained.
        reference_bits: of a weight of a frozen model that the loss needs beside; 0 = there is none.
        routed: rows that routed experts process, over what tokens chose (their capacity).
    """

    precision: Precision = Precision()
    flash: bool = True
    dropout: bool = False
    adapted: tuple[str, ...] | None = None
    adapter_rank: int = 0
    frozen_bits: float = 16.0
    reference_bits: float = 0.0
    routed: float = 1.0


@lru_cache(maxsize=512)
def kept_tensors(
    model: ModelConfig, kind: LayerKind, style: Style = Style()
) -> tuple[SavedTensor, ...]:
    """Tensors that one layer keeps of one micro-batch; the layer's input is the first.

    >>> from silicast.workload.models.lookup import find_model
    >>> llama = find_model("Llama-3.1-8B")
    >>> sum(each.width for each in kept_tensors(llama, llama.kind(0)) if each.bits == 16)
    69632
    """
    tensors = _Layer(model, kind, style).tensors()
    if style.adapted is None:
        return tuple(tensors)
    held = [each for each in tensors if not each.product or each.product in style.adapted]
    rank = style.adapter_rank
    inner = [
        SavedTensor(f"{name}_adapter", rank, style.precision.hidden_bytes * 8, "all", "projection")
        for name in style.adapted
        if any(name == each.product for each in tensors)
    ]
    return (*held, *inner)


@final
class _Layer:
    def __init__(self, model: ModelConfig, kind: LayerKind, style: Style) -> None:
        self.model, self.kind, self.style = model, kind, style
        self.hidden = style.precision.hidden_bytes * 8.0
        self.operand = float(style.precision.linear.activation_bits)

    def tensors(self) -> list[SavedTensor]:
        model, kind = self.model, self.kind
        tensors: list[SavedTensor] = []
        if kind.mixer:
            tensors += self._norm("attention", "qkv", first=True)
            if kind.mixer == "heads":
                tensors += self._heads()
            elif kind.mixer == "latent" and model.mla is not None:
                tensors += self._latent()
            else:
                tensors += self._other()
            if self.style.dropout:
                tensors.append(self._mask("attention_dropout"))
            if model.encoder is not None:
                tensors += self._cross()
        if kind.feed:
            if model.residual != "parallel" or not kind.mixer:
                first = not kind.mixer
                up = "gate_up" if kind.feed == "mlp" else "experts"
                tensors += self._norm(kind.feed, up, first=first)
            tensors += self._experts() if kind.feed == "experts" else self._mlp()
            if self.style.dropout:
                tensors.append(self._mask("feed_dropout"))
        return tensors

    def _norm(self, name: str, product: str, *, first: bool) -> list[SavedTensor]:
        """The norm's input, and its result where a product reads it."""
        h, part = self.model.hidden, "input" if first else "projection"
        norm = [
            SavedTensor(f"{name}_norm_input", h, self.hidden, "sequence", part),  # type: ignore[arg-type]
            SavedTensor(f"{name}_input", h, self.operand, "sequence", "norm", product),
        ]
        if self.model.output_norms:
            norm.append(
                SavedTensor(f"{name}_output_norm_input", h, self.hidden, "sequence", "projection")
            )
        return norm

    def _mask(self, name: str) -> SavedTensor:
        return SavedTensor(name, self.model.hidden, 8.0, "sequence", "projection")

    def _core(self, queries: int, out: int, part: Part) -> list[SavedTensor]:
        """Attention's queries, result and what it keeps of its scores."""
        kind, style = self.kind, self.style
        core = [
            SavedTensor("queries", queries, self.hidden, "tensor", part),
            SavedTensor("attention_output", out, self.operand, "tensor", "projection", "o"),
        ]
        if self.operand != self.hidden and style.flash:  # read by the kernel in its own format
            core.append(SavedTensor("attention_result", out, self.hidden, "tensor", "core"))
        if style.flash:
            core.append(SavedTensor("row_sums", kind.heads, 32.0, "tensor", "core"))
            return core
        scores = [("softmax", self.hidden)]
        if style.dropout:
            scores += [("scores_mask", 8.0), ("dropped_scores", self.hidden)]
        core += [
            SavedTensor(name, kind.heads, bits, "tensor", "core", per_key=True)
            for name, bits in scores
        ]
        return core

    def _heads(self) -> list[SavedTensor]:
        model, kind = self.model, self.kind
        queries, out = kind.heads * kind.head_dim, kind.heads * kind.value_dim
        keys, groups = kind.kv_heads * kind.head_dim, kind.kv_heads
        values = kind.kv_heads * kind.value_dim
        heads = self._core(queries, out, "projection")
        heads.append(SavedTensor("keys", keys, self.hidden, "kv", "projection", heads=groups))
        heads.append(SavedTensor("values", values, self.hidden, "kv", "projection", heads=groups))
        if model.qk_norm:
            heads.append(SavedTensor("query_norm_input", queries, self.hidden, "tensor", "norm"))
            heads.append(
                SavedTensor("key_norm_input", keys, self.hidden, "kv", "norm", heads=groups)
            )
        if model.output_gate:
            heads.append(SavedTensor("output_gate", 2 * out, self.hidden, "tensor", "projection"))
        return heads

    def _cross(self) -> list[SavedTensor]:
        """Attention to an encoder's results, with as many of its tokens; they are kept once."""
        kind = self.kind
        queries, keys = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
        groups = kind.kv_heads
        saved = [
            *self._norm("cross", "cross_q", first=False),
            *self._core(queries, queries, "projection"),
            SavedTensor("keys", keys, self.hidden, "kv", "projection", heads=groups),
            SavedTensor("values", keys, self.hidden, "kv", "projection", heads=groups),
        ]
        if self.style.dropout:
            saved.append(self._mask("cross_dropout"))
        return [replace(each, name=f"cross_{each.name}") for each in saved]

    def _latent(self) -> list[SavedTensor]:
        """Ways down, their norms, ways up, and attention on whole heads."""
        model, kind, mla = self.model, self.kind, self.model.mla
        assert mla is not None
        queries, out = kind.heads * mla.qk_head_dim, kind.heads * mla.v_head_dim
        latent = self._core(queries, out, "mla_up")
        latent += [
            SavedTensor("keys", queries, self.hidden, "tensor", "mla_up"),
            SavedTensor("values", out, self.hidden, "tensor", "mla_up"),
            SavedTensor("kv_latent", mla.kv_lora_rank, self.hidden, "sequence", "projection"),
            SavedTensor(
                "kv_latent_normed", mla.kv_lora_rank, self.operand, "sequence", "norm", "kv_b"
            ),
        ]
        if mla.q_lora_rank:
            rank = mla.q_lora_rank
            latent.append(SavedTensor("q_latent", rank, self.hidden, "sequence", "projection"))
            latent.append(
                SavedTensor("q_latent_normed", rank, self.operand, "sequence", "norm", "q_b")
            )
        if model.output_gate:
            latent.append(SavedTensor("output_gate", 2 * out, self.hidden, "tensor", "projection"))
        return latent

    def _other(self) -> list[SavedTensor]:
        """Any other mixer: what its ways in write, from which its kernel makes the rest again, and
        its result before and after what scales it.
        """
        saved: list[SavedTensor] = []
        for weight in layer_weights(self.model, self.kind):
            if weight.kind != "projection" and not (
                weight.kind == "linear" and self.kind.feed != "mlp"
            ):
                continue
            if weight.cut == "inputs":
                width, name = weight.inputs * weight.count, weight.name
                saved.append(
                    SavedTensor(f"{name}_result", width, self.hidden, "tensor", "projection")
                )
                saved.append(
                    SavedTensor(f"{name}_input", width, self.operand, "tensor", "projection", name)
                )
            elif weight.inputs > 1:
                over: Over = "sequence" if weight.cut == "none" else "tensor"
                width = weight.outputs * weight.count
                saved.append(
                    SavedTensor(f"{weight.name}_output", width, self.hidden, over, "projection")
                )
        return saved

    def _mlp(self) -> list[SavedTensor]:
        width, ups = self.kind.intermediate, 2 if self.model.gated else 1
        return [
            SavedTensor("activation_input", ups * width, self.hidden, "tensor", "mlp"),
            SavedTensor("down_input", width, self.operand, "tensor", "mlp", "down"),
        ]

    def _experts(self) -> list[SavedTensor]:
        """Of routed experts a row for each that a token passes, sorted by expert."""
        moe, ups = self.model.moe, 2 if self.model.gated else 1
        assert moe is not None
        operand = float(self.style.precision.expert.activation_bits)
        inner, shared = moe.latent or self.model.hidden, moe.shared_intermediate
        width = moe.intermediate

        def rows(each: int) -> int:
            return round(moe.topk * each * self.style.routed)

        experts = [
            SavedTensor("router_scores", moe.experts, 32.0, "sequence", "moe"),
            SavedTensor("expert_input", rows(inner), operand, "routed", "moe", "experts"),
            SavedTensor(
                "expert_activation_input", rows(ups * width), self.hidden, "routed_width", "moe"
            ),
            SavedTensor(
                "expert_down_input", rows(width), operand, "routed_width", "moe_act", "experts"
            ),
        ]
        if moe.latent:
            experts.append(SavedTensor("latent", 2 * inner, self.hidden, "sequence", "moe"))
        if shared:
            experts.append(
                SavedTensor(
                    "shared_activation_input", ups * shared, self.hidden, "tensor", "shared"
                )
            )
            experts.append(
                SavedTensor("shared_down_input", shared, self.operand, "tensor", "shared", "shared")
            )
            if moe.shared_gate:
                experts.append(
                    SavedTensor(
                        "shared_output", self.model.hidden, self.hidden, "sequence", "shared"
                    )
                )
        return experts


@lru_cache(maxsize=512)
def gradient_points(
    model: ModelConfig, kind: LayerKind, style: Style = Style()
) -> tuple[tuple[SavedTensor, ...], ...]:
    """Gradients that live at once at each point of a layer's backward pass that may be its worst:
    those of what an operation writes and of what it reads, beside the residual stream's.
    """
    bits = style.precision.hidden_bytes * 8.0
    h = model.hidden

    def point(*sizes: tuple[int, Over]) -> tuple[SavedTensor, ...]:
        return tuple(SavedTensor("gradient", width, bits, over, "input") for width, over in sizes)

    points = [point((h, "sequence"), (h, "all"))]
    if kind.mixer:
        widths = [each for each in kept_tensors(model, kind) if each.over in ("tensor", "kv")]
        core = sum(each.width for each in widths if each.name in ("queries", "keys", "values"))
        out = sum(each.width for each in widths if each.name == "attention_output")
        points.append(point((h, "sequence"), (core + out, "tensor")))
        points.append(point((h, "sequence"), (core, "tensor"), (h, "all")))
        if not style.flash:
            score = SavedTensor("scores", 2 * kind.heads, bits, "tensor", "input", per_key=True)
            points.append((*point((h, "sequence")), score))
    ups = 2 if model.gated else 1
    if kind.feed == "mlp":
        width = kind.intermediate
        points.append(point((h, "sequence"), ((ups + 1) * width, "tensor")))
        points.append(point((h, "sequence"), (ups * width, "tensor"), (h, "all")))
    elif kind.feed and model.moe is not None:
        width, inner = model.moe.intermediate, model.moe.latent or h
        topk, routed = model.moe.topk, style.routed

        def rows(each: int) -> int:
            return round(topk * each * routed)

        points.append(point((h, "sequence"), (rows((ups + 1) * width), "routed_width")))
        points.append(
            point((h, "sequence"), (rows(ups * width), "routed_width"), (rows(inner), "routed"))
        )
        points.append(point((h, "sequence"), (rows(2 * inner), "routed")))  # sorted, and sent back
    return tuple(points)
