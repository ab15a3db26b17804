"""Denoising networks: U-Nets and transformers of videos, their cached steps, several devices."""

from __future__ import annotations

import math
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Graph, parameter_bytes_of
from silicast.workload.graphs.op import Op
from silicast.workload.networks.denoising_unet import CLASS, DenoisingUNet, unet_of
from silicast.workload.networks.diffusion_transformer import DiffusionTransformer
from silicast.workload.networks.video_transformer import VideoTransformer, wan_of

SD15 = {"architectures": [CLASS], "cross_attention_dim": 768}
SD21 = SD15 | {"cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20]}
SDXL = {
    "architectures": [CLASS],
    "block_out_channels": [320, 640, 1280],
    "cross_attention_dim": 2048,
    "attention_head_dim": [5, 10, 20],
    "transformer_layers_per_block": [1, 2, 10],
    "addition_embed_type": "text_time",
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
}


def ops(graph: Graph, family: str) -> list[Op]:
    return [node.op for block in graph.blocks for node in block.nodes if node.op.family == family]


@pytest.mark.parametrize(
    ("config", "parameters"), [(SD15, 859.5e6), (SD21, 865.9e6), (SDXL, 2567.5e6)]
)
def test_a_unet_has_the_parameters_of_its_checkpoint(
    config: dict[str, Any], parameters: float
) -> None:
    """Published counts of Stable Diffusion 1.5, 2.1 and XL; biases and norms are not in ours."""
    graph = unet_of(config).graph(2, (64, 64), "bf16")
    assert parameter_bytes_of(graph) / 2 == pytest.approx(parameters, rel=0.001)


def test_a_small_unet_by_hand() -> None:
    """Two levels of 2 and 4 channels, one residual block a level down and two up."""
    small = DenoisingUNet(4, (2, 4), 1, (0, 1), (1, 0), 1, (1, 2), 3, text_tokens=5)
    graph = small.graph(1, (8, 6), "bf16")
    convolved = [
        (op.dim("in_channels"), op.dim("out_channels"), op.dim("kernel"), op.dim("height"))
        for op in ops(graph, "conv2d")
    ]
    level_1_up = [
        (8, 4, 3, 4),
        (4, 4, 3, 4),
        (8, 4, 1, 4),
        (6, 4, 3, 4),
        (4, 4, 3, 4),
        (6, 4, 1, 4),
    ]
    level_0_up = [
        (6, 2, 3, 8),
        (2, 2, 3, 8),
        (6, 2, 1, 8),
        (4, 2, 3, 8),
        (2, 2, 3, 8),
        (4, 2, 1, 8),
    ]
    assert convolved == [
        (4, 2, 3, 8),
        *[(2, 2, 3, 8)] * 2,
        (2, 2, 3, 8),  # halves the sides
        *[(2, 4, 3, 4), (4, 4, 3, 4), (2, 4, 1, 4)],
        *[(4, 4, 3, 4)] * 4,
        *level_1_up,
        (4, 4, 3, 8),
        *level_0_up,
        (2, 4, 3, 8),
    ]
    attended = [(op.dim("q_len"), op.dim("kv_len")) for op in ops(graph, "attention_prefill")]
    assert attended == [(12, 12), (12, 5)] * 4
    assert {op.dim("num_heads") for op in ops(graph, "attention_prefill")} == {2}


def test_a_cached_step_of_a_unet_runs_its_outermost_blocks() -> None:
    graph = unet_of(SD15).graph(1, (64, 64), "bf16", cached=True)
    assert {op.dim("height") for op in ops(graph, "conv2d")} == {64}
    assert len(ops(graph, "attention_prefill")) == 4  # one layer a way: image and text


def test_a_video_transformer_has_the_parameters_of_its_checkpoint() -> None:
    """Wan 2.1: 1.42 and 14.3 billion; norms and tables are not products."""
    small = {"num_layers": 30, "num_attention_heads": 12, "ffn_dim": 8960}
    for config, parameters in ((small, 1.42e9), ({}, 14.29e9)):
        graph = wan_of(config).graph(1, 1024, "bf16")
        assert parameter_bytes_of(graph) / 2 == pytest.approx(parameters, rel=0.005)


def test_four_frames_are_one_and_the_first_stands_alone() -> None:
    wan = wan_of({})
    assert wan.video_tokens(1, 480, 832) == 30 * 52
    assert wan.video_tokens(5, 480, 832) == 2 * 30 * 52
    assert wan.video_tokens(81, 480, 832) == 21 * 30 * 52


FLUX = DiffusionTransformer(19, 38, 24, 128, 64, 4096, 512)


@pytest.mark.parametrize(
    "network", [FLUX, VideoTransformer(40, 24, 128, 8960, 16, (1, 2, 2), 4096)]
)
def test_devices_share_out_tokens_and_heads_of_attention(network: Any) -> None:
    """Products are divided; every block sends queries, keys, values and results of its tokens."""
    one, four = (network.graph(1, 4096, "bf16", gpus=count) for count in (1, 4))

    def flops(graph: Graph) -> int:
        return sum(math.prod(int(str(op.dim(name))) for name in "mnk") for op in ops(graph, "gemm"))

    sent = ops(four, "all_to_all")
    assert not ops(one, "all_to_all")
    assert len(sent) == 4 * (2 if network is FLUX else 1)
    tokens = 4096 + 512 if network is FLUX else 4096
    assert {op.dim("bytes") for op in sent} == {tokens // 4 * network.hidden * 2}
    attention = ops(four, "attention_prefill")[0]
    assert (attention.dim("num_heads"), attention.dim("kv_len")) == (6, tokens)
    assert flops(four) < 0.3 * flops(one)


def test_a_cached_step_of_a_transformer_runs_one_block() -> None:
    graph = FLUX.graph(1, 4096, "bf16", cached=True)
    assert [block.times for block in graph.blocks] == [1, 1, 1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"block_out_channels": []}, "whole numbers"),
        ({"block_out_channels": [320, 640]}, "expected 2 of DownBlock2D"),
        ({"attention_head_dim": 7}, "7 heads do not divide"),
        ({"mid_block_type": None}, "middle block"),
        ({"layers_per_block": [1, 2, 2, 2]}, "unequal levels"),
        ({"up_block_types": ["StrangeBlock"] * 4}, "StrangeBlock"),
    ],
)
def test_a_unet_that_is_not_known_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SilicastError, match=message):
        unet_of(SD15 | fields)


def test_sizes_of_a_video_transformer_are_whole() -> None:
    for fields in ({"num_layers": 0}, {"patch_size": [1, 2]}, {"ffn_dim": True}):
        with pytest.raises(SilicastError, match="whole number"):
            wan_of(fields)
