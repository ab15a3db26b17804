"""How many parameters a rank holds: of the layers of its chunks, and at the ends of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import I64
from silicast.distributed.memory.memory_kept import Style
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.model_weights import (
    input_weights,
    layer_weights,
    mtp_weights,
    output_weights,
)
from silicast.workload.models.weight_tensor import PRODUCTS, Weight

Bools = NDArray[np.bool_]
PRODUCTS_OF = {
    "qkv": ("q", "kv", "v", "q_a", "kv_a"),
    "o": ("o",),
    "q_b": ("q",),
    "kv_b": ("kv_b",),
    "gate_up": ("up",),
    "down": ("down",),
}
"""Weights that one product reads, by the product's name in a layer."""


@final
@dataclass(frozen=True, slots=True)
class Held:
    """Parameters on each rank, shape (rows,).

    Attributes:
        dense, experts: all of them; of the routed experts apart, which other ranks share.
        products: those of both that products read, without routers and tables.
        model, layers, tp: what they are of.
    """

    dense: I64
    experts: I64
    products: I64
    model: ModelConfig
    layers: I64
    tp: I64

    def adapters(self, style: Style) -> I64:
        """Parameters of the adapters: of a product cut by outputs the one half, of a product cut by
        inputs the other, is shared by tensor ranks (Hu et al. 2021).
        """
        adapters = np.zeros_like(self.dense)
        for index, kind in enumerate(self.model.kinds):
            weights = {weight.name: weight for weight in layer_weights(self.model, kind)}
            for product in style.adapted or ():
                products = [
                    weights[n] for n in PRODUCTS_OF.get(product, (product,)) if n in weights
                ]
                if not products:
                    continue
                inputs = products[0].inputs
                outputs = sum(each.outputs * each.count for each in products)
                if products[0].cut.endswith("inputs"):
                    each = style.adapter_rank * (-(-inputs // self.tp) + outputs)
                else:
                    each = style.adapter_rank * (inputs + -(-outputs // self.tp))
                adapters = adapters + self.layers[:, index] * each
        return adapters


def held_parameters(
    model: ModelConfig, layers: I64, first: Bools, last: Bools, tp: I64, ep: I64, etp: I64
) -> Held:
    """Parameters of each row: ``layers`` of each kind, the embedding, the head."""
    dense, experts, products = (np.zeros(len(tp), dtype=np.int64) for _ in range(3))
    for weight, count in _counted(model, layers, first, last):
        local = count * _local(weight, tp, ep, etp)
        if weight.cut.startswith("expert"):
            experts = experts + local
        else:
            dense = dense + local
        if weight.kind in PRODUCTS and weight.kind != "router":
            products = products + local
    return Held(dense, experts, products, model, layers, tp)


def _counted(
    model: ModelConfig, layers: I64, first: Bools, last: NDArray[np.bool_]
) -> Iterator[tuple[Weight, I64]]:
    """Each weight and how many of it a row holds; a table that another rank
    has too is a copy.
    """
    for index, kind in enumerate(model.kinds):
        for weight in layer_weights(model, kind):
            yield weight, layers[:, index]
    for weight in input_weights(model):
        yield weight, first.astype(np.int64)
    for weight in output_weights(model):
        yield weight, last.astype(np.int64)
    for weight in mtp_weights(model) if model.predicts else ():
        yield weight, last * np.int64(model.predicting_layers)
    if model.tied or model.predicts:
        yield input_weights(model)[0], (last & ~first).astype(np.int64)


def _local(weight: Weight, tp: I64, ep: I64, etp: I64) -> I64:
    """Parameters of a weight on one rank."""
    whole = weight.parameters
    if weight.cut in ("none", "encoder"):
        return np.full_like(tp, whole)
    if weight.cut == "kv_heads":
        each = weight.count * weight.inputs * (weight.outputs // weight.heads)
        return np.maximum(weight.heads // tp, 1) * each
    if weight.cut == "vocab":
        return -(-weight.outputs // tp) * (weight.inputs * weight.count)
    if weight.cut == "experts":
        return -(-whole // ep)
    return -(-whole // (ep * etp if weight.cut.startswith("expert") else tp))


def largest_layer(model: ModelConfig, layers: I64, tp: I64, ep: I64, etp: I64) -> I64:
    """Parameters of the largest layer of each row."""
    largest_layer = np.zeros(len(tp), dtype=np.int64)
    for index, kind in enumerate(model.kinds):
        size = _sum(_local(weight, tp, ep, etp) for weight in layer_weights(model, kind))
        largest_layer = np.where(
            layers[:, index] > 0, np.maximum(largest_layer, size), largest_layer
        )
    return largest_layer


def gradient_tensors(
    model: ModelConfig, layers: I64, last: Bools, tp: I64, etp: I64, *, every_shape: bool
) -> I64:
    """Elements of one tensor of each shape of a row's products, the head among them, or of the
    largest of them alone; of experts, which are alike, one.
    """
    positions: dict[Weight, list[int]] = {}
    for index, kind in enumerate(model.kinds):
        for weight in layer_weights(model, kind):
            if weight.kind in PRODUCTS and weight.kind != "router":
                positions.setdefault(weight, []).append(index)
    held = [(weight, (layers[:, item] > 0).any(axis=1)) for weight, item in positions.items()]
    held += [(weight, last) for weight in output_weights(model) if weight.name == "head"]
    gradient_tensors = np.zeros(len(tp), dtype=np.int64)
    for weight, there in held:
        if weight.cut.startswith("expert"):
            ups = max(weight.count // model.moe.held, 1) if model.moe is not None else 1
            size = -(-weight.outputs * weight.inputs * ups // etp)
        else:
            size = _local(weight, tp, tp, etp)
        size = np.where(there, size, 0)
        gradient_tensors = (
            gradient_tensors + size if every_shape else np.maximum(gradient_tensors, size)
        )
    return gradient_tensors


def _sum(sizes: Iterable[I64]) -> I64:
    first, *remaining = sizes
    for size in remaining:
        first = first + size
    return first
