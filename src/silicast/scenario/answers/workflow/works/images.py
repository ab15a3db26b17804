"""Images: into tokens of a language model, and from noise through a diffusion network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.composition.passes.program import ProgramPass, predict_program
from silicast.scenario.answers.workflow.stage_work import (
    NetworkPasses,
    StageContext,
    StageWork,
    in_jobs,
    register,
)
from silicast.scenario.resolve import model_of
from silicast.scenario.resolving.deployments import machine_of
from silicast.workload.graphs.graph import Graph
from silicast.workload.networks.diffusion_transformer import transformer_of
from silicast.workload.networks.image_decoder import decoder_of
from silicast.workload.networks.image_encoder import ImageEncoder, encoder_of
from silicast.workload.networks.vector_index import workflow_constants

MOST = 8
"""Images of a pass where the stage states no ``max_batch``."""


@register
@final
class EncodeImage(StageWork):
    """``items`` images of ``resolution`` (height, width), up to ``max_batch`` in a pass."""

    name: ClassVar[str] = "encode_image"

    def work(self, stage: StageContext) -> NetworkPasses:
        encoder, size = encoder_for(stage)
        tokens = encoder.tokens(*size)
        machine, warnings = machine_of(stage.of_pool("graph"))

        most = stage.table.max_batch or MOST
        copies, each, jobs = in_jobs(stage.table.items, most)

        def passes(batch: int, _: int) -> ProgramPass:
            return predict_program(machine, encoder.graph(batch * each, tokens, "bf16"))

        remarks = [f"{stage.name}: the image encoder alone was not measured"]
        if stage.table.max_batch is None:
            remarks.append(f"{stage.name}: up to {most} images run in a pass (max_batch)")
        return NetworkPasses(
            machine,
            tokens,
            passes,
            jobs,
            copies,
            log_sd=workflow_constants().passes.log_sd_alone,
            result_bytes=encoder.bytes_of(tokens * each),
            warnings=(*(f"{stage.name}: {text}" for text in warnings), *remarks),
        )


def encoder_for(stage: StageContext) -> tuple[ImageEncoder, tuple[int, int]]:
    """The encoder of a stage's model, and the sides of its images."""
    if stage.table.resolution is None:
        raise stage.error("is missing", "resolution", "[height, width] in pixels")
    height, width = stage.table.resolution
    return encoder_of(model_of(stage.of_pool("graph")).name), (height, width)


@register
@final
class Denoise(StageWork):
    """``repeat`` steps of images of ``resolution`` (height, width) in pixels, up to ``max_batch``
    images in a step, 1 where it is left out.
    """

    name: ClassVar[str] = "denoise"

    def work(self, stage: StageContext) -> NetworkPasses:
        config, size = _network(stage, "FluxTransformer2DModel", "num_layers = 19")
        network = transformer_of(config, f"pools.{stage.pool[0]}.model")
        tokens = network.image_tokens(*size)

        def graph(images: int, *, fused: bool) -> Graph:
            return network.graph(images, tokens, "bf16", fused=fused)

        remark = f"{stage.name}: diffusion networks were not measured step by step"
        return _passes(stage, tokens, graph, remark)


@register
@final
class DecodeImage(StageWork):
    """Latent images into ones of ``resolution`` (height, width) in pixels, up to ``max_batch`` in a
    pass, 1 where it is left out.
    """

    name: ClassVar[str] = "decode_image"

    def work(self, stage: StageContext) -> NetworkPasses:
        config, (height, width) = _network(stage, "AutoencoderKL", "layers_per_block = 2")
        decoder = decoder_of(config, f"pools.{stage.pool[0]}.model")

        def graph(images: int, *, fused: bool) -> Graph:  # noqa: ARG001
            return decoder.graph(images, height, width, "bf16")

        remark = f"{stage.name}: the image decoder alone was not measured"
        return _passes(stage, height * width, graph, remark)


def _network(stage: StageContext, kind: str, size: str) -> tuple[dict[str, Any], tuple[int, int]]:
    """The configuration that a stage's pool states, and the sides of its images."""
    if stage.table.resolution is None:
        raise stage.error("is missing", "resolution", "[height, width] in pixels")
    height, width = stage.table.resolution
    config = stage.of_pool("graph").raw.model
    if not isinstance(config, dict):
        raise stage.error(
            "expected the configuration of a diffusion network as model of its pool",
            "pool",
            f"model = {{architectures = ['{kind}'], {size}, ...}}",
        )
    return config, (height, width)


def _passes(
    stage: StageContext, tokens: int, graph: Callable[..., Graph], remark: str
) -> NetworkPasses:
    """Passes of a network that was not measured alone, over the stage's images."""
    machine, warnings = machine_of(stage.of_pool("graph"))
    copies, each, jobs = in_jobs(stage.table.items, stage.table.max_batch or 1)

    def passes(batch: int, _: int) -> ProgramPass:
        return predict_program(machine, graph(batch * each, fused=machine.engine.compiles))

    return NetworkPasses(
        machine,
        tokens,
        passes,
        jobs,
        copies,
        log_sd=workflow_constants().passes.log_sd_alone,
        warnings=(*(f"{stage.name}: {text}" for text in warnings), remark),
    )
