"""Speech into tokens, by an encoder in front of a language model."""

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
from silicast.scenario.resolving.deployments import machine_of
from silicast.workload.networks.audio_encoder import encoder_of
from silicast.workload.networks.vector_index import workflow_constants

MOST = 8
"""Recordings of a pass where the stage states no ``max_batch``."""


@register
@final
class EncodeAudio(StageWork):
    """``items`` recordings of ``audio_s`` seconds, up to ``max_batch`` in a pass."""

    name: ClassVar[str] = "encode_audio"

    def work(self, stage: StageContext) -> NetworkPasses:
        seconds = stage.table.audio_s
        if seconds is None:
            raise stage.error("is missing", "audio_s", "seconds of a recording")
        config = stage.of_pool("graph").raw.model
        if not isinstance(config, dict):
            raise stage.error(
                "expected the configuration of an audio encoder as model of its pool",
                "pool",
                "model = {architectures = ['WhisperModel'], encoder_layers = 32, ...}",
            )
        encoder = encoder_of(config, f"pools.{stage.pool[0]}.model")
        windows = encoder.windows(seconds)
        machine, warnings = machine_of(stage.of_pool("graph"))
        most = stage.table.max_batch or MOST
        copies, each, jobs = in_jobs(stage.table.items, most)

        def passes(batch: int, _: int) -> ProgramPass:
            return predict_program(machine, encoder.graph(batch * each * windows, "bf16"))

        remarks = [f"{stage.name}: the audio encoder alone was not measured"]
        if stage.table.max_batch is None:
            remarks.append(f"{stage.name}: up to {most} recordings run in a pass (max_batch)")
        return NetworkPasses(
            machine,
            windows * encoder.tokens,
            passes,
            jobs,
            copies,
            log_sd=workflow_constants().passes.log_sd_alone,
            result_bytes=encoder.bytes_of(windows * each),
            warnings=(*(f"{stage.name}: {text}" for text in warnings), *remarks),
        )
