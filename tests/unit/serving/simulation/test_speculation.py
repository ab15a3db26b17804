"""Draws of kept drafts, and what drafts them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.serving.simulation.deploy import replica_spec
from silicast.serving.simulation.drafting import (
    Drafting,
    SpeculativePrices,
    drafted,
    layers_of,
    seen_share,
)
from silicast.serving.simulation.speculation import Acceptance
from silicast.workload.models.counting import weight_bytes
from silicast.workload.models.lookup import find_model, model_names
from silicast.workload.transformers.plan import Plan

REQUESTS, MADE = np.repeat(np.arange(500), 200), np.tile(np.arange(200), 500)


@pytest.mark.parametrize("rates", [(0.7,), (0.9, 0.8, 0.5), (0.3, 1.0, 0.0, 0.9)])
def test_as_many_are_kept_as_the_rates_say(rates: tuple[float, ...]) -> None:
    law = Acceptance(rates, seed=5)
    tokens = law.tokens(REQUESTS, MADE)
    assert tokens.min() >= 1
    assert tokens.max() <= len(rates) + 1
    alive = np.ones(len(tokens), dtype=bool)
    for index, rate in enumerate(rates):
        remaining = tokens > index + 1
        error = 4.5 * np.sqrt(max(rate * (1.0 - rate), 1e-9) / max(alive.sum(), 1))
        assert abs(remaining[alive].mean() - rate) <= error if alive.any() else not remaining.any()
        alive = remaining
    assert abs(tokens.mean() - law.mean) < 0.03


def test_draws_of_neighbours_are_independent() -> None:
    tokens = Acceptance((0.5,), 1).tokens(REQUESTS, MADE).reshape(500, 200) - 1.5
    for along in (tokens[1:] * tokens[:-1], tokens[:, 1:] * tokens[:, :-1]):
        assert abs(along.mean()) < 4.0 * 0.25 / np.sqrt(along.size)
    other = Acceptance((0.5,), 2).tokens(REQUESTS, MADE).reshape(500, 200) - 1.5
    assert abs((tokens * other).mean()) < 4.0 * 0.25 / np.sqrt(tokens.size)


@pytest.mark.parametrize("rates", [(0.7,), (0.9, 0.8, 0.5), (0.85,) * 8])
def test_requests_differ_and_their_steps_add_up_to_the_mean(rates: tuple[float, ...]) -> None:
    alike, unlike = (
        Acceptance(rates, 5, request_log_sd=sd).tokens(REQUESTS, MADE).reshape(500, 200)
        for sd in (0.0, 0.1)
    )
    # tokens of all over steps of all, where each request makes as many tokens
    mean = Acceptance(rates).mean
    assert 1.0 / (1.0 / unlike.mean(axis=1)).mean() == pytest.approx(mean, rel=0.015)
    between = [np.log(tokens.mean(axis=1)).std() for tokens in (alike, unlike)]
    assert between[1] ** 2 - between[0] ** 2 == pytest.approx(0.1**2, rel=0.25)


def test_requests_cannot_differ_where_all_is_kept_or_nothing() -> None:
    for rates in ((1.0, 1.0), (0.0, 0.9), ()):
        law = Acceptance(rates, 5, request_log_sd=0.2)
        assert set(law.tokens(REQUESTS, MADE)) == {law.mean}


def test_higher_rates_keep_at_least_as_much_everywhere() -> None:
    low = Acceptance((0.5, 0.4, 0.6), 9).tokens(REQUESTS, MADE)
    high = Acceptance((0.55, 0.4, 0.9), 9).tokens(REQUESTS, MADE)
    assert (high >= low).all()
    assert (high > low).any()


def test_a_layer_of_every_model_is_a_model() -> None:
    for name in model_names():
        try:
            model = find_model(name)
        except SilicastError:
            continue
        for dense in (False, True):
            one = layers_of(model, 2, dense=dense)
            assert one.kind(0) == one.kind(1)
            assert one.kind(0).mixer == model.kind(model.layers - 1).mixer


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device("H100"), find_engine("vllm"), Plan()
    )


def drafts_of(deployment: Deployment, name: str = "") -> Drafting:
    model = find_model(name) if name else layers_of(deployment.model)
    drafter = Deployment(deployment.machine, model, deployment.plan, deployment.precision)
    return Drafting(Acceptance((0.8,) * 3), drafter, not name, 4)


def test_a_stated_number_of_blocks_is_beside_the_drafter(deployment: Deployment) -> None:
    engine = with_options(deployment.engine, {"num_gpu_blocks": 100})
    machine = dataclasses.replace(deployment.machine, engine=engine)
    stated = dataclasses.replace(deployment, machine=machine)
    plain = replica_spec(stated)
    result = drafted(plain, stated, drafts_of(stated, "Llama-3.2-1B"))
    assert result.limits.blocks == plain.limits.blocks == 100
    assert result.layout.block_bytes > plain.layout.block_bytes


def test_a_drafter_takes_room_from_the_cache(deployment: Deployment) -> None:
    plain = replica_spec(deployment)
    layer, model = (
        drafted(plain, deployment, drafts_of(deployment, n)) for n in ("", "Llama-3.2-1B")
    )
    assert plain.limits.blocks > layer.limits.blocks > model.limits.blocks
    one = weight_bytes(layers_of(deployment.model), Plan(), deployment.precision)
    lost = plain.limits.blocks * plain.layout.block_bytes
    lost -= layer.limits.blocks * plain.layout.block_bytes
    cache = layer.limits.blocks * plain.layout.block_bytes / deployment.model.layers
    assert lost < cache + one, "embedding and head are the model's own"
    with pytest.raises(SilicastError, match="leave no room"):
        drafted(plain, deployment, drafts_of(deployment, "Llama-3.1-70B"))


def test_verification_costs_little_where_weights_are_read(deployment: Deployment) -> None:
    spec = drafted(replica_spec(deployment), deployment, drafts_of(deployment))
    prices = spec.prices
    assert isinstance(prices, SpeculativePrices)
    cached = np.full(4, 1000)
    plain, wide = prices.target.price((), cached), prices.price((), cached)
    verifying = wide.pass_s - prices.drafting_s((), cached)
    assert 0.98 < verifying / plain.pass_s < 1.1
    assert wide.work_s == plain.work_s, "the host knows sequences, not drafts"
    crowd = np.full(256, 1000)
    many = prices.price((), crowd).pass_s - prices.drafting_s((), crowd)
    assert many / prices.target.price((), crowd).pass_s > 1.3, "products are computed four times"
    assert prices.drafting_s((), cached) < 0.5 * plain.pass_s


def test_arithmetic_of_latent_attention_is_paid_for_every_draft() -> None:
    device, engine = find_device("H200"), find_engine("vllm")
    model = find_model("DeepSeek-V3")
    cut, whole = (
        Deployment.from_model(model, device, engine, plan)
        for plan in (Plan(8), Plan(attention_dp=8, ep=8))
    )
    assert seen_share(cut, 4) == pytest.approx(0.25)
    assert seen_share(whole, 4) > 0.9
    assert seen_share(whole, 1) == 1.0
