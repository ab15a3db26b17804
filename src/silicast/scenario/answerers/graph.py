"""Task ``graph``: one forward pass of a whole model in a plain framework."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, cast, final, get_args

from silicast.composition.deployment import Deployment
from silicast.composition.engine import Engine
from silicast.composition.forward import ForwardPass, predict_forward
from silicast.composition.program_pass import predict_program
from silicast.composition.trace_events import Trace
from silicast.composition.training_step import unmeasured_backward, update_graph, with_update
from silicast.core.errors import SilicastError
from silicast.core.prediction import Tier
from silicast.scenario.answer import Answer, answer, latency_of, why_tree
from silicast.scenario.answerer import Answerer, register
from silicast.scenario.answerers.inference import deployment_of
from silicast.scenario.decode import Scenario
from silicast.scenario.measured import calibrated_by
from silicast.scenario.program_answer import answer_program, program_of
from silicast.scenario.uncertainty import uncertainty_of
from silicast.scenario.update_rule import update_rule
from silicast.scenario.workloads import GraphWorkload
from silicast.workload.backward import Training
from silicast.workload.eager import AttentionCode, Framework

FRAMEWORK_OPTIONS = ("attention", "autocast")
AUTOCAST = ("bf16", "fp16")
MILLI = 1e3


@register
@final
class GraphAnswerer(Answerer):
    """Metrics: ``e2e_ms``, ``forward_ms``, ``backward_ms`` of a pass that trains: one pass over
    ``batch`` x ``seq_len`` tokens, logits of all of them. The engine says whether the framework
    compiles; its option ``attention`` is "math" (products and softmax one by one, as with
    ``attn_implementation="eager"``) or "fused"; its option ``autocast`` is the format of products
    under automatic mixed precision.
    """

    task: ClassVar[str] = "graph"

    def answer(self, scenario: Scenario) -> Answer:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        work = scenario.workload
        assert isinstance(work, GraphWorkload)
        if work.graph is not None:
            return answer_program(scenario)
        found, deployment, warnings = pass_of(scenario, work)
        return _answer(found, deployment, warnings, bound_only=scenario.raw.tier == "bound")

    def trace(self, scenario: Scenario) -> Trace:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        from silicast.composition.pass_trace import trace_pass
        from silicast.composition.program_trace import trace_program

        work = scenario.workload
        assert isinstance(work, GraphWorkload)
        if work.graph is not None:
            return trace_program(program_of(scenario))
        return trace_pass(pass_of(scenario, work)[0])


def pass_of(scenario: Scenario, work: GraphWorkload) -> tuple[ForwardPass, Deployment, list[str]]:
    """The pass, what runs it, and what was assumed."""
    deployment, warnings = deployment_of(scenario, options=FRAMEWORK_OPTIONS)
    framework, said = framework_of(scenario, deployment.engine)
    framework = replace(framework, autocast=_autocast(scenario, deployment))
    trains = work.mode == "training"
    if work.optimizer is not None and not trains:
        raise SilicastError("an optimizer in a pass without training", field="workload.optimizer")
    if trains:
        framework = replace(framework, training=Training())
    found = predict_forward(deployment, work.batch or 1, work.seq_len or 1, framework)
    if trains:
        found = _trained(found, deployment, work.optimizer, framework.autocast)
    return found, deployment, [*said, *warnings]


def _autocast(scenario: Scenario, deployment: Deployment) -> str:
    """The format of products under automatic mixed precision; "" = none."""
    stated = scenario.engine.options.get("autocast") if scenario.engine is not None else None
    if stated is None:
        return ""
    if stated not in AUTOCAST:
        raise SilicastError(
            f"expected one of {', '.join(AUTOCAST)}, found {str(stated)[:40]!r}",
            field="engine.options.autocast",
        )
    precision = deployment.precision or deployment.model.default_precision
    if precision.hidden != "fp32":
        raise SilicastError(
            f"the weights are {precision.hidden} already",
            field="engine.options.autocast",
            hint='weights = "fp32" in [precision], or leave autocast out',
        )
    return str(stated)


def _trained(
    found: ForwardPass, deployment: Deployment, optimizer: str | None, autocast: str
) -> ForwardPass:
    """With the optimizer, if one is named, and what is not known of backward kernels."""
    precision = deployment.precision or deployment.model.default_precision
    products = autocast or precision.hidden
    total, backward = found.total, found.backward
    if optimizer is not None:
        update = predict_program(
            deployment.machine, update_graph(deployment, update_rule(optimizer))
        )
        total = with_update(total, update.total, "e2e")
    total = unmeasured_backward(total, products)
    if backward is not None:
        backward = unmeasured_backward(backward, products)
    return replace(found, total=total, backward=backward)


def framework_of(scenario: Scenario, engine: Engine) -> tuple[Framework, list[str]]:
    """How the engine runs the model's code, and what was assumed about it."""
    stated = scenario.engine.options.get("attention") if scenario.engine is not None else None
    if stated is not None and stated not in get_args(AttentionCode):
        raise SilicastError(
            f"expected one of {', '.join(get_args(AttentionCode))}, found {str(stated)[:40]!r}",
            field="engine.options.attention",
        )
    if engine.kind != "framework":
        said = f"{engine.name} serves: its kernels run here in one pass with logits of all tokens"
        return Framework(compiled=True, attention="fused"), [said]
    attention = cast("AttentionCode", stated or "math")
    said = "attention is taken as products and softmax one by one (engine.options.attention)"
    return Framework(engine.compiles, attention), [] if stated else [said]


def _answer(
    found: ForwardPass, deployment: Deployment, warnings: list[str], *, bound_only: bool
) -> Answer:
    named = {"e2e_ms": found.total, "forward_ms": found.forward}
    if found.backward is not None:
        named["backward_ms"] = found.backward
    tier: Tier = "bound" if bound_only else found.total.tier
    return answer(
        metrics={
            name: latency_of(prediction, bound_only=bound_only).times(MILLI)
            for name, prediction in named.items()
        },
        bound={name: prediction.bound_seconds * MILLI for name, prediction in named.items()},
        tier=tier,
        domain=found.total.domain,
        warnings=[*found.total.warnings, *warnings],
        why=_why(found, deployment),
    )


def _why(found: ForwardPass, deployment: Deployment) -> dict[str, Any]:
    precision = deployment.precision or deployment.model.default_precision
    return {
        **why_tree(found.total.part),
        "uncertainty": uncertainty_of({"e2e_ms": found.total}),
        "clock_mhz": found.clock_hz / 1e6,
        **calibrated_by(
            deployment.evidence,
            [placed.op for half in found.halves for placed in half.model.placed],
            deployment.engine,
            "graph training" if found.backward is not None else "graph",
        ),
        "deployment": {
            "model": deployment.model.name,
            "device": deployment.device.name,
            "devices": deployment.plan.gpus,
            "largest_clock_mhz": deployment.device.clocks.max_hz / 1e6,
            "engine": f"{deployment.engine.name} {deployment.engine.version}".strip(),
            "format": precision.label,
        },
    }
