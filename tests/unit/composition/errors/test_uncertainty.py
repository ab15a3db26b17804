"""Errors of sums by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.errors.error_correlation import distances, knowledge_of
from silicast.composition.errors.uncertainty import MOST_SHAPES, Sum, Uncertainty, mode_of, split
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.composition.step.machine import Machine
from silicast.composition.step.stage_graph import StageGraph
from silicast.core.prediction import TIERS, ErrorFactors
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import load_physics, replaced
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Affine, Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

MACHINE = Machine(find_device("H100"), find_engine("vllm"))
LEARNED, KNOWN = TIERS.index("cross-device"), TIERS.index("analytic")
CONSTANTS = load_physics("uncertainty").default


def nodes(*ops: Op, times: int = 1) -> StageGraph:
    layer = Block("layer", tuple(Node(f"n{i}", op) for i, op in enumerate(ops)), times=times)
    return StageGraph(Graph("sum", (layer,)), MACHINE)


def gemm(n: int, m: int | str = 64) -> Op:
    return Op.make("gemm", m=m, n=n, k=4096)


def sum_of(
    seconds: list[float],
    current: list[float],
    *shared: Mapping[str, float],
    tier: int = KNOWN,
    host_s: float = 0.0,
) -> Sum:
    factors = shared or ({},)
    each = factors * len(seconds) if len(factors) == 1 else factors
    return Sum(np.array(seconds), np.array(current), each, np.full(len(seconds), tier), host_s)


def test_equal_ops_of_two_blocks_share_their_whole_error() -> None:
    twice = nodes(gemm(4096), replace(gemm(4096)))
    result = Uncertainty(twice, MACHINE).factors(sum_of([1.0, 3.0], [0.1, 0.1]))
    assert result.causes["shapes:gemm"] == pytest.approx(0.1)


@pytest.mark.parametrize(("tier", "kind"), [(LEARNED, "learned"), (KNOWN, "known")])
def test_neighbouring_shapes_share_by_their_distance(tier: int, kind: str) -> None:
    two = nodes(gemm(4096), gemm(16384))  # two octaves apart
    result = Uncertainty(two, MACHINE).factors(sum_of([1.0, 1.0], [0.1, 0.1], tier=tier))
    alike, reach = CONSTANTS[f"{kind}.alike"], CONSTANTS[f"{kind}.reach_octaves"]
    expected = 0.05 * math.sqrt(2.0 + 2.0 * alike * math.exp(-2.0 / reach))
    assert result.causes["shapes:gemm"] == pytest.approx(expected)


def test_different_variants_share_less() -> None:
    other = replace(gemm(4096), variant=Variant(library="cutlass"))
    two, total = nodes(gemm(4096), other), sum_of([1.0, 1.0], [0.1, 0.1])
    result = Uncertainty(two, MACHINE).factors(total)
    shared = CONSTANTS["known.alike"] * CONSTANTS["known.variants"]
    expected = 0.05 * math.sqrt(2.0 + 2.0 * shared)
    assert result.causes["shapes:gemm"] == pytest.approx(expected)


def test_shapes_of_two_families_are_strangers() -> None:
    two = nodes(gemm(4096), Op.make("rmsnorm", tokens=64, hidden=4096))
    result = Uncertainty(two, MACHINE).factors(sum_of([1.0, 1.0], [0.1, 0.1]))
    assert result.causes["shapes:gemm"] == result.causes["shapes:rmsnorm"] == pytest.approx(0.05)


def test_what_a_device_shares_is_mostly_a_family_s() -> None:
    share = CONSTANTS["known.device_share"]
    result = split({"device:H100": 0.08, "device": 0.06, "campaign:gemm": 0.05}, "gemm", "known")
    assert result["device"] == pytest.approx(0.1 * math.sqrt(share))
    assert result["device:gemm"] == pytest.approx(0.1 * math.sqrt(1.0 - share))
    assert result["campaign:gemm"] == 0.05
    two = nodes(gemm(4096), Op.make("rmsnorm", tokens=64, hidden=4096))
    factors = {"device": 0.1}, {"device": 0.1}
    whole = Uncertainty(two, MACHINE).factors(sum_of([1.0, 1.0], [0.0, 0.0], *factors))
    assert whole.loadings.get("device", 0.0) == pytest.approx(0.1 * math.sqrt(share))
    assert whole.loadings["device:gemm"] == pytest.approx(0.05 * math.sqrt(1.0 - share))


def test_unmeasured_libraries_are_another_kind_of_knowledge() -> None:
    assert knowledge_of({"device": 0.1}, LEARNED) == "learned"
    assert knowledge_of({"device": 0.1}, LEARNED, "sister") == "sister"
    assert knowledge_of({"device": 0.1}, TIERS.index("calibrated"), "sister") == "learned"
    assert knowledge_of({"device": 0.1}, KNOWN) == "known"
    assert knowledge_of({"device": 0.1}, KNOWN, "sister") == "sister"
    assert knowledge_of({"device": 0.1}, KNOWN, "format") == "unmeasured"
    assert knowledge_of({"software:rubin": 0.3}, KNOWN) == "unmeasured"


def test_neighbours_are_as_alike_as_what_was_measured_of_the_device_says() -> None:
    total = sum_of([1.0, 1.0], [0.1, 0.1], {"device": 0.01})
    for name, kind in (("H100", "known"), ("H20", "sister"), ("Rubin", "unmeasured")):
        two = nodes(gemm(4096), gemm(16384))
        result = Uncertainty(two, replace(MACHINE, device=find_device(name))).factors(total)
        alike, reach = CONSTANTS[f"{kind}.alike"], CONSTANTS[f"{kind}.reach_octaves"]
        expected = 0.05 * math.sqrt(2.0 + 2.0 * alike * math.exp(-2.0 / reach))
        assert result.causes["shapes:gemm"] == pytest.approx(expected)


def test_composition_depends_on_the_way_of_execution() -> None:
    one = nodes(gemm(4096))
    for name, mode in (
        ("vllm", "serving"),
        ("torch-eager", "eager"),
        ("torch-compile", "compiled"),
    ):
        engine = find_engine(name)
        assert mode_of(engine) == mode
        result = Uncertainty(one, replace(MACHINE, engine=engine)).factors(sum_of([1.0], [0.0]))
        assert result.log_sd == CONSTANTS[f"{mode}.composition_log_sd"]


def test_host_experts_and_assumed_structure_have_factors() -> None:
    moe = nodes(gemm(4096), Op.make("moe", tokens=8, experts=8, topk=2, hidden=64, intermediate=64))
    total = sum_of([1.0, 1.0], [0.0, 0.0], host_s=2.0)
    result = Uncertainty(moe, MACHINE, assumed=True).factors(total)
    assert result.loadings == pytest.approx(
        {
            "host": 0.5 * MACHINE.engine.host.log_sd,
            "experts": 0.25 * CONSTANTS["experts_log_sd"],
            "structure": CONSTANTS["structure_log_sd"],
        }
    )
    assert Uncertainty(moe, MACHINE).factors(sum_of([0.0, 0.0], [0.1, 0.1])) == ErrorFactors()


def test_a_measured_family_has_the_spread_of_a_calibration() -> None:
    two = nodes(gemm(4096), Op.make("rmsnorm", tokens=64, hidden=4096))
    factors = {"device": 0.2, "family:gemm": 0.1}, {"device": 0.2}
    total = sum_of([1.0, 1.0], [0.3, 0.3], *factors)
    result = Uncertainty(two, MACHINE).factors(total, frozenset(("gemm",)))
    assert result.causes["shapes:gemm"] == pytest.approx(0.5 * CONSTANTS["calibrated.gemm.log_sd"])
    shared = CONSTANTS["calibrated.gemm.shared_log_sd"]
    assert result.loadings["device:gemm"] == pytest.approx(0.5 * shared)
    assert "family:gemm" not in result.loadings
    assert result.causes["shapes:rmsnorm"] == pytest.approx(0.15)
    assert result.loadings["device:rmsnorm"] > result.loadings["device:gemm"]
    certain = sum_of([1.0, 1.0], [0.01, 0.01])
    same = Uncertainty(two, MACHINE).factors(certain, frozenset(("gemm",)))
    assert same == Uncertainty(two, MACHINE).factors(certain)


def test_what_is_certain_already_is_not_worth_measuring() -> None:
    assert Uncertainty(nodes(gemm(64)), MACHINE).narrowed(sum_of([1.0], [0.001])) == {}


def test_links_are_measured_by_themselves() -> None:
    reduce = Op.make("all_reduce", bytes=1 << 20, gpus=8)
    two = nodes(gemm(4096), reduce)
    factors = {"device": 0.1}, {"network": 0.4, "device": 0.1}
    model, total = Uncertainty(two, MACHINE), sum_of([1.0, 1.0], [0.1, 0.3], *factors)
    after = model.factors(total, frozenset(("network",)))
    assert model.narrowed(total)["network"].variance == after.variance
    assert after.loadings["network"] == 0.5 * CONSTANTS["calibrated.network.shared_log_sd"]
    assert after.causes["shapes:gemm"] == model.factors(total).causes["shapes:gemm"]


def test_distances_are_octaves_of_all_sizes() -> None:
    apart = distances(
        [
            (("m", "tokens"), ("n", 64)),
            (("m", "tokens"), ("n", 512)),
            (("m", "logit_rows"), ("n", 64)),
            (("m", Affine("tokens", 8)), ("n", 64)),
            (("m", "tokens"), ("n", (32, 32))),
        ]
    )
    assert apart[0].tolist() == [0.0, 3.0, CONSTANTS["unlike_octaves"], 3.0, 0.0]


def test_many_shapes_are_told_apart_by_octaves() -> None:
    count = 2 * MOST_SHAPES
    many = nodes(*(gemm(64 + i) for i in range(count)))
    assert len(many.nodes) == count
    total = sum_of([1.0] * count, [0.1] * count)
    cause = Uncertainty(many, MACHINE).factors(total).causes["shapes:gemm"]
    assert 0.06 < cause <= 0.1 + 1e-12


def test_terms_of_a_sum_are_its_times_and_the_whole_error_of_each() -> None:
    forty = nodes(gemm(4096), times=40)
    total = sum_of([1.0], [0.3], {"device": 0.4}, host_s=0.25)
    terms = Uncertainty(forty, MACHINE).terms(total)
    assert (terms.seconds.tolist(), terms.runs.tolist()) == ([1.0], [40.0])
    assert terms.log_sd.tolist() == pytest.approx([0.5])
    assert (terms.host_s, terms.whole) == (0.25, 1.25)
    assert terms.host_log_sd == MACHINE.engine.host.log_sd


def test_a_static_batch_says_what_would_narrow_it() -> None:
    device = find_device("H20")
    deployment = Deployment.from_model(
        find_model("DeepSeek-V3"), device, MACHINE.engine, plan=Plan(tp=8)
    )
    static_batch = predict_static_batch(deployment, [512] * 2, 8)
    for prediction in (static_batch.prefill, static_batch.decode_step, static_batch.total):
        assert prediction is not None
        assert "moe" in prediction.narrowed
        assert all(e.variance < prediction.error.variance for e in prediction.narrowed.values())


def test_other_constants_are_used_where_they_are_put() -> None:
    physics = load_physics("uncertainty")
    default = {**physics.default, "serving.composition_log_sd": 0.5}
    with replaced({"uncertainty": msgspec.structs.replace(physics, default=default)}):
        assert Uncertainty(nodes(gemm(64)), MACHINE).factors(sum_of([1.0], [0.0])).log_sd == 0.5
    assert Uncertainty(nodes(gemm(64)), MACHINE).factors(sum_of([1.0], [0.0])).log_sd < 0.1
