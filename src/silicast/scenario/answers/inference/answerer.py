"""Task ``inference``: one static batch of a whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, final

import msgspec
from msgspec import Struct

from silicast.composition.memory.memory_advice import (
    largest_batch,
    largest_padded_batch,
    longest_prompt,
)
from silicast.composition.passes.deployment import Deployment, busiest_group
from silicast.composition.passes.static_batch import (
    MAX_EVALUATED_STEPS,
    StaticBatch,
    gigabytes,
    predict_static_batch,
    steps_together,
)
from silicast.composition.power.energy import work_energy
from silicast.core.errors import SilicastError, unsupported
from silicast.core.prediction import Prediction, Quantity, Tier
from silicast.kernels.physics.formats import UNMEASURED_CACHE, unmeasured_cache
from silicast.kernels.physics.measured_range import not_measured, unknown_cap
from silicast.scenario.answer import (
    Answer,
    Belief,
    answer,
    coverage_of,
    latency_of,
    uncertainty_of,
    why_tree,
)
from silicast.scenario.answerer import Answerer, refuse_unmodelled, register
from silicast.scenario.decode import Scenario
from silicast.scenario.reading.boards import is_board
from silicast.scenario.reading.limits import MAX_STATIC_BATCH
from silicast.scenario.reading.usual_lengths import generated
from silicast.scenario.resolving.deployments import deployment_of, description, framework_of
from silicast.scenario.resolving.measured import calibrated_by
from silicast.scenario.road import FIELDS, not_yet_of
from silicast.scenario.workloads import InferenceWorkload
from silicast.serving.capacity.room import Room, room_of, room_under
from silicast.serving.simulation.launch import Expected
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.weight_mix import scheme_named

if TYPE_CHECKING:
    from silicast.composition.memory.memory import MemoryUse
    from silicast.composition.passes.static_batch import BatchSteps
    from silicast.composition.timeline.trace_events import PredictedTimeline
    from silicast.serving.simulation.drafted_batch import DraftedBatch
    from silicast.serving.simulation.drafting import Drafting
    from silicast.workload.frameworks.eager import Framework


Batch = TypeVar("Batch")
HOUR_S = 3600.0
MILLION = 1e6
STAGES = (
    "the prefill passes one stage after the other; {} works on pieces of the prompts in all {} at "
    "once, and takes less: silicast serve --concurrency N simulates that"
)
UPPER = (
    "{} has all {} devices work at once on pieces of a batch of prompts; infer and serve let the "
    "batch pass one device after the other: times of prompts are upper ends"
)


def figures_of(
    static_batch: StaticBatch,
    deployment: Deployment,
    sequences: int,
    output_len: int,
    price_per_gpu_hour: float | None = None,
) -> dict[str, Quantity]:
    """Metrics of the whole batch, all devices of the deployment together where the name says
    nothing else.

    Models that generate nothing are counted in sequences, others in output tokens.

    Args:
        price_per_gpu_hour: None = not stated, and no cost.
    """
    devices, time_s = deployment.plan.gpus, static_batch.total.latency_s
    unit, units = ("output_token", sequences * output_len)
    if not deployment.model.causal and output_len == 1:
        unit, units = ("sequence", sequences)
    metrics = dict(_rates(f"{unit}s", units, time_s, devices))
    energy = work_energy(
        deployment.machine, time_s, static_batch.kernels_j() / deployment.plan.pp, devices
    )
    if energy is not None:
        metrics["energy_j"], metrics["power_w"] = energy.energy_j, energy.power_w
        metrics[f"energy_per_{unit}_j"] = energy.energy_j.times(1.0 / units)
    if price_per_gpu_hour is not None:
        rate = metrics[f"{unit}s_per_s"]
        metrics[f"cost_per_million_{unit}s"] = cost_per_million(rate, devices, price_per_gpu_hour)
    return metrics


def cost_per_million(
    rate_per_s: Quantity | Belief, devices: int, price_per_gpu_hour: float
) -> Quantity:
    """What a million of what comes at a rate costs, in the currency of the price.

    >>> cost_per_million(Quantity.exact(1000.0), 4, 9.0).estimate
    10.0
    """
    whole = price_per_gpu_hour * devices / HOUR_S * MILLION
    return Quantity(whole / rate_per_s.estimate, whole / rate_per_s.p95, whole / rate_per_s.p05)


def _rates(name: str, units: int, time_s: Quantity, devices: int) -> Iterator[tuple[str, Quantity]]:
    rate = Quantity(units / time_s.estimate, units / time_s.p95, units / time_s.p05)
    yield f"{name}_per_s", rate
    yield f"{name}_per_s_per_gpu", rate.times(1.0 / devices)


def batch_room(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    framework: Framework | None = None,
    drafting: Drafting | None = None,
) -> dict[str, Any]:
    """The largest batch of those that are answered, how many sequences a server keeps at once and
    the longest context, for sequences as long as the longest; without a server where the engine is
    none and for models that generate nothing. Empty where not even the weights fit.
    """
    prompt = max(input_lens)
    if framework is not None or not deployment.model.causal or deployment.engine.serving is None:
        if framework is None:
            batch = largest_batch(deployment, prompt, output_len)
        else:
            batch = largest_padded_batch(deployment, prompt, output_len, framework)
        batch = min(batch, MAX_STATIC_BATCH)
        tokens = longest_prompt(deployment, output_len, framework)
        generated = output_len - 1 if deployment.model.encoder is None else 0
        return {"batch": batch, "context_tokens": tokens + generated} if batch else {}
    beside = (0, 0)
    try:
        if drafting is None:
            room = room_of(deployment, prompt, output_len)
        else:
            from silicast.serving.simulation.deploy import replica_spec
            from silicast.serving.simulation.drafted_batch import drafter_bytes
            from silicast.serving.simulation.drafting import drafted

            longest = prompt + output_len
            spec = replica_spec(deployment, Expected(prompt, 0, longest))
            spec = drafted(spec, deployment, drafting)
            room = room_under(spec.limits, spec.layout, deployment, longest)
            beside = drafter_bytes(drafting, [prompt], output_len)
    except SilicastError:
        return {}
    batch = min(largest_batch(deployment, prompt, output_len, beside), MAX_STATIC_BATCH)
    return {"batch": batch, **served_room(room)}


def served_room(room: Room) -> dict[str, Any]:
    """How many more requests a server has room for, and how long one may be."""
    return {
        "concurrency": room.sequences,
        "concurrency_limited_by": room.by,
        "context_tokens": room.context_tokens,
    }


MILLI = 1e3
MOST_LENGTHS = 1 << 17
"""Sequences of all states that are evaluated together."""


@register
@final
class InferenceAnswerer(Answerer):
    """Metrics: ``prefill_ms``, ``decode_step_ms`` (median step), ``total_ms``, ``memory_gb``, and
    what :mod:`~silicast.scenario.answers.inference.answerer` makes of them.
    """

    task: ClassVar[str] = "inference"

    def answer(self, scenario: Scenario) -> Answer:
        if is_board(scenario.raw.device):
            from silicast.scenario.resolving.board_network import board_answer

            return board_answer(scenario)
        return _answered(_prepared(scenario))

    def answer_many(self, scenarios: Sequence[Scenario]) -> list[Answer | SilicastError]:
        """See :class:`~silicast.scenario.answerer.Answerer`: batches of one deployment are
        evaluated together.
        """
        table: dict[int, Answer | SilicastError] = {}
        groups: dict[Deployment, list[tuple[int, _ResolvedBatch]]] = {}
        deployments: _Known = {}
        for index, scenario in enumerate(scenarios):
            try:
                if is_board(scenario.raw.device) or scenario.raw.speculative is not None:
                    table[index] = self.answer(scenario)
                    continue
                resolved = _prepared(scenario, deployments)
            except SilicastError as error:
                table[index] = error
                continue
            groups.setdefault(resolved.deployment, []).append((index, resolved))
        for group in groups.values():
            for part in parts_of(group, _states_of):
                steps = _steps_of([resolved for _, resolved in part])
                for (index, resolved), each in zip(part, steps, strict=True):
                    try:
                        table[index] = _answered(resolved, each)
                    except SilicastError as error:
                        table[index] = error
        return [table[index] for index in range(len(scenarios))]

    def trace(self, scenario: Scenario) -> PredictedTimeline:
        """See :class:`~silicast.scenario.answerer.Answerer`: prefill and the first decode steps."""
        from silicast.composition.timeline.trace_events import trace_static_batch

        refuse_unmodelled(scenario, "speculative")
        work = scenario.workload
        assert isinstance(work, InferenceWorkload)
        deployment, framework, _ = batch_deployment(scenario)
        lengths, cached = lengths_of(work), cached_of(work, deployment.model, framework)
        return trace_static_batch(
            deployment, lengths, work.output_len, framework=framework, cached=cached
        )


@final
class _ResolvedBatch(Struct, frozen=True):
    """A scenario, what runs it, and what must be known of that."""

    scenario: Scenario
    work: InferenceWorkload
    deployment: Deployment
    framework: Framework | None
    lengths: list[int]
    cached: int
    warnings: list[str]


_Steps = tuple["BatchSteps", "BatchSteps"]


_Known = dict[tuple[bytes, str], tuple[Deployment, list[str]]]
"""Deployments of scenarios and their warnings, by all that those state beside workload and id."""


def _prepared(scenario: Scenario, deployments: _Known | None = None) -> _ResolvedBatch:
    work = scenario.workload
    assert isinstance(work, InferenceWorkload)
    deployment, framework, warnings = batch_deployment(scenario, deployments)
    lengths = lengths_of(work)
    check_generates(deployment.model, work)
    cached = cached_of(work, deployment.model, framework)
    warnings += _too_long(deployment.model, cached + max(lengths), work.output_len)
    return _ResolvedBatch(scenario, work, deployment, framework, lengths, cached, warnings)


def _answered(resolved: _ResolvedBatch, steps: _Steps | None = None) -> Answer:
    """The answer; ``steps``: those of its batch, if they are known."""
    deployment, lengths, warnings = resolved.deployment, resolved.lengths, list(resolved.warnings)
    drafted, drafting = _drafted(resolved), None
    if drafted is None:
        static_batch = predict_static_batch(
            deployment,
            lengths,
            resolved.work.output_len,
            resolved.framework,
            steps,
            resolved.cached,
        )
    else:
        batch, drafting, remarks = drafted
        static_batch, warnings = batch.whole, [*warnings, *remarks]
    near = any(steps.model.kernels_domain != "in" for steps in static_batch.steps)
    if near and deployment.device.structure is None:  # else its models say so
        warnings.append(not_measured(deployment.device))
    bound_only = resolved.scenario.raw.tier == "bound"
    figures = {}
    if not bound_only:
        cluster = resolved.scenario.raw.cluster
        price = deployment.machine.links.price_per_gpu_hour if cluster else None
        figures = figures_of(
            static_batch, deployment, len(lengths), resolved.work.output_len, price
        )
    group = sum(busiest_group(lengths, deployment.plan.attention_dp))
    step_tokens = deployment.policy.chunk_tokens
    stages = deployment.plan.pp
    if stages > 1 and 0 < step_tokens < group and deployment.engine.serving is not None:
        parallel = deployment.engine.parallel
        if not parallel.rows:
            remark = UPPER if parallel.one_batch else STAGES
            warnings.append(remark.format(deployment.engine.name, stages))
    reply = _answer(static_batch, deployment, warnings, figures, bound_only=bound_only)
    if 0 < step_tokens < group and not deployment.engine.memory.cuts_static_batches:
        reply.why["one_pass"] = {"tokens": group, "step_tokens": step_tokens}
    held = [resolved.cached + length for length in lengths]
    if drafted is not None:
        reply.why["speculation"] = drafted[0].why
    if room := batch_room(deployment, held, resolved.work.output_len, resolved.framework, drafting):
        reply.why["room"] = room
    if deployment.model.moe is not None or deployment.plan.attention_dp > 1:
        from silicast.composition.passes.deployment import imbalance

        if waited := imbalance(deployment, lengths):
            reply.why["imbalance"] = waited
    return reply


def _drafted(resolved: _ResolvedBatch) -> tuple[DraftedBatch, Drafting, list[str]] | None:
    """The batch with drafts, where the scenario asks for them, who drafts, and what was assumed.

    Raises:
        SilicastError: nothing is decoded, or what runs it drafts nothing.
    """
    if resolved.scenario.raw.speculative is None:
        return None
    model, plan = resolved.deployment.model, resolved.deployment.plan
    problem, hint = "", "leave it out"
    if resolved.framework is not None:
        problem = (
            f"{resolved.deployment.engine.name} runs the model's own code, which drafts nothing"
        )
    elif not model.causal or model.encoder is not None or resolved.work.output_len == 1:
        problem, hint = "nothing is decoded", "leave it out, or state workload.output_len"
    if problem:
        raise unsupported(problem, "speculative", hint)
    if plan.attention_dp > 1:
        raise not_yet_of(FIELDS["speculative"], "speculative")
    from silicast.scenario.resolving.speculation import drafting_of
    from silicast.serving.simulation.drafted_batch import predict_drafted_batch

    drafting, remarks = drafting_of(resolved.scenario, resolved.deployment)
    assert drafting is not None
    lengths, output_len = resolved.lengths, resolved.work.output_len
    batch = predict_drafted_batch(
        resolved.deployment, drafting, lengths, output_len, resolved.cached
    )
    return batch, drafting, remarks


def states_of(sequences: int, output_len: int) -> int:
    """Lengths of the sequences of all states that are evaluated of a batch."""
    return sequences * (1 + min(output_len, MAX_EVALUATED_STEPS))


def parts_of(group: Sequence[Batch], size_of: Callable[[Batch], int]) -> Iterator[list[Batch]]:
    """Batches cut so that their states hold at most :data:`MOST_LENGTHS` sequences together."""
    part: list[Batch] = []
    size = 0
    for each in group:
        lengths = size_of(each)
        if part and size + lengths > MOST_LENGTHS:
            yield part
            part, size = [], 0
        part.append(each)
        size += lengths
    if part:
        yield part


def _states_of(pair: tuple[int, _ResolvedBatch]) -> int:
    return states_of(len(pair[1].lengths), pair[1].work.output_len)


def _steps_of(part: Sequence[_ResolvedBatch]) -> Sequence[_Steps | None]:
    """The steps of batches of one deployment; None where each must find its own."""
    if len(part) == 1 or part[0].framework is not None:
        return [None] * len(part)
    batches = [(resolved.lengths, resolved.work.output_len) for resolved in part]
    try:
        return steps_together(part[0].deployment, batches, [resolved.cached for resolved in part])
    except SilicastError:  # each says what is wrong
        return [None] * len(part)


def check_generates(model: ModelConfig, work: InferenceWorkload) -> None:
    """Raises SilicastError where a model that generates nothing is asked for tokens."""
    if not model.causal and work.output_len > 1:
        raise SilicastError(
            f"{model.name} is an encoder and generates no tokens",
            field="workload.output_len",
            hint="1 = the pass over the input alone",
        )


def lengths_of(work: InferenceWorkload) -> list[int]:
    """Tokens of each prompt."""
    return work.input_lens or [work.input_len or 1] * (work.batch or 1)


def cached_of(
    work: InferenceWorkload, model: ModelConfig, framework: Framework | None = None
) -> int:
    """Tokens of each sequence before its prompt.

    Raises:
        SilicastError: the model keeps no such cache, or a framework runs its code.
    """
    cached = work.cached_len or 0
    if not cached or (model.causal and model.encoder is None and framework is None):
        return cached
    raise unsupported(
        f"{model.name} keeps no cache of earlier tokens here",
        "workload.cached_len",
        "leave it out; a decoder under an engine of kind serving has one",
    )


def batch_deployment(
    scenario: Scenario, deployments: _Known | None = None
) -> tuple[Deployment, Framework | None, list[str]]:
    """What runs a static batch, how a framework runs the model's code if one does, and what was
    assumed.

    Args:
        deployments: of the scenarios before it; that of this one is added.
    """
    deployments = {} if deployments is None else deployments
    bare = msgspec.structs.replace(scenario.raw, speculative=None)
    alone = msgspec.structs.replace(bare, id=None, workload=None)
    key = msgspec.json.encode(alone), str(scenario.folder)
    if key not in deployments:
        plain = msgspec.structs.replace(scenario, raw=bare)
        deployments[key] = deployment_of(plain, options=("attention",))
    deployment, warnings = deployments[key]
    if deployment.engine.kind != "framework":
        return deployment, None, list(warnings)
    framework, framework_warnings = framework_of(scenario, deployment.engine)
    work = scenario.workload
    assert isinstance(work, InferenceWorkload)
    if len(set(lengths_of(work))) > 1:
        framework_warnings.append(f"{deployment.engine.name} pads all prompts to the longest")
    return deployment, framework, [*framework_warnings, *warnings]


def _too_long(model: ModelConfig, prompt: int, output: int) -> list[str]:
    """A warning where the longest sequence exceeds what the model was made for."""
    out = generated(model, output)
    if not 0 < model.max_positions < prompt + out:
        return []
    longest = f"{model.name} is made for at most {model.max_positions}{' together' * bool(out)}"
    tokens = f"{prompt} tokens in and {out} out" if out else f"{prompt} tokens in"
    return [f"{tokens}: {longest}"]


def _answer(
    static_batch: StaticBatch,
    deployment: Deployment,
    warnings: list[str],
    figures: Mapping[str, Quantity],
    *,
    bound_only: bool,
) -> Answer:
    metrics: dict[str, Quantity] = {}
    bound: dict[str, float] = {}
    for name, prediction in _predictions(static_batch).items():
        metrics[name] = latency_of(prediction, bound_only=bound_only).times(MILLI)
        bound[name] = prediction.bound_seconds * MILLI
    metrics["memory_gb"], remarks = memory_gb(static_batch.memory, deployment)
    warnings = [*warnings, *remarks]
    metrics |= figures
    domain = static_batch.total.domain
    if domain == "in" and unknown_cap(deployment.device):
        domain = "near"
    if stored := unmeasured_cache(deployment.precision.kv_cache):
        domain = "near" if domain == "in" else domain
        warnings = [*warnings, UNMEASURED_CACHE.format(stored)]
    tier: Tier = "bound" if bound_only else static_batch.total.tier
    return answer(
        metrics=metrics,
        bound=bound,
        tier=tier,
        domain=domain,
        warnings=[*static_batch.total.warnings, *warnings],
        why=_why(static_batch, deployment),
    )


def memory_gb(memory: MemoryUse, deployment: Deployment) -> tuple[Quantity, list[str]]:
    """What a batch takes, GB, with all that is unsure about it, and remarks."""
    size = gigabytes(memory)
    if deployment.model.assumed:
        from silicast.composition.errors.uncertainty import with_assumed_structure

        size = with_assumed_structure(size)
    return by_names(size, memory.weights, deployment)


BY_NAME = (
    "weights by the usual rules of {0}: publishers' files of that name take {1} % less to "
    "{2} % more (--model FILE.gguf reads one)"
)


def by_names(
    memory: Quantity, weight_bytes: int, deployment: Deployment
) -> tuple[Quantity, list[str]]:
    """Memory, wider where weights are known by the name of a mix alone, which others make anew, and
    a remark then.
    """
    scheme, mix = deployment.engine.weight_mix, deployment.precision.mix
    if not scheme or not mix:
        return memory, []
    low, high = scheme_named(scheme).size_spread(mix)
    if low == high:
        return memory, []
    weights = weight_bytes / 1e9
    least, most = memory.p05 - (1.0 - low) * weights, memory.p95 + (high - 1.0) * weights
    remark = BY_NAME.format(mix, round(100 * (1.0 - low)), round(100 * (high - 1.0)))
    return Quantity(memory.estimate, least, most), [remark]


def _predictions(static_batch: StaticBatch) -> dict[str, Prediction]:
    """Metric -> its prediction; without decode steps where nothing is decoded."""
    named = {
        "prefill_ms": static_batch.prefill,
        "decode_step_ms": static_batch.decode_step,
        "total_ms": static_batch.total,
    }
    return {name: prediction for name, prediction in named.items() if prediction is not None}


def _why(result: StaticBatch, deployment: Deployment) -> dict[str, Any]:
    tree = why_tree(result.total.part)
    if result.decode_step is not None:
        tree["decode_step"] = why_tree(result.decode_step.part)
    tree |= coverage_of(*((each, 1.0) for each in result.tier_seconds()))
    tree["uncertainty"] = uncertainty_of(_predictions(result))
    tree["clock_mhz"] = {"prefill": result.clock_hz[0] / 1e6}
    if result.decode_step is not None:
        tree["clock_mhz"]["decode"] = result.clock_hz[1] / 1e6
    memory = result.memory
    tree["memory_gb"] = {
        name: getattr(memory, name) / 1e9
        for name in ("weights", "kv_cache", "activations", "framework", "usable", "excess")
    }
    if memory.host_weights:
        for name in ("host_weights", "host_kv_cache"):
            tree["memory_gb"][name] = getattr(memory, name) / 1e9
    if deployment.model.assumed:
        tree["assumed_of_model"] = list(deployment.model.assumed)
    ops = (node.op for steps in result.steps for node in steps.model.graph.nodes)
    tree |= calibrated_by(deployment.machine.evidence, ops, deployment.engine, "inference")
    tree["deployment"] = description(
        deployment.machine, deployment.model.name, deployment.plan.gpus, deployment.precision.label
    )
    return tree
