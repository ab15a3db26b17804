"""A training scenario carried out: its step, what runs it, and what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final, get_args

from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import ProgramPass
from silicast.composition.passes.training_step import (
    LEAST_FIRST,
    Batch,
    TrainingStep,
    model_flops,
    predict_training_step,
)
from silicast.core.dtypes import RECIPES
from silicast.core.errors import SilicastError, errors_at, unknown_name
from silicast.core.prediction import Prediction
from silicast.distributed.memory.offload import Offload
from silicast.distributed.pipeline.chunk import Rank
from silicast.distributed.pipeline.stalls import Loading
from silicast.distributed.ranks.adapters import WIDE, RankAdapters
from silicast.distributed.ranks.dispersion import Dispersion
from silicast.distributed.ranks.expert_capacity import Capacity
from silicast.distributed.ranks.expert_ranks import own_tokens
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.step.partial_recompute import least_share, mixed_step
from silicast.distributed.step.reliability import experience
from silicast.distributed.step.step import (
    DistributedStep,
    Overlap,
    predict_step,
    reference_passes,
    schedule_of,
    with_reference,
)
from silicast.distributed.step.unequal_lengths import UnequalLengths
from silicast.hardware.device import Device
from silicast.kernels.experts.routing import routing_name
from silicast.kernels.physics.power import limits
from silicast.scenario.answers.training.training_lengths import (
    WITH_ADAPTERS,
    LengthsOfRun,
    held_bits,
    in_sequences,
    reference_of,
    with_lengths,
)
from silicast.scenario.answers.training.training_memory import (
    RunMemory,
    counted_on_operations,
    memory_of_many,
    memory_of_one,
    rank_memory,
)
from silicast.scenario.answers.training.training_plans import overlap_of, training_plan_of
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.deployments import deployment_of, framework_of
from silicast.scenario.resolving.named import check_names
from silicast.scenario.resolving.program_file import update_rule
from silicast.scenario.workloads import TrainingWorkload
from silicast.workload.frameworks.eager import AttentionCode, Framework
from silicast.workload.libraries.catalog import library_names
from silicast.workload.models.precision import Precision
from silicast.workload.training.backward import Training
from silicast.workload.training.recomputation import Recompute, every_layer

DEFAULT_OPTIMIZER = "adamw"
UNUSED_ADAPTERS = 'lora is not used by task {}: workload.task = "lora" trains adapters'
PREDICTING = (
    "what predicts further tokens ({} layers of {}) {}: what {} does where workload.mtp_layers is "
    "not stated"
)
PARTLY = "{:.0%} of the layers run again in the backward pass, the least that fits"
OPTIONS = ("attention", "attention_library", "context_exchange")
"""Options of engines that train."""
PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "q_proj": ("qkv", "q_b"), "k_proj": ("qkv", "kv_b"), "v_proj": ("qkv", "kv_b"),
    "o_proj": ("o",), "gate_proj": ("gate_up",), "up_proj": ("gate_up", "up"),
    "down_proj": ("down",), "qkv_proj": ("qkv",), "linear_qkv": ("qkv",), "linear_proj": ("o",),
    "linear_fc1": ("gate_up", "up"), "linear_fc2": ("down",),
}  # fmt: skip
"""A target of adapters, as Hugging Face or Megatron call it -> products of our layers."""


@final
@dataclass(frozen=True)
class TrainingRun:
    """One optimizer step.

    Attributes:
        rank: what every rank runs.
        batch: of one data rank.
        one, many: the step of one device, or of several.
        optimizer: its update rule; overlap: what of the transfers is hidden.
        warnings: what was assumed.
        again_share: of the layers, those that run again where ``recompute`` says full.
        loading: of its batches.
        frozen: what a frozen model takes before; its rank is ``reference``.
        unequal: what documents of unequal lengths make of it; ``longest``: a row of them.
    """

    rank: Rank
    batch: Batch
    optimizer: str
    one: TrainingStep | None
    many: DistributedStep | None
    overlap: Overlap
    warnings: tuple[str, ...]
    again_share: float = 1.0
    loading: Loading | None = None
    frozen: Prediction | None = None
    reference: Rank | None = None
    unequal: UnequalLengths | None = None
    longest: int = 0

    @cached_property
    def step(self) -> Prediction:
        without_loading = self.without_loading
        return without_loading if self.loading is None else self.loading.beside(without_loading)

    @property
    def without_loading(self) -> Prediction:
        """All of it, with its batches there."""
        step = self.one.step if self.one is not None else self._many.step
        step = step if self.frozen is None else with_reference(step, self.frozen)
        return step if self.unequal is None else self.unequal.beside(step)

    @property
    def weighted_passes(self) -> tuple[tuple[ProgramPass, float], ...]:
        """One micro-batch through each chunk of the model, and how often: where some of the layers
        run again, passes with all of them again and with none share it.
        """
        return ((self.one.micro, 1.0),) if self.one is not None else self._many.weighted_passes

    @property
    def clock_hz(self) -> float:
        """Held over the passes of the first chunk, by the share of the layers that run as in each
        of them.
        """
        if self.one is not None:
            return self.one.clock_hz
        many = self._many
        again = many.passes[0].clock_hz
        if not many.kept:
            return again
        return again + (1.0 - many.again_share) * (many.kept[0].clock_hz - again)

    @property
    def kernels_j(self) -> float:
        """What the kernels of a step take of a device, on average, beyond what it draws while it
        waits, joules.
        """
        update = self.one.update if self.one is not None else self._many.update
        passes = sum(often * each.kernels_j for each, often in self.weighted_passes)
        return self.batch.accumulation * passes / self.rank.plan.pp + update.kernels_j

    @property
    def _many(self) -> DistributedStep:
        assert self.many is not None
        return self.many

    @property
    def memory(self) -> RunMemory:
        if self.one is not None and counted_on_operations(self.rank):
            return memory_of_one(self.one, self.rank)
        rank = self.rank
        if self.longest > rank.seq_len * rank.micro_batch:  # the worst micro-batch
            rank = replace(rank, seq_len=self.longest, micro_batch=1)
        return memory_of_many(
            rank,
            self.batch.accumulation,
            self.optimizer,
            self.overlap.gradient_bits,
            self.again_share,
        )

    @property
    def spread(self) -> dict[str, Any]:
        """How the step is spread, for people; nothing of one device alone."""
        if self.many is None:
            return {}
        plan = self.rank.plan
        degrees = {
            name: getattr(plan, name)
            for name in ("tp", "pp", "cp", "dp", "ep", "etp", "zero", "virtual_stages")
        }
        return {
            "plan": {**degrees, "sequence_parallel": plan.sequence_parallel},
            "schedule": self.many.schedule,
            "pipeline_bubble": self.many.bubble,
            "layers_of_chunks": [last - first for first, last in self.many.bounds],
        }

    @property
    def recompute(self) -> Recompute:
        """What backward runs again."""
        training = self.rank.framework.training
        return training.recompute if training is not None else "none"

    @property
    def tokens(self) -> int:
        """Of a step, over all data ranks."""
        return self.batch.tokens * self.rank.plan.dp

    @property
    def model_flops(self) -> int:
        """Of a step on all devices, nothing counted twice; of a frozen model one forward pass."""
        model, adapters = self.rank.deployment.model, self.rank.adapters
        trained = None if adapters is None else adapters.parameters_of(model)
        each = model_flops(model, self.batch, trained)
        if self.reference is not None:
            each += model_flops(self.reference.deployment.model, self.batch) // 3
        return each * self.rank.plan.dp


@final
@dataclass(frozen=True)
class PreparedTraining:
    """What a scenario asks for, before it is predicted.

    Attributes:
        rank: what every rank runs.
        recompute: as stated; None = the least that fits.
        warnings: what was assumed; ``of_plan``: those of them that are about degrees, which a
            search chooses itself.
        again_share: of the layers, those that run again where ``recompute`` states it.
    """

    rank: Rank
    work: TrainingWorkload
    optimizer: str
    overlap: Overlap
    recompute: Recompute | None
    warnings: tuple[str, ...]
    again_share: float = 1.0
    of_plan: tuple[str, ...] = ()
    reference: Rank | None = None
    lengths: LengthsOfRun | None = None

    def run(self) -> TrainingRun:
        run = self._trained()
        count, lengths = run.batch.accumulation, self.lengths
        if self.reference is not None:
            passes = reference_passes(self.reference, count, self.overlap)
            run = replace(run, frozen=passes, reference=self.reference)
        if lengths is not None:
            unequal = lengths.unequal(run.rank.deployment.model, run.rank.plan, count)
            longest = lengths.row * lengths.micro_batch
            run = replace(run, unequal=unequal, longest=longest)
        return run

    def _trained(self) -> TrainingRun:
        """The run without a frozen model."""
        rank, work = self.rank, self.work
        share = work.global_batch // work.micro_batch // rank.plan.dp
        batch = Batch(work.seq_len, work.micro_batch, share)
        with errors_at("parallel"):
            schedule_of(rank).order(rank.plan.pp, share, rank.plan.virtual_stages)
        if rank.plain and self.again_share == 1.0:
            chosen = self.recompute
            if chosen is None and not counted_on_operations(rank):
                chosen = self._fitting(share)[0].recompute
            step = predict_training_step(
                rank.deployment, batch, self.optimizer, chosen, framework=rank.framework
            )
            return TrainingRun(
                again(rank, step.recompute),
                batch,
                self.optimizer,
                step,
                None,
                self.overlap,
                self.warnings,
                loading=self.loading,
            )
        rank, again_share = self._fitting(share)
        many = predict_step(rank, share, self.optimizer, self.overlap)
        notes = self.warnings
        if 0.0 < again_share < 1.0:
            without = predict_step(again(rank, "none"), share, self.optimizer, self.overlap)
            many = mixed_step(without, many, again_share)
            if self.recompute is None:
                notes = (*notes, PARTLY.format(again_share))
        return TrainingRun(
            rank, batch, self.optimizer, None, many, self.overlap, notes, again_share, self.loading
        )

    @property
    def loading(self) -> Loading | None:
        """Of a step's batches; None = they are there."""
        table, work = self.work.data_loading, self.work
        if table is None:
            return None
        rates = [table.seconds_per_batch, table.tokens_per_s]
        if rates.count(None) != 1:
            raise SilicastError(
                "states both seconds_per_batch and tokens_per_s"
                if None not in rates
                else "states no rate",
                field="workload.data_loading",
                hint="one of seconds_per_batch, tokens_per_s",
            )
        seconds = table.seconds_per_batch
        if seconds is None:
            assert table.tokens_per_s is not None
            seconds = work.global_batch * work.seq_len / table.tokens_per_s
        return Loading(seconds, table.overlap)

    def _fitting(self, micro_batches: int) -> tuple[Rank, float]:
        """The rank with the least recomputation that fits, or with what is stated, and the share
        of its layers that run again.
        """
        deployment, bits, plan = self.rank.deployment, self.overlap.gradient_bits, self.rank.plan
        if self.recompute is not None:
            return again(self.rank, self.recompute), self.again_share
        usable = deployment.device.dram.capacity_bytes * deployment.engine.memory.usable_fraction
        memories = []
        for each in (*LEAST_FIRST[:-1], *_modules(deployment), LEAST_FIRST[-1]):
            rank = again(self.rank, each)
            memories.append(rank_memory(rank, micro_batches, self.optimizer, bits))
            if each != "full" and memories[-1].total.max() <= usable:
                return rank, 1.0
        layers = max(deployment.model.layers // plan.pp, 1)
        return rank, min(least_share(memories[0], memories[-1], usable, layers), 1.0)


def _modules(deployment: Deployment) -> tuple[Recompute, ...]:
    """Modules that a library runs again before whole layers where there are experts: ways up from a
    latent, the experts' activation, norms (recipes of Megatron-Bridge).
    """
    model = deployment.model
    if model.moe is None or not deployment.engine.fused_layers:
        return ()
    names = ("mla_up_proj", "moe_act", "layernorm")[model.mla is None :]
    return tuple(f"selective:{'+'.join(names[:count])}" for count in range(1, len(names) + 1))


def again(rank: Rank, recompute: Recompute) -> Rank:
    """The rank with what its backward pass runs again."""
    training = rank.framework.training or Training(dropout=False)
    framework = replace(rank.framework, training=replace(training, recompute=recompute))
    return replace(rank, framework=framework)


def run_of(scenario: Scenario) -> TrainingRun:
    """Carries out a scenario.

    Raises:
        SilicastError: an unknown name, or degrees that do not fit.
    """
    work = scenario.workload
    assert isinstance(work, TrainingWorkload)
    return prepared(scenario, work).run()


def prepared(scenario: Scenario, work: TrainingWorkload) -> PreparedTraining:
    """What a scenario asks for.

    Raises:
        SilicastError: an unknown name, or degrees that contradict each other.
    """
    check_names(scenario)
    work = in_sequences(work)
    deployment, warnings = deployment_of(scenario, OPTIONS, trains=True)
    deployment, frozen_bits = _frozen(scenario, deployment, work)
    context = scenario.raw.parallel.cp
    work, lengths = with_lengths(work, scenario.raw.seed or 0, 2 * context if context > 1 else 1)
    deployment, predicting = _predicting(_routed(deployment, work), work)
    plan, of_plan = training_plan_of(scenario, deployment.model, deployment.engine)
    warnings += predicting
    warnings += of_plan + _checked(deployment, work)
    if scenario.raw.lora is not None and work.task not in WITH_ADAPTERS:
        warnings.append(UNUSED_ADAPTERS.format(work.task))
    framework, framework_warnings = _framework(scenario, deployment)
    accumulates = work.global_batch > work.micro_batch * plan.dp
    unfused = framework.attention == "math" and deployment.engine.training.dropout
    training = Training(dropout=unfused, accumulates=accumulates)
    rank = Rank(
        deployment,
        plan,
        replace(framework, training=training),
        work.seq_len,
        work.micro_batch,
        _adapters(scenario, work, frozen_bits),
        _offload(work),
        _capacity(deployment, plan, work),
    )
    reference = reference_of(scenario, work, rank)
    boards = _boards(scenario, deployment.device)
    rank = replace(rank, reference_bits=held_bits(rank, reference), boards=boards)
    return PreparedTraining(
        rank,
        work,
        update_rule(work.optimizer or DEFAULT_OPTIMIZER),
        overlap_of(work, deployment.engine, plan, deployment.model),
        *_recompute(work, tuple(warnings + framework_warnings)),
        of_plan=tuple(of_plan),
        reference=reference,
        lengths=lengths,
    )


def _recompute(
    work: TrainingWorkload, warnings: tuple[str, ...]
) -> tuple[Recompute | None, tuple[str, ...], float]:
    """What runs again, the warnings, and the share of the layers that do."""
    recompute = work.recompute
    every = every_layer(recompute) if recompute is not None else 1
    whole = recompute is not None and recompute.startswith("full")
    return ("full" if whole else recompute), warnings, 1.0 / every


def _capacity(
    deployment: Deployment, plan: TrainingPlan, work: TrainingWorkload
) -> Capacity | None:
    """What experts take at most.

    Raises:
        SilicastError: there are no experts, or padding to a capacity that is not stated.
    """
    moe, factor = deployment.model.moe, work.capacity_factor
    if factor is None:
        if work.pad_to_capacity:
            raise SilicastError(
                "means nothing without workload.capacity_factor",
                field="workload.pad_to_capacity",
                hint="state capacity_factor",
            )
        return None
    if moe is None:
        raise SilicastError(
            f"{deployment.model.name} has no experts",
            field="workload.capacity_factor",
            hint="leave it out",
        )
    tokens = own_tokens(plan, work.micro_batch * work.seq_len // plan.cp)
    return Capacity.from_routing(
        moe, moe.spread, tokens, plan.ep, factor, padded=work.pad_to_capacity
    )


def _boards(scenario: Scenario, device: Device) -> Dispersion:
    """How unlike devices are: as stated; as published, of GPUs whose clock a power limit governs;
    else alike.

    The published spread is of the clock that a power limit leaves boards of one model (Sinha et
    al., SC 2022). A clock that is held below the board's largest takes that cause away, and a TPU
    or a CPU has no such limit here. That the predicted clock lies below the largest is not asked
    for: it is that of the usual board at the mean power of a pass, while the boards that a step
    waits for reach the limit first, in its products.
    """
    cluster = scenario.raw.cluster
    log_sd = None if cluster is None else cluster.gpu_log_sd
    if log_sd is not None:
        return Dispersion(log_sd)
    held = device.clocks.max_hz < device.clocks.built_max_hz
    return experience().gpus if limits(device) and not held else Dispersion(0.0)


def _offload(work: TrainingWorkload) -> Offload:
    table = work.offload
    if table is None:
        return Offload()
    return Offload(table.activations, table.optimizer, table.weights, table.update)


def _framework(scenario: Scenario, deployment: Deployment) -> tuple[Framework, list[str]]:
    if deployment.engine.kind == "framework":
        return framework_of(scenario, deployment.engine)
    options: Mapping[str, Any] = scenario.engine.options if scenario.engine is not None else {}
    attention = options.get("attention", "fused")
    if attention not in get_args(AttentionCode):
        raise unknown_name(
            f"unknown attention {attention!r:.40}",
            "engine.options.attention",
            ", ".join(get_args(AttentionCode)),
        )
    engine = deployment.engine
    library = str(options.get("attention_library", ""))
    names = library_names().names
    if library and library not in names:
        raise unknown_name(
            f"unknown library {library!r:.40}", "engine.options.attention_library", ", ".join(names)
        )
    return Framework(
        engine.compiles,
        attention,
        fused_layers=engine.fused_layers,
        attention_library=library,
        fused_loss=engine.training.fused_loss,
        filled_results=engine.training.deterministic,
        further_passes=engine.training.further_passes,
        fused_rope=engine.training.fused_rope,
    ), []


def _routed(deployment: Deployment, work: TrainingWorkload) -> Deployment:
    """The deployment with experts as popular as the workload says; balanced if it says nothing."""
    moe, stated = deployment.model.moe, work.routing
    if moe is None:
        if stated not in (None, "balanced"):
            raise SilicastError(
                f"{deployment.model.name} has no experts",
                field="workload.routing",
                hint="leave it out",
            )
        return deployment
    routing = routing_name(stated, field="workload.routing")
    return replace(deployment, model=replace(deployment.model, moe=replace(moe, routing=routing)))


def _predicting(deployment: Deployment, work: TrainingWorkload) -> tuple[Deployment, list[str]]:
    """The deployment with the layers that predict further tokens, as stated or as the engine has
    it, and what a reader must know.

    Raises:
        SilicastError: of an encoder.
    """
    model, engine = deployment.model, deployment.engine
    usual = model.mtp_layers if engine.training.predicts and work.task == "pretrain" else 0
    count = usual if work.mtp_layers is None else work.mtp_layers
    if count and (model.encoder is not None or model.pooler):
        raise SilicastError(
            f"{model.name} does not predict the next token of a text",
            field="workload.mtp_layers",
            hint="leave it out",
        )
    deployment = replace(deployment, model=replace(model, predicts=count))
    if work.mtp_layers is not None or not model.mtp_layers:
        return deployment, []
    does = "is trained" if count else "is not trained"
    return deployment, [PREDICTING.format(model.mtp_layers, model.name, does, engine.name)]


def _frozen(
    scenario: Scenario, deployment: Deployment, work: TrainingWorkload
) -> tuple[Deployment, float]:
    """The deployment with products in 16 bits, and the bits of weights that are not trained: those
    under adapters may have fewer, and are made wide before each product.
    """
    recipe = RECIPES[deployment.precision.recipe]
    wide = recipe.compute in ("bf16", "fp16") and recipe.weight_bits < WIDE
    if not wide or work.task not in WITH_ADAPTERS or scenario.raw.lora is None:
        return deployment, WIDE
    precision = Precision.from_formats(recipe=half_of(deployment.device, recipe.compute))
    return replace(deployment, precision=precision), recipe.weight_bits


def half_of(device: Device, recipe: str = "bf16") -> str:
    """A recipe of 16 bits, fp16 on a device that has no arithmetic in bf16.

    >>> from silicast.hardware.catalog import find_device
    >>> half_of(find_device("T4")), half_of(find_device("H100"))
    ('fp16', 'bf16')
    """
    has = any(device.rate_per_core(pipe, recipe) > 0.0 for pipe in device.matrix_pipes)
    return recipe if has else "fp16"


def _adapters(
    scenario: Scenario, work: TrainingWorkload, frozen_bits: float
) -> RankAdapters | None:
    table = scenario.raw.lora
    if work.task not in WITH_ADAPTERS or (table is None and work.task != "lora"):
        return None
    if table is None:
        raise SilicastError(
            "is missing", field="lora", hint='lora = { rank = 16, targets = ["q_proj"] }'
        )
    products: list[str] = []
    for name in table.targets or ("q_proj", "k_proj", "v_proj", "o_proj"):
        if name not in PRODUCTS:
            raise unknown_name(f"no product {name!r:.40}", "lora.targets", ", ".join(PRODUCTS))
        products += PRODUCTS[name]
    return RankAdapters(table.rank, tuple(dict.fromkeys(products)), frozen_bits)


def _checked(deployment: Deployment, work: TrainingWorkload) -> list[str]:
    """A warning where sequences are longer than the model was made for.

    Raises:
        SilicastError: weights in a format that has no gradients.
    """
    precision = deployment.precision
    recipe = RECIPES[precision.recipe]
    if recipe.weight_bits < 16 and recipe.compute in ("bf16", "fp16", "fp32"):
        raise SilicastError(
            f"weights in {recipe.name} are not trained",
            field="precision",
            hint="bf16, fp32, tf32 or an fp8 recipe",
        )
    longest = deployment.model.max_positions
    if not 0 < longest < work.seq_len:
        return []
    return [f"{work.seq_len} tokens: {deployment.model.name} is made for at most {longest}"]
