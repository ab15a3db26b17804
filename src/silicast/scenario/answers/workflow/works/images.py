"""Images: into tokens of a language model, and from noise through a diffusion network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Final, final

import msgspec
import numpy as np

from silicast.composition.passes.program import ProgramPass, predict_program
from silicast.core.errors import SilicastError, unmodelled
from silicast.scenario.answers.workflow.stage_work import (
    NetworkPasses,
    StageContext,
    StageWork,
    in_jobs,
    register,
)
from silicast.scenario.resolve import model_of
from silicast.scenario.resolving.deployments import machine_of
from silicast.scenario.schema import ParallelTable
from silicast.workload.graphs.graph import Graph
from silicast.workload.networks import denoising_unet, video_transformer
from silicast.workload.networks.denoising_unet import DenoisingUNet
from silicast.workload.networks.diffusion_transformer import DiffusionTransformer, transformer_of
from silicast.workload.networks.image_decoder import decoder_of
from silicast.workload.networks.image_encoder import ImageEncoder, encoder_of
from silicast.workload.networks.network_nodes import class_in
from silicast.workload.networks.vector_index import workflow_constants
from silicast.workload.networks.video_transformer import VideoTransformer

PIXELS = 8
"""A side of what a latent pixel stands for."""
MOST = 8
"""Images of a pass where the stage states no ``max_batch``."""


@register
@final
class EncodeImage(StageWork):
    """``items`` images of ``resolution`` (height, width), or videos of so many ``frames``, up to
    ``max_batch`` in a pass. What a patch spans in time is one image to attention. The tensor ranks
    of its pool (``parallel.tp``) share the encoder or the images, as the engine does.
    """

    name: ClassVar[str] = "encode_image"

    def work(self, stage: StageContext) -> NetworkPasses:
        encoder, size = encoder_for(stage)
        tokens, spans = encoder.tokens(*size), -(-stage.table.frames // encoder.temporal)
        machine, warnings = machine_of(stage.of_pool("graph"))

        most = stage.table.max_batch or MOST
        copies, each, jobs = in_jobs(stage.table.items, most)

        (_, pool), mode = stage.pool, machine.engine.parallel.encoder
        gpus = (pool.parallel or ParallelTable()).tp
        ranks = encoder.ranks(gpus) if mode == "weights" else 1

        def passes(batch: int, _: int) -> ProgramPass:
            images = batch * each * spans
            if mode == "data":
                share = -(-batch * each // gpus) * spans
                graph = encoder.graph(share, tokens, "bf16", gathers=(images, gpus))
            else:
                graph = encoder.graph(images, tokens, "bf16", ranks=ranks)
            return predict_program(machine, graph)

        remarks = [f"{stage.name}: the image encoder alone was not measured"]
        if gpus > 1 and mode != "data" and ranks == 1:
            remarks.append(f"{stage.name}: each of the {gpus} devices runs the whole encoder")
        if stage.table.max_batch is None:
            remarks.append(f"{stage.name}: up to {most} images run in a pass (max_batch)")
        return NetworkPasses(
            machine,
            tokens * spans,
            passes,
            jobs,
            copies,
            log_sd=workflow_constants().passes.log_sd_alone,
            result_bytes=encoder.bytes_of(tokens * spans * each),
            gpus=gpus,
            warnings=(*(f"{stage.name}: {text}" for text in warnings), *remarks),
        )


MOST_PLACES: Final = 1 << 29
"""Tokens of an image or video that a pass is predicted for."""


def encoder_for(stage: StageContext) -> tuple[ImageEncoder, tuple[int, int]]:
    """The encoder of a stage's model, and the sides of its images."""
    if stage.table.resolution is None:
        raise stage.error("is missing", "resolution", "[height, width] in pixels")
    height, width = stage.table.resolution
    return encoder_of(model_of(stage.of_pool("graph")).name), (height, width)


