"""Engines as data: how they launch kernels, their host work, fusion, streams and memory.

An engine is one TOML file of ``catalog/engines``, with a source for each number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal, final

import msgspec

from silicast.composition.engines.engine_memory import LaunchMemoryTable, MemoryTable
from silicast.composition.engines.engine_parallel import EngineParallelTable
from silicast.composition.engines.engine_release import UnmeasuredTable
from silicast.core.compiled import PAGES, CompiledFile, content_of, entries, names_of
from silicast.core.decode import Strict, read_table
from silicast.core.dtypes import RECIPES
from silicast.core.errors import unknown_name
from silicast.core.naming import NameIndex, near
from silicast.core.releases import is_before
from silicast.kernels.engine_kernels import Backend, EngineKernels

Launch = Literal["graph", "piecewise", "stream"]
"""A captured graph replayed as a whole; in pieces, between which attention is launched; or every
kernel launched on its own."""


Kind = Literal["serving", "training", "framework"]

FOLDER = "engines"


class QuantizeTable(Strict, frozen=True):
    """Kernels of a product beyond its own: ``before`` it, in a call that quantises its input, or
    the gradient of its result for both gradients; ``beside``: within the call of the product.
    """

    before: int = 0
    beside: int = 0


class LaunchTable(Strict, frozen=True):
    """How kernels of a pass reach the device: replayed graph or one launch each.

    Attributes:
        prefill: of steps in which a sequence is in prefill, alone or beside decoding ones.
        decode: of steps that only decode.
        graph_batch_sizes: graphs are captured for so many tokens, ascending: smaller batches
            are padded to the next, larger ones are launched one by one. [] = any size.
        further: family of ops -> kernels that the model's code launches for one of them beyond
            one; ``quantize``: for a product that quantises its activations in a call of its own.
        quantize: format -> what a product of it launches in a framework that trains.
    """

    prefill: Launch
    decode: Launch
    graph_batch_sizes: list[int] = []
    further: dict[str, int] = {}
    quantize: dict[str, QuantizeTable] = {}


class EngineHostTable(Strict, frozen=True):
    """Host time of one step on the reference host, microseconds.

    The work of a step is ``step_us`` + ``request_us`` per running request + ``token_us`` per new
    token of a prefill + ``transport_us`` + ``rank_us`` per device of a stage beyond the first.

    Attributes:
        asynchronous: the work is done while the device runs the step before, so that the device
            waits only where the work takes longer; else it waits for all of it.
        gap_us: idle time of the device between two steps in any case.
        step_us: fixed part of the work of a step.
        request_us: on top, per running request.
        token_us: on top, per new token of a prefill.
        transport_us: on top, where the model spans several devices.
        rank_us: on top, for each device of a pipeline stage beyond the first: engines that call
            their workers one by one.
        nodes_us: on top, where the model spans several nodes: what a step needs goes to workers on
            other hosts, and its results come back.
        dispatch_us: host time of the call that launches one kernel, in stream launch; hidden while
            the device is busy with earlier kernels.
        eager_us: the same where the graphs of an engine that compiles its layers are turned off:
            Python launches every kernel; 0 = as ``dispatch_us``.
        piece_us: likewise to replay one piece of a pass whose graphs are piecewise; there is a
            piece between every two calls of attention.
        backward_us: likewise in a backward pass, whose operations the framework's own engine
            launches, without Python; 0 = as ``dispatch_us``.
        between_us: what the thread that runs a framework's model code does between two calls:
            Python, and operators that only view. It comes on top of each call; on devices that run
            an operation in the thread that calls it, the call itself is part of the operation's
            time, and this stands alone (0 = as ``dispatch_us`` there).
        collective_us: on top of the call of a collective: communicators, work objects, streams that
            wait for each other.
        stage_us: of a micro-batch, forward and backward, through one chunk of a pipeline of several
            stages: its schedule, what it sends and receives.
        update_us: of an optimizer step in all: norms, the update's own code, what is logged; 0 = as
            ``step_us``.
        slower_on: host of the catalog -> how many times as long all of these take there.
        round_trip_us: from the end of a kernel whose result the host reads to the start of the
            next; 0 = as in most frameworks.
        log_sd: log standard deviation of these constants between hosts and versions.
        launch_log_sd: likewise of ``dispatch_us``, ``backward_us`` and ``piece_us``, where it is
            another.
    """

    step_us: float
    request_us: float
    token_us: float
    transport_us: float
    dispatch_us: float
    rank_us: float = 0.0
    nodes_us: float = 0.0
    backward_us: float = 0.0
    between_us: float = 0.0
    collective_us: float = 0.0
    stage_us: float = 0.0
    update_us: float = 0.0
    eager_us: float = 0.0
    slower_on: dict[str, float] = {}
    piece_us: float = 0.0
    gap_us: float = 0.0
    asynchronous: bool = False
    round_trip_us: float = 0.0
    log_sd: float = 0.5
    launch_log_sd: float | None = None


class TrainingTable(Strict, frozen=True):
    """Switches of an engine that trains, as far as they change time or memory.

    Attributes:
        dropout: layers drop results and attention's scores; masks are kept.
        loss_copies: of the logits in 32 bits, that the loss holds at once.
        expandable_segments: the allocator maps pages of one range, and loses little between blocks.
        fused_loss: one kernel makes the loss of its logits; else operators do, in 32 bits.
        fused_gradient_accumulation: products add to earlier gradients themselves.
        fused_rope: one kernel turns queries and keys; else the library's operators do.
        deterministic: results are filled beforehand, attention's gradients summed in one order.
        reshard_after_forward: gathered weights are gathered again for a layer's backward pass.
        weights_copied: sharded weights are copied out of the buffer that they are gathered in.
        gradients_copied: gradients are copied into the buffer that sharded ones are summed in.
        further_passes: over memory, beside those of the model's code and as a share of them.
        wide_workspaces: libraries of products hold 32 MiB each, as with ``deterministic``.
        predicts: layers of a model that predict further tokens are trained where nothing is stated.
        unpriced: the user's switches that change time by an amount that is not known.
        log_sd: log standard deviation of a step under this engine beyond that of its kernels;
            context_log_sd: on top of it where context ranks share sequences.
    """

    dropout: bool = False
    loss_copies: int = 1
    expandable_segments: bool = False
    fused_loss: bool = True
    fused_gradient_accumulation: bool = True
    fused_rope: bool = True
    deterministic: bool = False
    reshard_after_forward: bool = True
    weights_copied: bool = False
    gradients_copied: bool = False
    further_passes: float = 0.0
    wide_workspaces: bool = False
    predicts: bool = False
    unpriced: list[str] = []
    log_sd: float = 0.0
    context_log_sd: float = 0.0


class ExpertTable(Strict, frozen=True):
    """What an engine launches around the experts of a layer, beside the kernels that move its
    tokens: all zero = nothing.

    Attributes:
        routing: small kernels of a forward pass that choose experts, each over one number a token
            and expert; ``exchange``: those that count tokens, by what brings them to experts.
        grouped: likewise of a server, where a router corrects its scores and chooses within groups,
            unless ``one_kernel`` does all of it; ``routing_back``: of a backward pass.
        waits: how often the host reads a result of these before it goes on, in a forward pass.
        products: launches of one product of one expert, where a library runs them one after the
            other; 0 = all experts are one kernel.
        sorts_in_kernel: architectures on which the kernel that brings tokens sorts them by expert,
            which others do in passes of their own.
    """

    routing: int = 0
    exchange: dict[str, int] = {}
    grouped: int = 0
    one_kernel: bool = True
    routing_back: int = 0
    waits: int = 0
    products: int = 0
    sorts_in_kernel: list[str] = []


class FusionTable(Strict, frozen=True):
    """Neighbours in a pass that one kernel runs.

    Attributes:
        all_reduce_mb: architecture -> devices -> largest sum over the tensor-parallel ranks, 2^20
            bytes, whose kernel also adds the residual and norms; none where not listed.
        all_reduce_models: "all", or those with "experts" alone.
        rope_append: architectures where one kernel rotates queries and keys and writes the cache.
        attention: libraries whose one call attends for sequences in prefill and in decode.
        quantize: recipe of a product -> kernels before it that also quantise its input: "norm",
            "all_reduce" (a norm inside the sum over the ranks), "activation", "attention".
        latent: one product makes the latents of queries and of keys and values; else there are two.
        scores: attention is one kernel; else scores are written to memory, and two products and a
            softmax run one after the other.
    """

    all_reduce_mb: dict[str, dict[str, float]] = {}
    all_reduce_models: Literal["all", "experts"] = "all"
    rope_append: list[str] = []
    attention: list[str] = []
    quantize: dict[str, list[Literal["norm", "all_reduce", "activation", "attention"]]] = {}
    latent: bool = True
    scores: bool = True


class OverlapTable(Strict, frozen=True):
    """Nodes of a layer that run on a second stream beside others.

    Attributes:
        main, side: names of nodes of the two streams.
        max_tokens: larger batches run them one after the other; 0 = any size.
    """

    main: list[str]
    side: list[str]
    max_tokens: int = 0


class BoardTable(Strict, frozen=True):
    """Defaults of a server that depend on the board.

    Attributes:
        from_gib: memory of the boards from which on it holds, 2^30 bytes.
        from_tp: tensor-parallel degree from which on it holds.
        not_on: beginnings of names of boards for which it does not; ``only_on``: of those for
            which alone it does, none = all.
        max_sequences, step_tokens: as of :class:`ServingTable`; 0 = not said here.
        graph_rows: sequences of the largest captured graph; 0 = as of :class:`LaunchTable`.
        set_aside_mib: least memory that is set aside.
    """

    from_gib: float
    from_tp: int = 1
    not_on: list[str] = []
    only_on: list[str] = []
    max_sequences: int = 0
    step_tokens: int = 0
    graph_rows: int = 0
    set_aside_mib: float = 0.0


class SetAsideTable(Strict, frozen=True):
    """Memory that a server leaves to results and graphs, from which its share follows; 2^20 bytes.

    Attributes:
        fixed_mib: in any case; ``gpu_mib``: per device of a replica; ``token_mib``: per new token
            of the largest step; ``row_mib``: per sequence of the largest graph; ``group_row_mib``:
            likewise for each group of attention_dp, where there are several.
    """

    fixed_mib: float = 0.0
    token_mib: float = 0.0
    row_mib: float = 0.0
    group_row_mib: float = 0.0
    gpu_mib: float = 0.0


class StatePoolTable(Strict, frozen=True):
    """How a server divides its cache between states of recurrent layers and tokens of the others.

    Attributes:
        ratio: memory of states over memory of tokens.
        states_a_request: places for states that a running request holds where prefixes are cached,
            beside its own those of what others may find; without them one.
        drafted_sequences: most sequences at once of a server that drafts, each of whose drafted
            tokens needs a state too.
    """

    ratio: float
    states_a_request: int = 1
    drafted_sequences: int = 0


class LaunchLimitsTable(Strict, frozen=True):
    """The most new tokens of a step as an engine is launched for known traffic, where nobody states
    it: the longest prompt, a token of each sequence that decodes, and a margin.

    Attributes:
        margin_tokens: the margin.
        multiple: the sum is rounded up to whole such.
    """

    margin_tokens: int
    multiple: int = 1

    def tokens(self, prompt: int, sequences: int) -> int:
        """The limit for the longest prompt and so many sequences beside it.

        >>> LaunchLimitsTable(500, 32).tokens(1024, 16)
        1568
        """
        return -(-(prompt + sequences + self.margin_tokens) // self.multiple) * self.multiple


@final
class ServingTable(Strict, frozen=True):
    """How requests are scheduled, on the reference host where it is about times.

    Attributes:
        policy: name of a scheduling policy (:mod:`silicast.serving.engines`).
        max_sequences: most that run at once; of all groups together where ``shares_sequences``.
        step_tokens: most new tokens of a step; 0 = ``memory.prefill_chunk_tokens``.
        launch: what replaces it where the traffic is known; None = nothing.
        blocks: of the KV cache; 0 = what fits.
        state_pool: how states of recurrent layers share the cache's memory; None = as blocks.
        states: places for them; 0 = what the pool's share holds.
        model_tokens: longest sequence, which the cache must hold at the start; 0 = not stated.
        boards: defaults that replace these; the last one that fits a board counts.
        set_aside: what the share of memory follows from, where nobody states it.
        front_us: what the front process, which takes one request after the other, does for one
            before the scheduler knows it: HTTP, templates.
        front_token_us: on top, per token of the prompt: tokenising.
        back_us: from the end of a step until the client has its token: text, streaming.
        log_sd: log standard deviation of these times between hosts and versions; room_log_sd: of
            the room for the KV cache where no log states it (docs/explanation/serving-engines.md).
        prefix_caching: prompts that begin alike share blocks by default.
        options: further switches of the policy, by the engine's own names.
        host_link_share: of the rate of the link to the host's memory that copies of the cache have.
        host_call_us: a call of the driver that copies one block of one layer, keys or values.
    """

    policy: str
    max_sequences: int
    step_tokens: int = 0
    launch: LaunchLimitsTable | None = None
    blocks: int = 0
    model_tokens: int = 0
    state_pool: StatePoolTable | None = None
    states: int = 0
    shares_sequences: bool = False
    boards: list[BoardTable] = []
    set_aside: SetAsideTable | None = None
    front_us: float = 0.0
    front_token_us: float = 0.0
    back_us: float = 0.0
    log_sd: float = 0.5
    room_log_sd: float = 0.05
    prefix_caching: bool = False
    options: dict[str, float | str] = {}
    host_link_share: float = 0.85
    host_call_us: float = 0.0


@final
class SwitchTable(Strict, frozen=True):
    """An option of the engine's command line, or an environment variable that it reads.

    Attributes:
        aliases: further names of the same switch.
        from_, until: releases that have it: from this one on, before that one; "" = no bound.
        optional: where the device or the format cannot run the kernels that it chooses, the engine
            takes its usual ones instead of refusing to start.
        usual: values that mean what happens without it.
        sets: value -> options of ours (:mod:`~silicast.composition.engines.engine_options`) that
            mean the same.
        recipes: value -> recipe of the weights that it asks for; online: values whose weights the
            engine quantises when it loads a checkpoint that is not.
        not_modelled: values that the engine knows and that are refused here; "*" = any other.
        instead: value -> what to state instead of it; likewise.
        needs: value -> option of ours that must be stated beside it; notes: value -> what a reader
            must know of it.
    """

    aliases: list[str] = []
    from_: str = msgspec.field(default="", name="from")
    until: str = ""
    optional: bool = False
    usual: list[str] = []
    sets: dict[str, dict[str, bool | int | float | str]] = {}
    recipes: dict[str, str] = {}
    online: list[str] = []
    not_modelled: list[str] = []
    instead: dict[str, str] = {}
    needs: dict[str, str] = {}
    notes: dict[str, str] = {}


@final
class Engine(Strict, frozen=True):
    """One engine.

    Attributes:
        kind: "serving" engines answer inference and serving, "training" ones training, "framework"
            is a bare framework.
        compiles: a compiler fuses a framework's operations.
        fused_layers: layers are a training library's own, not those of the model's code.
        operators: library of a framework's own operators, where a processor runs them in the
            thread that calls them; "" = it is no framework.
        collectives: library that carries out its collectives.
        runs_on: places where it runs (:func:`~silicast.hardware.platforms.runs_on`); [] = anywhere.
        options_on: option -> places where it means something; not listed = wherever it runs.
        nvls: it lets the usual library reduce in an NVLink switch (NVLink SHARP).
        kernels: the kernel libraries it takes, by architecture and op family.
        parallel: its parallel plan where the user states none.
        serving: how it schedules requests; None = it serves none.
        experts: what training launches around them; training: switches of one that trains.
        fusion: neighbours that one kernel runs.
        overlap: nodes on a second stream, in steps that replay a graph.
        switches: option or environment variable -> its values, and releases that have it.
        backends: kernels that switches choose.
        weight_mix: scheme of its files of weights (:mod:`silicast.workload.models.weight_mix`).
        since: option -> the version that first had it on; earlier ones run without.
        earlier: version -> the engine that stands for those before it.
        before: version -> what holds in all releases before: options of ours, switches, and tables
            of this file; newest first. ``from``: likewise from a release on; oldest first.
        unmeasured: releases that nothing was measured of; taken_as: that of these that a scenario's
            release is among; unpriced_log_sd: error of kernels by switches without a price.
        releases: the first and the last whose defaults are known; release: that of a scenario.
        default_for: tasks that take this engine where a scenario names none.
        caveats: parts of it that are not modelled yet, in the warnings of every answer.
        sources: dotted field path -> origin of the number.
    """

    name: str
    kind: Kind
    version: str
    launch: LaunchTable
    host: EngineHostTable
    memory: MemoryTable
    collectives: str
    aliases: list[str] = []
    compiles: bool = False
    fused_layers: bool = False
    operators: str = ""
    nvls: bool = True
    runs_on: list[str] = []
    options_on: dict[str, list[str]] = {}
    kernels: EngineKernels = EngineKernels()
    parallel: EngineParallelTable = EngineParallelTable()
    serving: ServingTable | None = None
    experts: ExpertTable = ExpertTable()
    training: TrainingTable = TrainingTable()
    fusion: FusionTable = FusionTable()
    overlap: list[OverlapTable] = []
    switches: dict[str, SwitchTable] = {}
    backends: list[Backend] = []
    weight_mix: str = ""
    since: dict[str, str] = {}
    earlier: dict[str, str] = {}
    before: dict[str, dict[str, Any]] = {}
    from_: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict, name="from")
    unmeasured: list[UnmeasuredTable] = []
    taken_as: UnmeasuredTable = UnmeasuredTable()
    unpriced_log_sd: float = 0.0
    releases: list[str] = []
    release: str = ""
    default_for: list[str] = []
    caveats: list[str] = []
    sources: dict[str, str] = {}

    def __hash__(self) -> int:
        return hash((self.name, self.version, self.launch.decode, self.host.asynchronous))

    def has_switch_for(self, option: str) -> bool:
        """Whether one of its own switches sets an option of ours."""
        meant = (each for table in self.switches.values() for each in table.sets.values())
        return any(option in each for each in meant)

    def release_log_sd(self, architecture: str) -> float:
        """How far kernels are off together by its release and by switches without a price."""
        return math.hypot(self.taken_as.log_sd_on(architecture), self.unpriced_log_sd)

    @property
    def launch_memory(self) -> LaunchMemoryTable | None:
        """What its release sets aside at the start; None = not stated."""
        known = [e for e in self.memory.launch if not is_before(self.version, e.since)]
        return known[-1] if known else None

    def padded(self, *, prefill: bool) -> bool:
        """Whether steps that fit a captured graph are padded to it."""
        launch = self.launch.prefill if prefill else self.launch.decode
        return launch != "stream" and bool(self.launch.graph_batch_sizes)


def load_engine_file(path: Path) -> Engine:
    """The engine in a TOML file.

    Raises:
        SilicastError: unreadable, not TOML or not an engine, or it names a family, library, call
            or recipe that does not exist; names file and field.
    """
    return check_engine(read_table(path, Engine, PAGES[FOLDER]), path)


def check_engine(engine: Engine, path: Path) -> Engine:
    """The engine, if every name in its file is known.

    Raises:
        SilicastError: a family, library, call or recipe that does not exist; names file and field.
    """
    from silicast.communication.library import collective_libraries
    from silicast.kernels.registry import families

    known_collectives = collective_libraries()
    _known("collectives", "communication library", engine.collectives, known_collectives, path)
    for field, kind, name, known in engine.kernels.named(families()):
        _known(f"kernels.{field}", kind, name, known, path)
    _check_switches(engine, path)
    return engine


def _check_switches(engine: Engine, path: Path) -> None:
    """Raises SilicastError for a name in the tables of switches and back ends that is not known."""
    from silicast.kernels.registry import families
    from silicast.workload.libraries.catalog import library_names

    for switch, table in engine.switches.items():
        for value, recipe in table.recipes.items():
            _known(f"switches.{switch}.recipes.{value}", "recipe", recipe, RECIPES, path)
    for number, backend in enumerate(engine.backends):
        field = f"backends.{number}"
        for switch in backend.by:
            _known(f"{field}.by", "switch", switch, engine.switches, path)
        for family in backend.families:
            _known(f"{field}.families", "op family", family, families(), path)
        for library in backend.library.values():
            _known(f"{field}.library", "kernel library", library, library_names().names, path)
        for recipe in (*backend.formats, *backend.formats.values()):
            _known(f"{field}.formats", "recipe", recipe, RECIPES, path)


def _known(field: str, kind: str, name: str, known: Iterable[str], path: Path) -> None:
    """Raises SilicastError, with the nearest of ``known``, unless ``name`` is among them."""
    names = list(known)
    if name in names:
        return
    raise unknown_name(f"unknown {kind} {name[:80]!r}", field, near(name, names), file=str(path))


class _DefaultFor(msgspec.Struct, frozen=True):
    """The part of an engine's file that says whose engine it is."""

    default_for: list[str] = []


