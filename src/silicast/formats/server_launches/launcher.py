"""How the servers of an engine are started: data files in ``catalog/launchers``, by which launch
commands are written (:mod:`silicast.report.deploy`) and read
(:mod:`silicast.formats.server_launches`).
"""

from __future__ import annotations

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


class Launcher(Strict, frozen=True):
    """A file of ``catalog/launchers``.

    ``checked``: ``known`` was read from the package itself. ``flags``: what we state -> flag;
    ``switches``: set where experts are spread, or where there are groups of attention.
    ``tp_counts_groups``: the tensor degree is of all groups together.
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


def launcher_of(engine: str) -> Launcher:
    """The launcher of an engine.

    Raises:
        SilicastError: there is none.
    """
    engines = []
    for path in catalog_files("launchers", ".toml"):
        launcher = read_table(path, Launcher, PAGE)
        if launcher.engine == engine:
            return launcher
        engines.append(launcher.engine)
    raise unsupported(f"{engine} has no files to deploy", "engine", f"one of {', '.join(engines)}")


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