@register
@final
class Denoise(StageWork):
    """``repeat`` steps of images of ``resolution`` (height, width) in pixels, or of videos of so
    many ``frames``, up to ``max_batch`` of them in a step, 1 where it is left out. The devices of a
    replica (``parallel.cp`` of the pool) share out the tokens of a transformer.
    """

    name: ClassVar[str] = "denoise"

    def work(self, stage: StageContext) -> NetworkPasses:
        config, (height, width) = _network(stage, "FluxTransformer2DModel", "num_layers = 19")
        field, kind = f"pools.{stage.pool[0]}.model", class_in(config)
        table, gpus = stage.table, _devices(stage)
        if table.frames > 1 and kind != video_transformer.CLASS:
            raise stage.error(f"{kind} makes images", "frames", video_transformer.CLASS)
        if gpus > 1 and kind == denoising_unet.CLASS:
            raise unmodelled(
                f"a {kind} on {gpus} devices",
                f"pools.{stage.pool[0]}.parallel.cp",
                "one device a replica; count = N serves N at once",
            )
        network: DenoisingUNet | VideoTransformer | DiffusionTransformer
        heads = gpus
        if kind == denoising_unet.CLASS:
            network = unet = denoising_unet.unet_of(config, field)
            side = unet.latent(height, width)
            tokens = side[0] * side[1]

            def run(inputs: int, *, fused: bool) -> Graph:  # noqa: ARG001
                return unet.graph(inputs, side, "bf16", cached=table.cached)
        else:
            transformer: VideoTransformer | DiffusionTransformer
            if kind == video_transformer.CLASS:
                transformer = video_transformer.wan_of(config, field)
                tokens = transformer.video_tokens(table.frames, height, width)
            else:
                transformer = transformer_of(config, field)
                tokens = transformer.image_tokens(height, width)
            network, heads = transformer, transformer.heads

            def run(inputs: int, *, fused: bool) -> Graph:
                return transformer.graph(
                    inputs, tokens, "bf16", fused=fused, cached=table.cached, gpus=gpus
                )

        if heads % gpus:
            raise SilicastError(
                f"{gpus} devices do not share out {heads} heads",
                field=f"pools.{stage.pool[0]}.parallel.cp",
                hint=f"a divisor of {heads}",
            )
        guided = network.guided if table.guidance is None else table.guidance

        def graph(images: int, *, fused: bool) -> Graph:
            return run(2 * images if guided else images, fused=fused)

        remark = f"{stage.name}: diffusion networks were not measured step by step"
        if kind == video_transformer.CLASS and table.frames == 1:
            remark += f"; {stage.field}.frames = 1: a video of one frame"
        return _passes(stage, tokens, graph, remark, gpus)


def _devices(stage: StageContext) -> int:
    """Devices that share out the tokens of a pass.

    Raises:
        SilicastError: the pool states another way to share it out.
    """
    name, pool = stage.pool
    degrees = pool.parallel or ParallelTable()
    if msgspec.structs.replace(degrees, cp=1) != ParallelTable():
        raise unmodelled(
            "a diffusion network is shared out by its tokens alone",
            f"pools.{name}.parallel",
            "cp = N (Ulysses), or count = N replicas",
        )
    return degrees.cp


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
    if height % PIXELS or width % PIXELS:
        raise stage.error(
            f"{height} x {width} pixels are no whole latents",
            "resolution",
            f"[height, width], multiples of {PIXELS}",
        )
    config = stage.of_pool("graph").raw.model
    if not isinstance(config, dict):
        raise stage.error(
            "expected the configuration of a diffusion network as model of its pool",
            "pool",
            f"model = {{architectures = ['{kind}'], {size}, ...}}",
        )
    return config, (height, width)


def _passes(
    stage: StageContext, tokens: int, graph: Callable[..., Graph], remark: str, gpus: int = 1
) -> NetworkPasses:
    """Passes of a network that was not measured alone, over the stage's images."""
    if tokens > MOST_PLACES:
        raise stage.error(
            f"{tokens:,} tokens of one image or video, at most {MOST_PLACES:,} are predicted",
            "resolution",
            "[height, width] in pixels, smaller, or fewer frames",
        )
    machine, warnings = machine_of(stage.of_pool("graph"))
    copies, each, jobs = in_jobs(stage.table.items, stage.table.max_batch or 1)
    constants, fused = workflow_constants(), machine.engine.compiles
    measured, board = constants.diffusion, machine.device.structure is None and not machine.in_line
    remarks = [*(f"{stage.name}: {text}" for text in warnings), remark]
    if board and not fused:
        host = replace(machine.host, factor=machine.host.factor * measured.host_factor)
        machine = replace(machine, host=host)
    if board:
        launches = f", and its host is {measured.host_factor:.3g} times as quick"
        remarks.append(
            f"{stage.name}: the device takes {measured.slower:.3g} times as long as its kernels "
            f"and draws {measured.power:.3g} times as much beyond waiting, at most its limit"
            f"{'' if fused else launches}, as three measured eager pipelines do (A100, H100)"
        )

    def passes(batch: int, _: int) -> ProgramPass:
        alone = predict_program(machine, graph(batch * each, fused=fused))
        return _slowed(alone, measured.slower) if board else alone

    return NetworkPasses(
        machine,
        tokens,
        passes,
        jobs,
        copies,
        log_sd=constants.passes.log_sd_alone,
        gpus=gpus,
        more_power=measured.power if board else 1.0,
        warnings=tuple(remarks),
    )


def _slowed(program_pass: ProgramPass, slower: float) -> ProgramPass:
    """A pass whose kernels take so many times as long; launches that the device waited for hide in
    what is more.
    """
    times = program_pass.times
    more_s = times.device_s * (slower - 1.0)
    left = np.maximum(1.0 - more_s / np.maximum(times.waited_s, 1e-30), 0.0)
    slow = replace(times, exposed_s=times.exposed_s * slower, waits_s=times.waits_s * left)
    return replace(program_pass, times=slow)
