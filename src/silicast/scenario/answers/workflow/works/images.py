"""Images into tokens of a language model, by its encoder."""

from __future__ import annotations

from typing import ClassVar, final

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
from silicast.workload.networks.diffusion_transformer import transformer_of
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
        if stage.table.resolution is None:
            raise stage.error("is missing", "resolution", "[height, width] in pixels")
        scenario = stage.of_pool("graph")
        if not isinstance(scenario.raw.model, dict):
            raise stage.error(
                "expected the configuration of a diffusion network as model of its pool",
                "pool",
                "model = {architectures = ['FluxTransformer2DModel'], num_layers = 19, ...}",
            )
        network = transformer_of(scenario.raw.model, f"pools.{stage.pool[0]}.model")
        tokens = network.image_tokens(*stage.table.resolution)
        machine, warnings = machine_of(scenario)

        copies, each, jobs = in_jobs(stage.table.items, stage.table.max_batch or 1)

        def passes(batch: int, _: int) -> ProgramPass:
            return predict_program(
                machine, network.graph(batch * each, tokens, "bf16", fused=machine.engine.compiles)
            )

        remark = f"{stage.name}: diffusion networks were not measured step by step"
        return NetworkPasses(
            machine,
            tokens,
            passes,
            jobs,
            copies,
            log_sd=workflow_constants().passes.log_sd_alone,
            warnings=(*(f"{stage.name}: {text}" for text in warnings), remark),
        )
