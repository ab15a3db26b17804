"""Language models on users' own devices: llama-bench and MLX, by back end, on devices held out."""

from __future__ import annotations

from lab.scorecard.local_runs import TABLE, answered, settled
from lab.scorecard.model_suite import Metric, RunsScore
from lab.scorecard.suite import Suite

BACKENDS = ("cuda", "metal", "vulkan", "rocm", "mlx")


def _metrics() -> list[Metric]:
    metrics = []
    for backend in BACKENDS:
        where = {"backend": backend, "half": "held out", "host": "usual", "kernels": "own"}
        where["layers"] = "on the device"
        metrics.append(Metric(f"generation_{backend}_ms", "decode_step_ms", where))
        metrics.append(Metric(f"prompt_{backend}_ms", "prefill_ms", where))
    arm = {"host": "arm"}
    partly = {"layers": "partly on the CPU"}
    return [
        *metrics,
        Metric("generation_partly_on_cpu_ms", "decode_step_ms", partly),
        Metric("prompt_partly_on_cpu_ms", "prefill_ms", partly),
        Metric("generation_arm_host_ms", "decode_step_ms", arm),
        Metric("weights_gb"),
    ]


SUITES = (
    Suite(
        "local-models",
        (TABLE,),
        RunsScore(
            lambda data: list(settled(data)),
            _metrics(),
            answer=answered,
            hidden=("half", "host", "kernels", "layers"),
        ),
    ),
)