@cache
def engine_names() -> NameIndex[str]:
    """All engines of the catalog by name and alias."""
    return NameIndex("engine", names_of(FOLDER))


@cache
def engine_index() -> NameIndex[Engine]:
    """All engines of the catalog, each read: for listings, not for finding one."""
    table = {name: _engine(name) for name in entries(FOLDER)}
    return NameIndex("engine", {name: (each, each.aliases) for name, each in table.items()})


def find_engine(name: str) -> Engine:
    """An engine by name or alias; a path to an engine file works too."""
    if name.endswith(".toml"):
        return load_engine_file(Path(name))
    return _engine(engine_names().get(name))


@cache
def default_engine(task: str) -> str:
    """The engine of a task whose scenario names none; "" = the task runs on none."""
    files = entries(FOLDER).items()
    return next((name for name, file in files if task in _tasks_of(file)), "")


def _tasks_of(file: CompiledFile) -> list[str]:
    return msgspec.json.decode(file.content, type=_DefaultFor).default_for


def engines_of(kind: Kind) -> list[str]:
    """Names of the engines of one kind."""
    return [name for name in entries(FOLDER) if _engine(name).kind == kind]


def mixing_engines(scheme: str = "") -> list[str]:
    """Names of the engines that run mixtures of formats in files of weights, of a scheme or any."""
    schemes = {name: _engine(name).weight_mix for name in entries(FOLDER)}
    return [name for name, mix in schemes.items() if mix and scheme in ("", mix)]


@cache
def _engine(name: str) -> Engine:
    file = entries(FOLDER)[name].file
    engine = content_of(FOLDER, name, Engine)
    return check_engine(engine, Path(file)) if file else engine  # tests check the package's files
