"""Architectures of search spaces: their names, what they count, and their graphs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Graph
from silicast.workload.spaces import space_named, spaces
from silicast.workload.spaces.space import architecture, is_architecture

ALL_3X3 = (
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|"
    "+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"
)
DEAD_3X3 = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"


@pytest.mark.parametrize("name", sorted(spaces()))
def test_a_text_and_its_choices_are_one(name: str) -> None:
    space = space_named(name)
    for choices in space.every(50, 3)[:50].tolist():
        assert list(space.choices(space.text(choices))) == choices
    assert architecture(space.example)[0] is space


def test_published_numbers_of_fbnet_end_in_the_skip() -> None:
    space = space_named("FBNet")
    choices = space.choices("8 0 " + "7 " * 20)
    assert [space.options[each] for each in choices[:3]] == ["skip", "k3_e1", "k5_e6"]


@pytest.mark.parametrize("name", sorted(spaces()))
def test_latencies_are_the_product_of_features_and_weights(name: str) -> None:
    space = space_named(name)
    choices = space.every(200, 1)[:200]
    weights = np.random.default_rng(2).random(space.columns)
    expected = space.features(choices) @ weights
    np.testing.assert_allclose(space.latencies(choices, weights), expected, rtol=1e-12)


def test_work_that_reaches_no_output_is_not_counted() -> None:
    space = space_named("nasbench201")
    choices = np.array([space.choices(DEAD_3X3), space.choices(ALL_3X3)])
    work = dict(zip(space.kernels, space.kernel_work(choices).T.tolist(), strict=True))
    assert work["conv3x3"] == [0.0, 6.0]
    assert work["conv3x3 with dead ones"] == [1.0, 6.0]
    assert space.multiplications(choices)[0] == 0.0


def test_multiplications_are_those_of_the_graph() -> None:
    """Beyond those of the network whose cells only pass their input on."""
    space = space_named("nasbench201")
    texts = (DEAD_3X3, ALL_3X3)
    graphs = [multiplications(space.graph(space.choices(text))) for text in texts]
    assert graphs[1] - graphs[0] == space.multiplications(np.array([space.choices(ALL_3X3)]))[0]
    fbnet = space_named("fbnet")
    blocks = [fbnet.choices(" ".join([each] * 22)) for each in ("8", "3")]
    counts = [multiplications(fbnet.graph(each)) for each in blocks]
    of_blocks = fbnet.multiplications(np.array(blocks))
    assert counts[1] - counts[0] == of_blocks[1] - of_blocks[0]


def multiplications(graph: Graph) -> int:
    """Of all convolutions, by their dimensions."""
    total = 0
    for _, node in graph.nodes():
        if node.op.family != "conv2d":
            continue
        sizes = {each: size for each, size in node.op.dims if isinstance(size, int)}
        out = (sizes["height"] + 2 * sizes["padding"] - sizes["kernel"]) // sizes["stride"] + 1
        taps = sizes["kernel"] ** 2 * sizes["in_channels"] // sizes["groups"]
        total += out**2 * taps * sizes["out_channels"]
    return total


def test_parameters_of_a_network_of_skips() -> None:
    """By hand: stem 3x3x3x16, 1x1 where channels or images change, head and classifier."""
    space = space_named("fbnet")
    channels = (16, 24, 32, 64, 112, 184, 352)
    shortcuts = sum(a * b for a, b in itertools.pairwise(channels))
    expected = 27 * 16 + shortcuts + 352 * 1504 + 1504 * 100
    assert space.graph(space.choices("8 " * 22)).parameter_bytes == 4 * expected


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("nasbench201:|conv~0|+|none~0|none~1|+|none~0|none~1|none~2|", "expected one of"),
        ("nasbench201:|none~1|+|none~0|none~1|+|none~0|none~1|none~2|", "starts at node 0"),
        ("nasbench201:none", "6 edges"),
        ("fbnet:1 2 3", "22 blocks"),
        ("fbnet:" + "9 " * 22, "0 to 8"),
    ],
)
def test_a_name_of_no_architecture_is_refused(name: str, part: str) -> None:
    assert is_architecture(name)
    with pytest.raises(SilicastError, match=part):
        architecture(name)
