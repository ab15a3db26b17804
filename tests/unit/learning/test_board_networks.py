"""Networks on NPUs of boards: names, and what the shipped factors must obey."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.learning.board_networks import (
    PRECISIONS,
    Board,
    board_named,
    counted,
    fit_board,
    is_board,
    latency_on,
    networks,
    networks_named,
    npu_latencies,
    precision_named,
    runtime_named,
)
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.spaces import space_named

FP32 = Variant(dtype="fp32")

BOARDS = {
    "Samsung Galaxy S24": "Snapdragon 8 Gen 3",
    "Samsung Galaxy S25": "Snapdragon 8 Elite",
    "Snapdragon 8 Elite Gen 5 (QRD)": "Snapdragon 8 Elite Gen 5 Hexagon",
    "Snapdragon 7 Gen 4 (QRD)": "Snapdragon 7 Gen 4",
    "Snapdragon X Elite (CRD)": "X Elite",
    "QCS8450": "QCS8450 Hexagon",
    "QCS8550": "QCS8550 (Proxy)",
    "QCS8275": "QCS8275 Hexagon",
    "Dragonwing IQ-9075 EVK": "IQ-9075",
    "Dragonwing Q-6690 MTP": "Q-6690",
    "Dragonwing RB3 Gen 2 Vision Kit": "RB3 Gen 2",
    "SA7255P": "SA7255P ADP",
    "SA8295P": "SA8295P (ADP)",
    "SA8775P (ADP)": "SA8775P",
}
RESNET, MOBILENET = networks_named("resnet50")[0], networks_named("mobilenet_v3_small")[0]


@pytest.mark.parametrize(("name", "other"), BOARDS.items())
def test_a_board_has_its_own_name_and_its_chips(name: str, other: str) -> None:
    assert is_board(name)
    assert board_named(name) is board_named(other)


@pytest.mark.parametrize(
    ("name", "board"),
    [
        ("Qualcomm Snapdragon X Elite", "Snapdragon X Elite CRD"),
        ("Snapdragon® 8 Gen 3 Mobile Platform", "Samsung Galaxy S24"),
        ("Snapdragon 8 Elite for Galaxy", "Samsung Galaxy S25"),
        ("QCS8550 Hexagon v73 NPU", "QCS8550 (Proxy)"),
        ("7 Gen 4 HTP", "Snapdragon 7 Gen 4 QRD"),
    ],
)
def test_makers_kits_and_npus_beside_a_chip_do_not_count(name: str, board: str) -> None:
    assert board_named(name).name == board
    assert not is_board("NPU")
    assert not is_board("Snapdragon 888")


def test_names_of_packages_and_components_are_one_network() -> None:
    assert networks_named("torchvision:resnet50") == networks_named("ResNet50") == (RESNET,)
    parts = [each.component for each in networks_named("trocr")]
    assert parts == ["TrOCREncoder", "TrOCRDecoder"]
    assert [each.component for each in networks_named("trocr/TrOCRDecoder")] == parts[1:]
    with pytest.raises(SilicastError, match="resnet50"):
        networks_named("resnet5O")


def test_a_component_of_several_models_is_not_guessed() -> None:
    with pytest.raises(SilicastError, match="no network"):
        networks_named("HfWhisperEncoder")


def test_every_network_is_listed_once_with_a_kind() -> None:
    every = [each for parts in networks().values() for each in parts]
    assert len({each.name for each in every}) == len(every)
    known = {each.name for each in every}
    assert {each.network for each in npu_latencies().networks} <= known
    assert all(each.gmacs > 0 and each.mparams > 0 for each in every)
    assert all(each.mvalues > 0 and each.operators >= 1 for each in every)


def test_more_operations_a_second_are_quicker_and_less_exact_formats_too() -> None:
    new, old = board_named("Galaxy S25"), board_named("RB3 Gen 2")
    for network in (RESNET, MOBILENET):
        times = [latency_on(board, network, "w8a8", "qnn").ms for board in (new, old)]
        assert times[0] < times[1]
    assert latency_on(new, RESNET, "w8a8", "qnn").ms < latency_on(new, RESNET, "float", "qnn").ms


def test_what_was_not_measured_is_less_sure() -> None:
    seen = latency_on(board_named("Galaxy S25"), RESNET, "float", "qnn")
    board = latency_on(board_named("Galaxy S24"), RESNET, "float", "qnn")
    network = latency_on(
        board_named("Galaxy S25"), networks_named("mobilenet_v2")[0], "float", "qnn"
    )
    assert (seen.seen_board, board.seen_board, network.seen_network) == (True, False, False)
    assert seen.log_sd < min(board.log_sd, network.log_sd)


def test_a_board_without_relatives_lies_at_its_own_level() -> None:
    """A board with the figures of a measured one has its shape, and the level of its operations."""
    known = npu_latencies()
    board = board_named("QCS8550")
    without = known.without(["QCS8550 (Proxy)"])
    one = latency_on(board, RESNET, "float", "qnn", without)
    amounts, levels = without.on_boards(RESNET, "float")[0], without.levels()
    shares = without.shares(board)
    assert shares.sum() == pytest.approx(1.0)
    expected = (np.log(amounts) - levels) @ shares + without.level(board)
    assert math.log(one.ms) == pytest.approx(float(expected))


def test_a_board_with_the_figures_of_a_measured_one_is_about_at_its_level() -> None:
    known = npu_latencies()
    names = [each.name for each in known.boards]
    twin = board_named("Dragonwing IQ-9075 EVK")
    measured = float(known.levels()[names.index(twin.name)])
    constant, slope = known.level_weights
    line = constant + slope * math.log(twin.tops)
    assert abs(known.level(twin) - measured) < 0.5 * abs(line - measured)
    far = replace_tops(twin, 2000.0)
    assert known.level(far) == pytest.approx(constant + slope * math.log(2000.0))


def replace_tops(board: Board, tops: float) -> Board:
    return msgspec.structs.replace(board, tops=tops)


def test_samples_of_a_measured_board_are_that_board() -> None:
    known = npu_latencies()
    board = known.boards[-1].name
    picked = known.networks[:: len(known.networks) // 12][:10]
    named = {each.name: each for parts in networks().values() for each in parts}
    samples = [
        (
            named[each.network],
            each.precision,
            "qnn",
            3.0 * latency_on(board_named(board), named[each.network], each.precision, "qnn").ms,
        )
        for each in picked
    ]
    fit = fit_board(known, board_named(board), samples)
    assert fit.rows == 10
    assert max(map(abs, fit.slope)) < 0.03
    for network in (RESNET, MOBILENET):
        truth = 3.0 * latency_on(board_named(board), network, "float", "qnn").ms
        blended = latency_on(board_named(board), network, "float", "qnn", known, fit).ms
        assert blended == pytest.approx(truth, rel=0.15)


def test_an_estimated_network_is_less_sure_than_a_counted_one() -> None:
    counted_one = networks_named("swin_tiny")[0]
    estimated = replace(counted_one, recalled=True)
    known = npu_latencies()
    (one, sure), (other, unsure) = (
        known.on_boards(each, "w8a8") for each in (counted_one, replace(estimated, model="other"))
    )
    assert sure < unsure
    np.testing.assert_allclose(one, other)


def test_samples_tilt_by_the_size_of_networks() -> None:
    """A board that is slower the larger the network is has a slope that says so."""
    known = npu_latencies()
    board = board_named("QCS8550")
    named = {each.name: each for parts in networks().values() for each in parts}
    picked = known.networks[::12]
    samples = []
    for each in picked:
        network = named[each.network]
        ms = latency_on(board, network, each.precision, "qnn").ms * network.gmacs**0.2
        samples.append((network, each.precision, "qnn", ms))
    fit = fit_board(known, board, samples)
    small, large = networks_named("mobilenet_v3_small")[0], networks_named("resnet101")[0]
    ratio = [
        latency_on(board, each, "float", "qnn", known, fit).ms
        / latency_on(board, each, "float", "qnn").ms
        for each in (small, large)
    ]
    assert ratio[1] > 1.5 * ratio[0]


def test_names_of_runtimes_and_precisions() -> None:
    assert [runtime_named(each) for each in ("LiteRT", "qnn_dlc", "ONNX Runtime")] == [
        "tflite",
        "qnn",
        "onnx",
    ]
    assert [precision_named(each) for each in ("fp16", "int8", "w8a16")] == list(PRECISIONS)
    with pytest.raises(SilicastError, match="no runtime"):
        runtime_named("vllm")
    with pytest.raises(SilicastError, match="expected one of float"):
        precision_named("fp8")


def test_a_graph_is_counted_as_its_space_counts_it() -> None:
    """FBNet's inverted bottlenecks are depthwise; the rest of the network is the same."""
    space = space_named("fbnet")
    skips, blocks = (space.choices(" ".join([each] * 22)) for each in ("8", "3"))
    less, more = (counted(space.graph(each)) for each in (skips, blocks))
    work = space.multiplications(np.array([skips, blocks]))
    assert more.gmacs - less.gmacs == pytest.approx((work[1] - work[0]) / 1e9)
    assert (less.kind, more.kind) == ("convolution", "depthwise")
    assert more.operators > less.operators
    assert more.mvalues > less.mvalues
    assert less.mparams == pytest.approx(space.graph(skips).parameter_bytes / 4e6)


