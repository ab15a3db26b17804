"""The workload of each task but ``kernel``, whose ops are in
:mod:`~silicast.scenario.kernels.kernel_case`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from silicast.core.decode import Terse
from silicast.core.plain_data import MAX_ENTRIES
from silicast.scenario.reading.limits import (
    Batch,
    Bytes,
    Count,
    Fraction,
    Gpus,
    Name,
    NonNegative,
    Past,
    Positive,
    Size,
    TokenList,
    Tokens,
)
from silicast.scenario.schema import SpeculativeTable


class CollectiveWorkload(Terse, frozen=True):
    """One collective call; ``bytes`` as nccl-tests counts them. ``groups`` of ``gpus`` devices
    call it at once, each of every ``group_stride``-th device.
    """

    op: Literal[
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
    ]
    bytes: Bytes
    gpus: Annotated[int, Meta(ge=2, le=1_000_000)]
    groups: Annotated[int, Meta(ge=1, le=100_000)] = 1
    group_stride: Annotated[int, Meta(ge=1, le=100_000)] = 1
    dtype: Name = "bf16"
    implementation: Name | None = None
    implementation_version: Name | None = None
    launch: Name | None = None


class GraphWorkload(Terse, frozen=True):
    """A whole model once, or a program: a file, or a package's model ("timm:resnet50") with
    ``sizes`` by their names; training is forward and backward.
    """

    mode: Literal["inference", "training"] = "inference"
    batch: Batch | None = None
    seq_len: Tokens | None = None
    graph: Name | None = None
    sizes: dict[Name, Size] = msgspec.field(default_factory=dict)
    optimizer: Name | None = None


class InferenceWorkload(Terse, frozen=True):
    """One static batch: all prefilled at once, then ``output_len - 1`` decode steps; the prompts
    follow ``cached_len`` tokens of each sequence whose keys and values are in the cache.
    """

    output_len: Tokens
    input_lens: TokenList | None = None
    batch: Batch | None = None
    input_len: Tokens | None = None
    cached_len: Past | None = None


class DistributionTable(Terse, frozen=True):
    """A distribution of lengths; which numbers it takes depends on its kind."""

    kind: Literal[
        "fixed", "uniform", "normal", "lognormal", "gamma", "exponential", "zipf", "values"
    ]
    value: Tokens | None = None
    mean: Positive | None = None
    std: NonNegative | None = None
    min: Tokens | None = None
    max: Tokens | None = None
    median: Positive | None = None
    sigma: Positive | None = None
    exponent: Positive | None = None
    values: TokenList | None = None


Length = Tokens | DistributionTable


class TraceRow(Terse, frozen=True):
    """One request of a trace; its first ``prefix_len`` tokens are the text named ``prefix``."""

    arrival_s: NonNegative
    input_len: Tokens
    output_len: Tokens
    prefix: Name | None = None
    prefix_len: Tokens | None = None


TraceRows = Annotated[
    list[TraceRow | tuple[NonNegative, Tokens, Tokens]], Meta(min_length=1, max_length=MAX_ENTRIES)
]
"""Requests as tables, or as [arrival_s, input_len, output_len]."""


Rate = Annotated[float, Meta(gt=0, le=1e9)]


class RateStageTable(Terse, frozen=True):
    """A time at one rate: requests a second for so many seconds."""

    rate_per_s: Rate
    duration_s: Annotated[float, Meta(gt=0, le=1e9)]


class ArrivalTable(Terse, frozen=True):
    """How requests arrive.

    ``concurrency`` limits how many are in flight. ``cv`` is the coefficient of variation of a gamma
    process; ``burst`` requests come at a time; the rate runs to ``ramp_to_per_s`` from the first
    request to the last. A constant rate is met exactly: the last request comes at requests /
    ``rate_per_s``, but with ``exact_rate = false`` gaps are as they were drawn. ``stages`` follow
    each other, each at a rate of its own, in place of ``rate_per_s`` and a number of requests. A
    trace (``path`` or ``rows``) of another kind than ``trace`` gives the lengths only. ``trace``:
    the one to read of a file of several. A path that begins with "data:" is within the folder
    ``SILICAST_DATA``.
    """

    kind: Literal["closed", "poisson", "gamma", "constant", "trace"]
    concurrency: Count | None = None
    rate_per_s: Rate | None = None
    cv: Annotated[float, Meta(ge=0, le=1000)] | None = None
    burst: Count | None = None
    ramp_to_per_s: Rate | None = None
    ramp: Literal["linear", "exponential"] | None = None
    exact_rate: bool | None = None
    stages: Annotated[list[RateStageTable], Meta(min_length=1, max_length=10_000)] | None = None
    path: Name | None = None
    trace: Name | None = None
    rows: TraceRows | None = None
    bad_rows: Literal["refuse", "skip"] | None = None


class PrefixTable(Terse, frozen=True):
    """Shared prompt prefixes: a hit ratio, or prefixes of a length shared by groups.

    ``length`` is a part of ``input_len``. Without ``cache`` the engine keeps no prefix.
    """

    hit_ratio: Fraction | None = None
    length: Tokens | None = None
    groups: Count = 1
    cache: bool = True


class SessionTable(Terse, frozen=True):
    """Conversations of several turns, each of which adds ``input_len`` tokens to the prompt."""

    turns: Count
    think_time_s: NonNegative = 0.0


class SloTable(Terse, frozen=True):
    """A service-level objective.

    ``ttft_ms`` and its like hold for ``quantile`` of the requests; the others name their statistic.
    """

    ttft_ms: Positive | None = None
    tpot_ms: Positive | None = None
    itl_ms: Positive | None = None
    e2e_ms: Positive | None = None
    quantile: Annotated[float, Meta(gt=0, le=1)] = 0.99
    ttft_mean_ms: Positive | None = None
    ttft_p50_ms: Positive | None = None
    ttft_p90_ms: Positive | None = None
    ttft_p95_ms: Positive | None = None
    ttft_p99_ms: Positive | None = None
    tpot_mean_ms: Positive | None = None
    tpot_p50_ms: Positive | None = None
    tpot_p90_ms: Positive | None = None
    tpot_p95_ms: Positive | None = None
    tpot_p99_ms: Positive | None = None
    itl_mean_ms: Positive | None = None
    itl_p50_ms: Positive | None = None
    itl_p90_ms: Positive | None = None
    itl_p95_ms: Positive | None = None
    itl_p99_ms: Positive | None = None
    e2e_mean_ms: Positive | None = None
    e2e_p50_ms: Positive | None = None
    e2e_p90_ms: Positive | None = None
    e2e_p95_ms: Positive | None = None
    e2e_p99_ms: Positive | None = None


class ServingWorkload(Terse, frozen=True):
    """Traffic on a deployment.

    ``requests`` left out = 10 x concurrency (1,000 at least), all of a trace; else, at a rate, as
    many as show the steady state, which statistics are of (warm-up and drain left out). Each turn
    is a request.
    ``range_ratio``: lengths from that share of ``input_len`` and ``output_len`` up to them.
    ``warm_up_requests``: so many are sent and answered before, and not counted.
    """

    arrival: ArrivalTable
    input_len: Length | None = None
    output_len: Length | None = None
    requests: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    warm_up_requests: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    range_ratio: Fraction | None = None
    prefix: PrefixTable | None = None
    sessions: SessionTable | None = None
    slo: SloTable | None = None


class OffloadTable(Terse, frozen=True):
    """Shares that the host's memory holds of what a pass keeps (``activations``), of the
    optimizer's states and of the weights; ``update``: by the host's CPU, or by the device, to which
    states come and go.
    """

    activations: Fraction = 0.0
    optimizer: Fraction = 0.0
    weights: Fraction = 0.0
    update: Literal["host", "device"] = "host"


class LoadingTable(Terse, frozen=True):
    """The batches of a step: ``seconds_per_batch`` of a step's, or ``tokens_per_s`` of all loaders
    together; ``overlap``: while the step before runs.
    """

    seconds_per_batch: NonNegative | None = None
    tokens_per_s: Positive | None = None
    overlap: bool = True


class CheckpointTable(Terse, frozen=True):
    """Checkpoints: ``storage_gb_per_s`` of all ranks together; an interval in seconds of work or in
    steps, else the best; ``asynchronous``: written beside the steps that follow.
    """

    storage_gb_per_s: Positive
    interval_s: Positive | None = None
    interval_steps: Count | None = None
    asynchronous: bool = False


Routing = Name | Annotated[list[NonNegative], Meta(min_length=1)]
"""How tokens spread over experts: a distribution, or one share an expert."""


class TrainingWorkload(Terse, frozen=True):
    """One optimizer step; ``global_batch`` in sequences; no ``recompute`` = the least.

    ``capacity_factor``: an expert takes so many times its even share of a rank's tokens, the rest
    are dropped; ``pad_to_capacity``: it always computes as many. Batches of ``dpo`` and ``reward``
    are of pairs. ``reference``: the frozen model of ``dpo`` (left out: the same; false: its results
    are known) or the teacher of ``distillation``. ``lengths`` of documents: ``packed`` into rows of
    ``seq_len`` tokens (the default), or ``padded`` to the longest of a micro-batch. ``mtp_layers``:
    further tokens that are predicted, by a layer, the head and a loss each; left out: as the engine
    does.
    """

    seq_len: Tokens
    global_batch: Batch
    micro_batch: Batch = 1
    recompute: Name | None = None
    task: Literal["pretrain", "sft", "lora", "dpo", "reward", "distillation"] = "pretrain"
    reference: bool | Name | None = None
    lengths: Length | None = None
    packing: Literal["packed", "padded"] | None = None
    optimizer: Name | None = None
    overlap: bool | list[Name] | dict[str, bool] | None = None
    routing: Routing | None = None
    capacity_factor: Annotated[float, Meta(gt=0, le=1000)] | None = None
    pad_to_capacity: bool = False
    mtp_layers: Annotated[int, Meta(ge=0, le=16)] | None = None
    offload: OffloadTable | None = None
    data_loading: LoadingTable | None = None
    checkpoint: CheckpointTable | None = None


class SearchTable(Terse, frozen=True):
    """Values to try: a dotted field of the scenario -> its candidates. ``max_power_w``: of all
    devices together, each at its limit; of task capacity.
    """

    vary: dict[str, Annotated[list[Any], Meta(min_length=1, max_length=MAX_ENTRIES)]] = (
        msgspec.field(default_factory=dict)
    )
    max_gpus: Gpus | None = None
    max_candidates: Count | None = None
    max_power_w: Positive | None = None


Policy = Literal["queue", "utilisation", "predicted"]


class BesideTable(Terse, frozen=True):
    """Another model on the same devices: a pool (what is left out is as at the top of the
    scenario), its traffic, and its objective where it is not the first one's.
    """

    pool: dict[str, Any]
    traffic: ServingWorkload
    slo: SloTable | None = None


class AutoscaleTable(Terse, frozen=True):
    """Replicas come and go with a traffic, every ``period_s``, by a policy; of several the best.

    ``headroom``: share of what replicas carry that is left. ``least``: replicas at all times;
    ``most`` of each pool. They stop when so many were not wanted for ``down_after_s``. A new one is
    ready after ``start_s`` and the time in which a node reads its weights at ``disk_gb_per_s``, or
    after ``cold_start_s``. ``beside``: further models that share ``search.max_gpus`` devices.
    """

    policy: Policy | Annotated[list[Policy], Meta(min_length=1, max_length=3)] = msgspec.field(
        default_factory=lambda: ["queue", "utilisation", "predicted"]
    )
    headroom: Annotated[float, Meta(ge=0, le=0.95)] = 0.2
    period_s: Annotated[float, Meta(ge=1, le=3600)] = 15.0
    down_after_s: Annotated[float, Meta(ge=0, le=1e6)] = 300.0
    start_s: Annotated[float, Meta(ge=0, le=1e5)] = 100.0
    disk_gb_per_s: Annotated[float, Meta(gt=0, le=1e5)] = 1.0
    cold_start_s: Annotated[float, Meta(ge=0, le=1e5)] | None = None
    least: Count = 1
    most: dict[Name, Count] = msgspec.field(default_factory=dict)
    beside: Annotated[dict[Name, BesideTable], Meta(max_length=16)] = msgspec.field(
        default_factory=dict
    )


class CapacityWorkload(Terse, frozen=True):
    """The most traffic that a deployment carries under an objective, or what carries a traffic."""

    traffic: ServingWorkload
    slo: SloTable
    objective: Literal[
        "max_rate", "max_concurrency", "min_gpus", "min_cost", "max_tokens_per_joule"
    ]
    search: SearchTable = SearchTable()
    autoscale: AutoscaleTable | None = None


class PlanWorkload(Terse, frozen=True):
    """The best plan for a training step, a static batch or a traffic; give one of the three."""

    objective: Literal["step_time", "tokens_per_s_per_gpu", "mfu", "latency", "throughput", "cost"]
    training: TrainingWorkload | None = None
    inference: InferenceWorkload | None = None
    serving: ServingWorkload | None = None
    search: SearchTable = SearchTable()


class LoopTable(Terse, frozen=True):
    """Goes back to the stage ``back_to`` after its own, with a ``probability``; ``most`` turns at
    most, the first one included.
    """

    back_to: Name
    probability: Fraction = 1.0
    most: Count | None = None


class EscalationTable(Terse, frozen=True):
    """Goes on to a stage where the answer before it has a confidence ``below`` a threshold;
    ``confidence``: of answers of that stage, each as likely.
    """

    below: Fraction
    confidence: Annotated[list[Fraction], Meta(min_length=1, max_length=100_000)]

    @property
    def share(self) -> float:
        """Of the answers, those that go on.

        >>> EscalationTable(0.7, [0.9, 0.7, 0.6, 0.2]).share
        0.5
        """
        return sum(each < self.below for each in self.confidence) / len(self.confidence)


class IndexTable(Terse, frozen=True):
    """An index of vectors on a host: ``flat`` reads all of them, ``ivf`` those of ``probes`` of
    ``lists`` cells, ``hnsw`` walks a graph of ``links`` a node with ``ef`` candidates.
    """

    kind: Literal["flat", "ivf", "hnsw"]
    vectors: Annotated[int, Meta(ge=1, le=10**12)]
    dimensions: Annotated[int, Meta(ge=1, le=65536)]
    bytes_per_dimension: Annotated[float, Meta(gt=0, le=8)] = 4.0
    lists: Count | None = None
    probes: Count = 1
    links: Count = 32
    ef: Count = 64
    threads: Count = 1


class StageTable(Terse, frozen=True):
    """A stage of a workflow, run on a pool.

    ``after`` names the stages it waits for. It runs with ``probability``, ``repeat`` times one
    after the other, ``batch`` x ``items`` times side by side; of stages with one ``branch``, one
    runs. ``escalates``: it runs only where the stage before it ran and was not sure enough.
    ``speculative``: what drafts the tokens of work "draft_verify". ``work`` says what it does: a
    model's pass over ``input_len`` and ``output_len`` tokens, or something whose time is given
    (``duration_ms``), on ``servers`` (left out: as many as are
    needed). ``max_batch``: of passes that run together. ``keeps_context``: each visit's prompt
    begins with all before it. ``exits``: shares of tokens that leave a model at equal depths. A
    ``job`` of a cluster takes one of so many ``gpus`` of one of its ``pools`` (left out: of any)
    for its ``steps``; ``noise_scale``: of its gradients, in sequences. ``overhead_share``: what a
    framework takes around the work before the next stage, over the time of the stage (left out:
    nothing, or in a step that learns from what it generates, what was measured). ``frames`` of
    a video, ``audio_s`` of speech. Of a step of work "denoise": ``guidance``: evaluated with and
    without the prompt (left out: as the network usually is); ``cached``: most of it is reused from
    the step before.
    """

    pool: Name | None = None
    after: list[Name] = msgspec.field(default_factory=list)
    work: Literal[
        "prefill", "decode", "generate", "embed", "rerank", "encode_image", "encode_audio",
        "denoise", "decode_image", "reward", "train", "transfer", "retrieve", "tool_call",
        "fixed", "job", "logprob", "draft_verify",
    ] = "fixed"  # fmt: skip
    input_len: Length | None = None
    output_len: Length | None = None
    batch: Batch | None = None
    items: Count = 1
    max_batch: Batch | None = None
    resolution: Annotated[list[Count], Meta(min_length=2, max_length=2)] | None = None
    frames: Count = 1
    audio_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    guidance: bool | None = None
    cached: bool = False
    duration_ms: NonNegative | DistributionTable | None = None
    servers: Count | None = None
    repeat: Count = 1
    probability: Fraction = 1.0
    branch: Name | None = None
    escalates: EscalationTable | None = None
    loop: LoopTable | None = None
    keeps_context: bool = False
    exits: Annotated[list[Fraction], Meta(min_length=1, max_length=1024)] | None = None
    training: TrainingWorkload | None = None
    index: IndexTable | None = None
    data_gb: NonNegative | None = None
    pools: Annotated[list[Name], Meta(min_length=1, max_length=64)] | None = None
    gpus: Annotated[list[Gpus], Meta(min_length=1, max_length=64)] | None = None
    steps: Length | None = None
    noise_scale: Positive | None = None
    overhead_share: NonNegative | None = None
    speculative: SpeculativeTable | None = None


class SchedulerTable(Terse, frozen=True):
    """What shares the devices of a cluster out to stages of work "job": ``round_s`` between
    decisions of policies that take devices away, ``restart_s`` that a job loses with each change.
    """

    policy: Literal["fifo", "backfill", "gang", "pollux", "sia"] = "fifo"
    round_s: Positive = 60.0
    restart_s: NonNegative = 30.0


class WorkflowWorkload(Terse, frozen=True):
    """A graph of stages over pools. Without an arrival one client sends an item when the last one
    has ended; ``requests`` left out = as for task serving.
    """

    stages: Annotated[dict[str, StageTable], Meta(min_length=1, max_length=256)]
    arrival: ArrivalTable | None = None
    requests: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    slo: SloTable | None = None
    scheduler: SchedulerTable | None = None


Repeats = float | Annotated[list[float], Meta(min_length=1, max_length=100_000)]


class MeasuredTable(Terse, frozen=True):
    """A kernel and the repeats it was measured with."""

    kernel: dict[str, Any]
    measured_us: Repeats


class FitsWorkload(Terse, frozen=True):
    """Users at once, each with a context of so many tokens: which models fit the scenario's device,
    or which devices its model.

    ``most``: rows of the answer. ``least_tokens_per_s``: of one user, below which a pair is left
    out. ``servers``: devices with HBM too. ``train``: instead, which ways of training fit (all
    weights, LoRA, QLoRA) with ``users`` sequences of ``context`` tokens a device and pass.
    """

    context: Annotated[int, Meta(ge=2, le=1 << 24)] = 4096
    users: Annotated[int, Meta(ge=1, le=4096)] = 1
    most: Annotated[int, Meta(ge=1, le=1000)] = 20
    least_tokens_per_s: Annotated[float, Meta(ge=0, le=1e6)] = 5.0
    servers: bool = False
    train: bool = False


class DiagnoseWorkload(Terse, frozen=True):
    """A kernel (as of task kernel: moe with a part, or gemm) and the repeats it was measured with;
    a ``model`` of the scenario says what it gains. Kernels ``beside`` it on the same device tell
    what predictions are off by there.
    """

    kernel: dict[str, Any]
    measured_us: Repeats
    beside: Annotated[list[MeasuredTable], Meta(max_length=10_000)] = msgspec.field(
        default_factory=list
    )


class TuneWorkload(Terse, frozen=True):
    """Configurations of a model's experts or plain products, for numbers of tokens; ``existing`` is
    a file of the engine to judge beside them, ``compiler`` the version that they are for,
    ``routing`` how tokens spread over a rank's experts.
    """

    kernel: Literal["moe", "gemm"] = "moe"
    tokens: Annotated[list[Tokens], Meta(max_length=1024)] = msgspec.field(default_factory=list)
    existing: Name | None = None
    compiler: Annotated[str, Meta(max_length=32)] = ""
    routing: Routing | None = None


Workload = (
    CollectiveWorkload
    | GraphWorkload
    | InferenceWorkload
    | ServingWorkload
    | TrainingWorkload
    | CapacityWorkload
    | PlanWorkload
    | WorkflowWorkload
    | FitsWorkload
    | DiagnoseWorkload
    | TuneWorkload
)

BY_TASK: dict[str, type[msgspec.Struct]] = {
    "collective": CollectiveWorkload,
    "graph": GraphWorkload,
    "inference": InferenceWorkload,
    "serving": ServingWorkload,
    "training": TrainingWorkload,
    "capacity": CapacityWorkload,
    "plan": PlanWorkload,
    "workflow": WorkflowWorkload,
    "diagnose": DiagnoseWorkload,
    "tune": TuneWorkload,
    "fits": FitsWorkload,
}
