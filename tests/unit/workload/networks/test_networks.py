"""Networks against published sizes."""

from __future__ import annotations

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import parameter_bytes_of
from silicast.workload.models.lookup import find_model
from silicast.workload.networks.diffusion_transformer import transformer_of
from silicast.workload.networks.image_decoder import decoder_of
from silicast.workload.networks.image_encoder import encoder_of
from silicast.workload.networks.vector_index import VectorIndex, workflow_constants

FLUX = {
    "architectures": ["FluxTransformer2DModel"],
    "num_layers": 19,
    "num_single_layers": 38,
    "num_attention_heads": 24,
    "attention_head_dim": 128,
    "in_channels": 64,
}
SD3 = {
    "_class_name": "SD3Transformer2DModel",
    "num_layers": 24,
    "num_attention_heads": 24,
    "attention_head_dim": 64,
    "in_channels": 16,
}


@pytest.mark.parametrize("model", ["Qwen3-VL-2B", "Qwen3-VL-30B-A3B", "Qwen3-VL-32B"])
def test_an_encoder_has_the_parameters_of_its_checkpoint(model: str) -> None:
    assert encoder_of(model).parameters == find_model(model).encoder_parameters


def test_flux_has_twelve_billion_parameters_in_its_products() -> None:
    """The model card says 12 billion; biases and embeddings of guidance are not products here."""
    graph = transformer_of(FLUX).graph(1, 4096, "bf16")
    assert parameter_bytes_of(graph) / 2 == pytest.approx(11.9e9, rel=0.01)


def test_guidance_is_usual_where_it_is_not_distilled() -> None:
    one, two = transformer_of(FLUX), transformer_of(SD3)
    assert (one.guided, two.guided) == (False, True)
    assert two.image_tokens(1024, 1024) == 4096
    image_in = two.graph(2, 4096, "bf16").blocks[0].nodes[0]
    assert image_in.op.dim("m") == 2 * 4096


def test_another_network_is_refused_by_name() -> None:
    with pytest.raises(SilicastError, match="StrangeNet"):
        transformer_of({"architectures": ["StrangeNet"]})
    with pytest.raises(SilicastError, match="whole number"):
        transformer_of({**FLUX, "num_layers": "many"})


def test_an_index_reads_what_it_compares() -> None:
    """A million vectors of 768 floats: 3.07 GB; ten of a thousand lists, and the centres: 34 MB."""
    known = workflow_constants().vector_search
    flat = VectorIndex("flat", 1_000_000, 768)
    assert flat.read_bytes == 3.072e9
    some = VectorIndex("ivf", 1_000_000, 768, lists=1000, probes=10)
    assert some.read_bytes == 11_000 * 768 * 4
    graph = VectorIndex("hnsw", 1_000_000, 768)
    assert graph.compared < some.compared
    assert flat.seconds(1, 0.0, known) == pytest.approx(3.072 / 12.0, rel=0.01)
    assert flat.seconds(100, 100.0, known) == pytest.approx(3.072 / 100.0, rel=0.01)


AUTOENCODER = {
    "_class_name": "AutoencoderKL",
    "latent_channels": 16,
    "layers_per_block": 2,
    "block_out_channels": [128, 256, 512, 512],
}


def test_an_image_decoder_has_fifty_million_weights_and_eight_times_the_pixels() -> None:
    """AutoencoderKL's decoder of Stable Diffusion has 49.5 million parameters with 4 latent
    channels; biases and norms are not counted here.
    """
    decoder = decoder_of({**AUTOENCODER, "latent_channels": 4})
    graph = decoder.graph(2, 512, 256, "bf16")
    assert parameter_bytes_of(graph) / 2 == pytest.approx(49.5e6, rel=0.005)
    nodes = {node.name: node.op for node in graph.blocks[0].nodes}
    assert decoder.pixels == 8
    assert nodes["middle_attention"].dim("kv_len") == 64 * 32
    assert nodes["image_out"].dim("in_channels") == 128
    assert nodes["middle_norm"].dim("elements") == 2 * 64 * 32 * 512
    assert nodes["middle_norm_sums"].dim("read_bytes") == 2 * 64 * 32 * 512 * 2


def test_an_image_decoder_without_sizes_is_refused() -> None:
    with pytest.raises(SilicastError, match="image decoder 'StrangeNet'"):
        decoder_of({"architectures": ["StrangeNet"]})
    wrong: tuple[dict[str, object], ...] = (
        {"block_out_channels": []},
        {"layers_per_block": 0},
        {"latent_channels": "4"},
    )
    for sizes in wrong:
        with pytest.raises(SilicastError, match="expected whole numbers"):
            decoder_of({**AUTOENCODER, **sizes})


def test_a_walk_of_a_graph_meets_the_links_of_its_levels_and_of_what_it_keeps() -> None:
    """32 links: 32^4 vectors have 4 levels; below, half of what 64 kept nodes link to is new."""
    graph = VectorIndex("hnsw", 32**4, 128, links=32, ef=64)
    assert graph.compared == pytest.approx(4 * 32 + 64 * 64 * 0.5)
