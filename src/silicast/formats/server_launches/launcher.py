"""How the servers of an engine are started: data files in ``catalog/launchers``, by which launch
commands are written (:mod:`silicast.report.deploy`) and read
(:mod:`silicast.formats.server_launches`).
"""

from __future__ import annotations

import functools
from typing import Any

from msgspec.structs import replace

from silicast.core.catalog import catalog_files
from silicast.core.decode import Strict, read_table
from silicast.core.errors import unsupported

PAGE = "docs/how-to/deploy-a-plan.md"


class KnownFlags(Strict, frozen=True):
    """``[known]``: every flag that the package has."""

    flags: tuple[str, ...]


class BenchmarkCommand(Strict, frozen=True):
    """``[benchmark]``: what measures a server under the traffic of the prediction."""

    command: tuple[str, ...]


class OptionsFile(Strict, frozen=True):
    """``[options]``: what a server is told in a file of YAML.

    ``flag``: names the file; ``attention_dp``: where there are groups of attention; ``roles``: of
    pools that only prefill or decode.
    """

    flag: str
    attention_dp: dict[str, Any] = {}
    roles: dict[str, dict[str, Any]] = {}


class RequestRouter(Strict, frozen=True):
    """``[router]``: the engine's process that sends requests to prefill, then to decode servers.

    ``command``: with the name of its file; ``servers``: role -> the field that lists them.
    """

    command: tuple[str, ...]
    servers: dict[str, str]
    options: dict[str, Any] = {}


class DynamoWorker(Strict, frozen=True):
    """``[dynamo]``: the engine as a worker of Dynamo, which states all that differs.

    ``flags``: empty where they are the engine's own; ``known``: flags beside the engine's own.
    """

    version: str
    source: str
    command: tuple[str, ...]
    image: str
    roles: dict[str, tuple[str, ...]]
    known: tuple[str, ...]
    flags: dict[str, str] = {}


class SplitFlags(Strict, frozen=True):
    """``[reads.split]``: flags that say over how many devices a model is split.

    Attributes:
        shares: the flag that lists what share each device has; devices: that lists the devices.
        mode: the flag of how it is split; degrees: of its values, the degree that is not "pp";
            alone: the value by which one device has all.
    """

    shares: str
    devices: str
    mode: str
    degrees: dict[str, str]
    alone: str


class ReadFlags(Strict, frozen=True):
    """``[reads]``: how a command that starts a server is read.

    Attributes:
        starts: words behind which a server's arguments stand; not_servers: first arguments of what
            else the program does; images: of containers that start it.
        config: flags that name a file of further options; config_wins: over flags.
        aliases: of a flag, without hyphens before it -> its name.
        negates: a flag that is on or off is turned off as ``--no-NAME``.
        options: flags that ``engine.options`` has by their own names; those of a table with dots.
        renamed: likewise by another name; negated: set where the option is false.
        largest: of a flag that takes sizes -> the option that one size alone states, the largest.
        usual: of a flag -> values that say nothing.
        counts: of options, those that are whole numbers of at least 1.
        variables: of the environment that are options.
        spreads_experts: of a flag -> values by which experts are spread over all ranks.
        tables: of a flag -> the flag that it is where its value is a table.
        earlier: flags of other releases.
        environment: a flag may be stated as a variable of the environment (NUM_SHARD).
        mixes: models are files of a mix of formats, which their names end with; of a repository
            whose name states none, this one is taken. "" = models are checkpoints.
        cache_formats: flags of the formats of keys and of values.
        split: how many devices there are, where no degree says so; None = degrees do.
    """

    starts: tuple[tuple[str, ...], ...]
    images: tuple[str, ...]
    options: tuple[str, ...]
    not_servers: tuple[str, ...] = ()
    aliases: dict[str, str] = {}
    renamed: dict[str, str] = {}
    negated: dict[str, str] = {}
    largest: dict[str, str] = {}
    usual: dict[str, tuple[str, ...]] = {}
    counts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    config_wins: bool = False
    negates: bool = False
    spreads_experts: dict[str, tuple[str, ...]] = {}
    tables: dict[str, str] = {}
    earlier: tuple[str, ...] = ()
    environment: bool = False
    mixes: str = ""
    cache_formats: tuple[str, ...] = ()
    split: SplitFlags | None = None


class Launcher(Strict, frozen=True):
    """A file of ``catalog/launchers``.

    ``checked``: ``known`` was read from the package itself. ``flags``: what we state -> flag;
    ``switches``: set where experts are spread, or where there are groups of attention.
    ``tp_counts_groups``: the tensor degree is of all groups together. ``writes``: commands of it
    are written too.
    """

    engine: str
    version: str
    source: str
    checked: bool
    command: tuple[str, ...]
    entrypoint: tuple[str, ...]
    image: str
    flags: dict[str, str]
    known: KnownFlags
    reads: ReadFlags
    switches: dict[str, tuple[str, ...]] = {}
    roles: dict[str, tuple[str, ...]] = {}
    kv_dtypes: dict[str, str] = {}
    recipes: dict[str, tuple[str, ...]] = {}
    benchmark: BenchmarkCommand | None = None
    options: OptionsFile | None = None
    router: RequestRouter | None = None
    dynamo: DynamoWorker | None = None
    experts_over_all_ranks: bool = False
    tp_counts_groups: bool = False
    writes: bool = True

    def flag_of(self, option: str) -> str:
        """The flag that states an option of ``engine.options``; "" = none does.

        >>> launcher_of("trtllm").flag_of("max_batch_size"), launcher_of("vllm").flag_of("x")
        ('--max_batch_size', '')
        """
        theirs = (self.reads.renamed | self.reads.negated).items()
        wanted = [option.replace("_", "-"), *(flag for flag, ours in theirs if ours == option)]
        spelled = {flag.removeprefix("--").replace("_", "-"): flag for flag in self.known.flags}
        for name in wanted:
            head, dot, tail = name.partition(".")
            if name in spelled or (dot and head in spelled):
                return f"{spelled[head]}{dot}{tail.replace('-', '_')}"
        return ""


def launcher_of(engine: str) -> Launcher:
    """The launcher of an engine.

    Raises:
        SilicastError: there is none.
    """
    by_engine = {launcher.engine: launcher for launcher in launchers() if launcher.writes}
    if engine not in by_engine:
        raise unsupported(
            f"{engine} has no files to deploy", "engine", f"one of {', '.join(by_engine)}"
        )
    return by_engine[engine]


@functools.cache
def launchers() -> tuple[Launcher, ...]:
    """All of them."""
    files = catalog_files("launchers", ".toml")
    return tuple(read_table(path, Launcher, PAGE) for path in files)


def dynamo_launcher(engine: str) -> Launcher:
    """The same for a worker of Dynamo.

    Raises:
        SilicastError: there is none.
    """
    launcher = launcher_of(engine)
    worker = launcher.dynamo
    if worker is None:
        raise unsupported(f"{engine} has no worker of Dynamo", "engine", "vllm, sglang or trtllm")
    return replace(
        launcher,
        version=f"{launcher.version} under dynamo {worker.version}",
        command=worker.command,
        image=worker.image,
        roles=worker.roles,
        flags=worker.flags or launcher.flags,
        recipes={} if worker.flags else launcher.recipes,
        options=None if worker.flags else launcher.options,
        known=KnownFlags((*(() if worker.flags else launcher.known.flags), *worker.known)),
    )
