"""Models and devices that may go together, and the widest format that is quick enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from silicast.composition.memory.memory import MemoryUse, static_batch_memory
from silicast.composition.passes.deployment import Deployment
from silicast.composition.step.machine import Machine
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import step_model
from silicast.composition.timeline.breakdown import Breakdown, once
from silicast.core.dtypes import RECIPES
from silicast.core.prediction import Domain, Quantity
from silicast.hardware.catalog import device_index
from silicast.hardware.device import Device
from silicast.workload.models.counting import active_parameters, parameters
from silicast.workload.models.lookup import base_of, find_model, model_names
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.weight_mix import plain_mix, scheme_named, with_mix
from silicast.workload.transformers.plan import Plan

USUAL_MIXES = 8
"""Mixes of a scheme that are tried: so many of its widest quantised ones that differ by at least
:data:`NARROWER`."""
NARROWER = 0.9
CUT = "(first"
"""In names of models of which some layers were measured alone."""
HUB = "Hugging Face"
"""In sources of models that are published as checkpoints; others were trained to be measured."""
WIDE_BITS = 4.0
"""Bits a weight of the usual format from which on a mix is listed before narrower ones."""


Fit = tuple[Deployment, str, MemoryUse]
"""A model on a device, the mix in which it is stored, and the memory of all users."""


@final
@dataclass(frozen=True)
class FittingPair:
    """A model on a device.

    Attributes:
        weights: the mix in which it is stored.
        memory: of all users at the full context.
        token_s: a decode step of all users at the full context.
        prompt_tokens_per_s: of one prompt in steps as the engine cuts it.
    """

    deployment: Deployment
    weights: str
    memory: MemoryUse
    token_s: Quantity
    prompt_tokens_per_s: float
    domain: Domain

    @property
    def parameters(self) -> int:
        return parameters(self.deployment.model, mtp=False)

    @property
    def active(self) -> int:
        """Parameters that a token passes."""
        return active_parameters(self.deployment.model, embedding=False)


def models_of_catalog(context: int) -> list[ModelConfig]:
    """Decoders of the catalog that publishers offer, each structure once, the largest first.

    Args:
        context: tokens; a variant is offered where it is made for so many and its base is not, also
            beside another model of its structure: that may read images or have other formats.
    """
    shapes: dict[tuple[object, ...], ModelConfig] = {}
    for name in sorted(model_names(variants=True), key=lambda name: (len(name), name)):
        if CUT in name.casefold():
            continue
        if (base := base_of(name)) and made_for(find_model(base), context):
            continue
        model = find_model(name)
        if base and not made_for(model, context):
            continue
        offered = model.published_parameters or HUB in model.source
        if not model.causal or model.encoder is not None or not offered:
            continue
        shape = (
            *(model.family, model.layers, model.hidden, model.heads, model.kv_heads),
            *(model.intermediate, model.vocab, model.max_positions, model.moe, bool(base)),
        )
        shapes.setdefault(shape, model)
    return sorted(shapes.values(), key=lambda each: (-_decoder_parameters(each), each.name))


def made_for(model: ModelConfig, context: int) -> bool:
    """Whether a model has positions for so many tokens; one that states no limit has."""
    return not 0 < model.max_positions < context


def _decoder_parameters(model: ModelConfig) -> int:
    """Without encoders and layers for drafts, which are files of their own."""
    return parameters(model, mtp=False) - model.encoder_parameters


def devices_of_catalog(*, servers: bool) -> list[Device]:
    """Devices of the catalog; without ``servers`` those whose memory is not in the package (HBM):
    what a person buys.
    """
    index = device_index()
    devices = [index.get(name) for name in index.names]
    return [
        each
        for each in devices
        if each.structure is None and (servers or "HBM" not in each.dram.technology.upper())
    ]


def mixes_to_try(scheme: str) -> list[str]:
    """Mixes of a scheme, the widest first: quantised ones that differ.

    >>> mixes_to_try("gguf")
    ['Q8_0', 'Q6_K', 'Q5_K_M', 'Q4_K_M', 'Q3_K_L', 'IQ3_XXS', 'Q2_K', 'IQ2_S']
    """
    mixes, last = [], 15.0
    for name, recipe in scheme_named(scheme).mixes.items():
        bits = RECIPES[recipe].weight_bits
        if bits <= NARROWER * last and "-" not in name:
            mixes.append(name)
            last = bits
    return mixes[:USUAL_MIXES]


def is_wide(deployment: Deployment) -> bool:
    """Whether its weights have :data:`WIDE_BITS` and more."""
    return RECIPES[deployment.model.default_precision.recipe].weight_bits >= WIDE_BITS


def fits_of(
    model: ModelConfig, machine: Machine, mixes: Sequence[str], context: int, users: int
) -> Iterator[Fit]:
    """The mixes in which a model fits with the caches of all users: the widest, and narrower ones
    of :data:`WIDE_BITS` and more, in which it is quicker. A file of weights is in its own.

    Args:
        context: tokens of each user, prompt and answer together.
    """
    engine = machine.engine
    published, exact = plain_mix(engine.weight_mix, model.default_precision)
    if exact and published not in mixes and model.default_precision.experts:
        mixes = [published]  # experts that are published in few bits: nothing wider holds more
    usable = machine.device.dram.capacity_bytes * engine.memory.usable_fraction
    count = _decoder_parameters(model)
    if model.default_precision.mix:
        deployment = Deployment(machine, model, Plan(), model.default_precision)
        memory = static_batch_memory(deployment, [context - 1] * users, 1)
        if not memory.excess:
            yield deployment, f"{model.default_precision.recipe} (file)", memory
        return
    widest = True
    for mix in mixes:
        recipe = RECIPES[scheme_named(engine.weight_mix).mixes[mix]]
        if mix != published and 0.9 * count * recipe.weight_bits / 8.0 > usable:
            continue  # mixes give single tensors more, hardly ever less
        mixed = with_mix(model, engine.weight_mix, mix)
        deployment = Deployment(machine, mixed, Plan(), mixed.default_precision)
        memory = static_batch_memory(deployment, [context - 1] * users, 1)
        if not memory.excess and (widest or is_wide(deployment)):
            yield deployment, mix, memory
            widest = False


@final
@dataclass(frozen=True, eq=False)
class PossiblePair:
    """A model on a device that holds it.

    Attributes:
        widest: in its widest mix; others: in narrower ones, which are made when they are needed.
        context, users: of the caches; least: tokens a second of each user.
    """

    widest: Fit
    others: Iterator[Fit]
    context: int
    users: int
    least: float

    @classmethod
    def from_fits(
        cls, fits: Iterator[Fit], context: int, users: int, least: float
    ) -> PossiblePair | None:
        """The pair; None where the model fits in no mix."""
        widest = next(fits, None)
        return None if widest is None else cls(widest, fits, context, users, least)

    @property
    def is_wide(self) -> bool:
        """Whether its widest mix has :data:`WIDE_BITS` and more."""
        return is_wide(self.widest[0])

    @cached_property
    def _narrower(self) -> tuple[Fit, ...]:
        return tuple(self.others)

    def may_reach(self, token_s: float) -> bool:
        """Whether a mix may take no longer a token, and be quick enough at all."""
        widest = quickest_token_s(self.widest)
        if widest <= token_s and widest * self.least <= 1.0:
            return True
        quickest = min(map(quickest_token_s, self._narrower), default=widest)
        return quickest <= token_s and quickest * self.least <= 1.0

    def quick(self) -> FittingPair | None:
        """In the widest mix that is quick enough, timed in full; None = none is."""
        return self._quick((self.widest,)) or self._quick(self._narrower)

    def _quick(self, fits: Iterable[Fit]) -> FittingPair | None:
        for fit in fits:
            if quickest_token_s(fit) * self.least > 1.0:
                continue
            pair = timed(fit, self.context, self.users)
            if pair.token_s.estimate * self.least <= 1.0:
                return pair
        return None


def timed(fit: Fit, context: int, users: int) -> FittingPair:
    """With the times of a step of all users at the full context, and of a prompt."""
    deployment, mix, memory = fit
    model = step_model(deployment)
    chunk = min(deployment.policy.chunk_tokens or context, context)
    steps = BatchStates.decode([context - 1] * users, np.array([1]))
    states = BatchStates.prefill([chunk]).then(steps)
    times = model.steps(states)
    prediction = Breakdown(model, times, once(1, 2))
    token = prediction.prediction(prediction.part("decode_step"))
    return FittingPair(
        deployment, mix, memory, token.latency_s, chunk / float(times.total_s[0]), token.domain
    )


def quickest_token_s(fit: Fit) -> float:
    """No token is quicker: the weights that it passes, once through memory."""
    deployment, _, memory = fit
    share = active_parameters(deployment.model, embedding=False) / parameters(
        deployment.model, mtp=False
    )
    return min(share, 1.0) * memory.weights / deployment.device.dram.bandwidth_bytes_per_s


def on_device(
    machine: Machine, models: Sequence[ModelConfig], context: int, users: int, least: float
) -> Iterator[PossiblePair]:
    """The models that fit a device, in their order.

    Args:
        least: tokens a second of each user.
    """
    mixes = mixes_to_try(machine.engine.weight_mix)
    for model in models:
        if not made_for(model, context):
            continue
        fits = fits_of(model, machine, mixes, context, users)
        if pair := PossiblePair.from_fits(fits, context, users, least):
            yield pair
