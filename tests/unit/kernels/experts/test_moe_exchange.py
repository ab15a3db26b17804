"""Dispatch and combine: bytes by hand, paths, payloads, nodes, and the battery."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import Network, cluster_of
from silicast.hardware.device import Device
from silicast.kernels.check import check_kernel
from silicast.kernels.experts.moe_exchange import (
    COMPULSORY_SHARE,
    LOW_LATENCY_TOKENS,
    USUAL_SMS,
    Combine,
    Dispatch,
    constants_of,
    fabric_of,
    path_of,
    payload_bytes,
    remote_of,
)
from silicast.kernels.physics.constants import load_physics
from silicast.learning.dispatch import time_of
from silicast.learning.tiers import Evidence
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100 = find_device("H100-SXM-80GB")


def exchange(family: str, tokens: int, variant: Variant = Variant(), **other: int) -> Op:
    sizes = {"hidden": 7168, "topk": 8, "experts": 256, "ep": 8}
    return Op.make(family, variant, tokens=tokens, **{**sizes, **other})


def us(op: Op) -> float:
    return 1e6 * time_of(op, H100).estimate_s


def test_copies_that_leave_a_rank_by_hand() -> None:
    remote = remote_of(*(np.array([x]) for x in (8, 8, 8)))
    # a rank serves none of eight choices with probability (7/8)^8 = 0.3436
    assert remote.once[0] == pytest.approx(7 * (1 - 0.875**8), rel=1e-9)
    assert remote.every[0] == pytest.approx(8 * 7 / 8)
    assert (remote.out_once[0], remote.out_every[0]) == (0.0, 0.0)
    two_nodes = remote_of(*(np.array([x]) for x in (8, 16, 8)))
    assert two_nodes.out_once[0] == pytest.approx(1 - 0.5**8), "one copy a node"
    assert two_nodes.out_every[0] == pytest.approx(4.0)


def test_copies_against_draws() -> None:
    generator = np.random.default_rng(0)
    choices = np.argsort(generator.random((2000, 256)), axis=1)[:, :8] // 32
    ranks = np.array([len(set(row.tolist()) - {0}) for row in choices])
    remote = remote_of(*(np.array([x]) for x in (8, 8, 8)))
    assert remote.once[0] == pytest.approx(ranks.mean(), rel=0.03)


def test_bound_is_a_share_of_the_bytes_over_the_link() -> None:
    remote = 7 * (1 - 0.875**8)
    expected = 4096 * 7168 * remote * COMPULSORY_SHARE / fabric_of(H100).link
    assert time_of(exchange("dispatch", 4096), H100).bound_s == pytest.approx(expected)
    assert time_of(exchange("dispatch", 4096), H100).bound_by == "link"


def test_payloads() -> None:
    assert payload_bytes(Variant(dtype="bf16"), "dispatch") == 2.0
    assert payload_bytes(Variant(dtype="fp8"), "dispatch") == 1.03125
    assert payload_bytes(Variant(dtype="nvfp4"), "dispatch") == 0.5625
    assert payload_bytes(Variant(dtype="nvfp4"), "combine") == 2.0


def test_paths() -> None:
    names = ("deepep_ll", "deepep_normal", "NVLinkTwoSided", "deepep")
    assert [path_of(name) for name in names] == ["low_latency", "throughput", "one_sided", ""]
    slow = exchange("dispatch", 8, Variant(kernel="deepep_ht", library="vllm"))
    fast = exchange("dispatch", 8, Variant(kernel="deepep_ll", library="vllm"))
    assert us(fast) < us(slow)


def test_no_jump_where_engines_change_the_path() -> None:
    sizes = range(64, 1025, 8)
    times = [us(exchange("combine", n)) for n in sizes]
    steps = [b / a for a, b in itertools.pairwise(times)]
    assert max(steps) < 1.2
    assert min(steps) > 0.9


def test_the_path_is_in_doubt_only_between_the_borders() -> None:
    def doubt(tokens: int) -> float:
        return time_of(exchange("combine", tokens), H100).independent_log_sd

    first, last = LOW_LATENCY_TOKENS
    assert doubt(first) == doubt(last) == doubt(1)
    assert doubt(256) ** 2 - doubt(first) ** 2 > 0.03**2


def test_styles_name_the_path() -> None:
    styles = [
        Dispatch().style(Variant(kernel=kernel), H100)
        for kernel in ("", "deepep_ll", "trtllm_deepep_ll", "deepep_normal", "NVLinkOneSided")
    ]
    assert styles == ["by_tokens", "low_latency", "low_latency", "throughput", "nvlinkonesided"]


def test_a_grace_host_takes_longer_to_start() -> None:
    op = exchange("dispatch", 8, Variant(kernel="deepep_ll", library="trtllm"))
    plain = Evidence(learned=False)
    grace, other = find_device("GB200"), find_device("B200")
    assert time_of(op, grace, plain).estimate_s > 1.2 * time_of(op, other, plain).estimate_s


def test_large_exchanges_are_bound_by_bytes() -> None:
    throughput = Variant(kernel="deepep_ht")
    one, two = (us(exchange("dispatch", n, throughput)) for n in (32768, 65536))
    assert two == pytest.approx(2 * one, rel=0.05)
    narrow = exchange("dispatch", 65536, Variant(dtype="fp8", kernel="deepep_ht"))
    assert us(narrow) < 0.7 * two


def test_few_sms_throttle_an_exchange() -> None:
    normal = Variant(kernel="deepep_normal", library="sglang")
    four, twenty = (us(exchange("combine", 8192, normal, sms=n)) for n in (4, 20))
    assert four > 2.5 * twenty


def test_a_throughput_exchange_that_states_no_sms_has_the_usual_ones() -> None:
    for library in ("sglang", "trtllm", "vllm"):
        normal = Variant(kernel="deepep_normal", library=library)
        plain, usual, few = (
            time_of(exchange("dispatch", 8192, normal, **sms), H100, Evidence(learned=False))
            for sms in ({}, {"sms": USUAL_SMS}, {"sms": 10})
        )
        assert plain.estimate_s == usual.estimate_s
        assert few.estimate_s > 1.3 * usual.estimate_s


def test_a_quicker_link_does_not_help_where_sms_are_the_limit() -> None:
    links = {
        name: dataclasses.replace(link, bandwidth_bytes_per_s=4 * link.bandwidth_bytes_per_s)
        for name, link in H100.links.items()
    }
    sizes = {"tokens": 8192, "hidden": 7168, "topk": 8, "experts": 256, "ep": 8, "sms": 2}
    batch = OpBatch(
        "dispatch",
        Variant(kernel="deepep_ht"),
        {name: np.array([size]) for name, size in sizes.items()},
    )

    def seconds(device: Device) -> float:
        return float(Dispatch().analyse(batch, device).time_s[0])

    slow = seconds(H100)
    assert seconds(dataclasses.replace(H100, name="linked", links=links)) == pytest.approx(slow)
    clocks = dataclasses.replace(H100.clocks, max_hz=2 * H100.clocks.max_hz)
    assert seconds(dataclasses.replace(H100, name="clocked", clocks=clocks)) < 0.6 * slow


def test_leaving_the_node_costs_more() -> None:
    assert us(exchange("dispatch", 4096, ep=16)) > 2 * us(exchange("dispatch", 4096, ep=8))
    assert us(exchange("dispatch", 4096, nodes=2)) > us(exchange("dispatch", 4096))


def test_counts() -> None:
    assert Dispatch().flops(exchange("dispatch", 8)) == 0
    assert Combine().compulsory_bytes(exchange("combine", 8)) == 8 * 7168 * 2


def test_a_device_without_links_is_refused() -> None:
    alone = dataclasses.replace(H100, name="alone", links={})
    with pytest.raises(SilicastError, match="no link") as caught:
        time_of(exchange("dispatch", 8), alone)
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize("model", [Dispatch(), Combine()])
def test_battery(model: Dispatch | Combine) -> None:
    devices = [find_device(name) for name in ("H100", "GB200", "L40S", "RTX PRO 6000 S")]
    variants = [
        Variant(kernel=kernel, library=library)
        for kernel in ("", "deepep_ll", "deepep_ht", "NVLinkOneSided")
        for library in ("", "vllm")
    ]
    assert check_kernel(model, devices, draws=200, variants=variants, scalar_rows=2) >= 200


def test_the_fastest_link_to_peers_carries_it_on_any_device() -> None:
    sizes = {"tokens": 4096, "hidden": 7168, "topk": 8, "experts": 256, "ep": 8}
    op = Op.make("dispatch", Variant(), **sizes)
    board, matrix = find_device("RTX PRO 6000"), find_device("MI300X")
    ratio = time_of(op, board).bound_s / time_of(op, matrix).bound_s
    assert ratio == pytest.approx(448 / 64)
    torus = find_device("TPU-v5p")
    assert time_of(op, matrix).bound_s / time_of(op, torus).bound_s == pytest.approx(
        540 / 448, 0.01
    )


def test_a_stated_network_sets_what_leaves_the_node_and_nothing_else() -> None:
    def seconds(network: str, gpus_per_node: int = 8, **sizes: int) -> float:
        cluster = cluster_of(H100, gpus=64, gpus_per_node=gpus_per_node, inter_node=network)
        op = exchange("dispatch", sizes.pop("tokens", 64), Variant(kernel="deepep_ll"), **sizes)
        return time_of(op, cluster.networked(H100), Evidence(learned=False)).estimate_s

    usual, slow = "infiniband-ndr", "efa-400g"
    assert seconds(usual, ep=8) == seconds(slow, ep=8), "one node has no network"
    hops = load_physics("network").architectures
    base = constants_of(H100)["dispatch.low_latency.network_base_s"]
    longer = hops["efa"]["network_step_us"] / hops["infiniband"]["network_step_us"] - 1.0
    few = {"ep": 16, "tokens": 1}  # bytes cost nothing: what is left is latency
    assert seconds(slow, **few) - seconds(usual, **few) == pytest.approx(base * longer, rel=0.01)
    plain = time_of(
        exchange("dispatch", 64, Variant(kernel="deepep_ll"), ep=16), H100, Evidence(learned=False)
    ).estimate_s
    assert seconds(usual, ep=16) == plain, "exchanges were measured over this very network"
    assert seconds(usual, 4, ep=8) > seconds(usual, 8, ep=8), "smaller nodes send more out"


def test_half_the_rate_doubles_a_long_exchange_that_the_network_bounds() -> None:
    op = exchange("dispatch", 8192, Variant(kernel="deepep_ht"), ep=64)
    times = [
        time_of(
            op,
            cluster_of(H100, gpus=64, inter_node=Network("infiniband-ndr", rate)).networked(H100),
            Evidence(learned=False),
        ).estimate_s
        for rate in (12.5e9, 6.25e9)
    ]
    assert times[1] / times[0] == pytest.approx(2.0, rel=0.02)