def test_a_bias_is_no_operator_and_attention_is_two_products_and_a_softmax() -> None:
    """Counts by hand: 8 x 8 positions, 3 channels to 16; 2 heads of 4, 10 queries, 12 keys."""
    image = {"height": 8, "width": 8, "kernel": 3, "stride": 1, "padding": 1}
    conv = Op.make("conv2d", FP32, batch=1, in_channels=3, out_channels=16, groups=1, **image)
    lengths = {"q_len": 10, "kv_len": 12, "num_heads": 2, "num_kv_heads": 2, "head_dim": 4}
    nodes = (
        Node("c", conv, (), output_bytes=4096, parameter_bytes=1728, source="aten.convolution"),
        Node(
            "b",
            Op.make("elementwise", FP32, elements=1024, inputs=2),
            ("c",),
            output_bytes=4096,
            source="aten.convolution",
        ),
        Node(
            "a",
            Op.make("attention_prefill", FP32, batch=1, **lengths),
            ("b",),
            output_bytes=320,
            source="silicast.attention",
        ),
    )
    network = counted(Graph("net", (Block("forward", nodes),)))
    assert network.gmacs * 1e9 == 8 * 8 * 16 * 27 + 2 * 2 * 10 * 12 * 4
    assert network.operators == 1 + 3
    assert network.mvalues * 1e6 == 1024 + 2 * 2 * 10 * 12 + 80
