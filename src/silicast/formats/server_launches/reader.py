"""Files that start servers (vLLM, SGLang, TensorRT-LLM, llama.cpp, TGI) as scenarios of task
``serving``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from silicast.core.errors import SilicastError
from silicast.formats.server_launches.commands import (
    ServerCommand,
    commands_of_script,
    options_alone,
)
from silicast.formats.server_launches.containers import commands_in, documents_of, split
from silicast.formats.server_launches.host_caches import CONNECTOR
from silicast.formats.server_launches.meaning import refuse_role, server_of
from silicast.formats.server_launches.model_facts import ModelLookup
from silicast.formats.source import Source, table_of
from silicast.formats.training_configs.device_name import device_named
from silicast.formats.training_configs.reader import Stated

Tree = dict[str, Any]
MAX_BYTES = 4 << 20
_TRAFFIC = (
    "a launch states no traffic: --set workload.arrival.kind=closed --set "
    "workload.arrival.concurrency=16 --set workload.input_len=1024 --set workload.output_len=128"
)
_YAML = (".yaml", ".yml")
_NONE: Mapping[str, str] = MappingProxyType({})
_MARKS = re.compile(
    rb"vllm|sglang|trtllm-serve|dynamo\.(?:vllm|sglang|trtllm)|llama-server|/llama\.cpp"
    rb"|text-generation-(?:launcher|inference)",
    re.IGNORECASE,
)
_UNIT = re.compile(r"^(ExecStart|Environment)=[-+@!]*((?:.*\\\n)*.*)$", re.MULTILINE)
"""Lines of a unit of systemd that start a program, and its variables."""
_SHARED = ("model", "precision", "speculative", "lora", "cluster")
"""Tables that pools of one file have together."""


def is_server_launch(*paths: Path) -> bool:
    """Whether each of the files starts a server; False too where one cannot be read.

    Raises:
        SilicastError: kind "unsupported": a library that reads it is missing, or it is a template.
    """
    started = {path: _started_by(path) for path in paths}
    return any(started.values()) and all(
        commands or _is_named(path, started) for path, commands in started.items()
    )


def _started_by(path: Path) -> list[ServerCommand]:
    source = Source(path, MAX_BYTES, "a launch file of a server")
    try:
        if source.is_database or source.is_parquet:
            return []
        if not _MARKS.search(source.content()) and not _is_yaml(path):
            return []
        return _commands(source, _NONE)
    except SilicastError as error:
        if error.kind == "unsupported":
            raise
        return []


def _is_yaml(path: Path) -> bool:
    return path.suffix.casefold() in _YAML


def _is_named(path: Path, started: Mapping[Path, Sequence[ServerCommand]]) -> bool:
    """Whether the command of another file, which is no file of options itself, names this one as
    a file of its options.
    """
    words = (
        word.rpartition("=")[2].rpartition("/")[2]
        for other, commands in started.items()
        for command in commands
        if other != path and not command.is_options
        for word in command.arguments
    )
    return path.name in words


def read_server_launch(
    *paths: Path, lookup: ModelLookup, run: str = "", variables: Mapping[str, str] = _NONE
) -> tuple[Tree, list[str]]:
    """The scenario that files which start servers describe, without its traffic.

    Args:
        paths: shell scripts, units of systemd, files of docker compose, objects of Kubernetes, or
            a file of options (``--config``); several are of servers that serve together, beside
            the files of options that they name.
        lookup: of models by their names.
        run: which one of several servers that are not alike; "" = there is one, or they are pools.
        variables: of the shell that starts a script, such as {"TP": "2"}.

    Returns:
        The scenario as a plain tree, without device and workload as far as the file does not state
        them, and remarks: what was assumed, and each flag that was not used, with what it may
        change.

    Raises:
        SilicastError: nothing in the file starts a server, a flag is wrong or left to the shell, or
            it starts several servers and none is chosen.
    """
    by_path = {
        path: _commands(Source(path, MAX_BYTES, "a launch file of a server"), variables)
        for path in paths
    }
    named = [path for path in by_path if len(by_path) > 1 and _is_named(path, by_path)]
    used: set[Path] = set()
    servers: list[_Server] = []
    for path in sorted(by_path, key=named.__contains__):  # those that name others come first
        if path in used:
            continue
        if not by_path[path]:
            raise SilicastError(
                "starts no server that is known, and no other file reads its options"
                if path in named
                else "starts no server that is known",
                file=str(path),
                hint="known: vllm serve, python -m sglang.launch_server, trtllm-serve, "
                "llama-server, text-generation-launcher, in a shell script, docker run, docker "
                "compose or Kubernetes",
            )
        for command in by_path[path]:
            opener = _opener(command, path, named, used)
            servers.append(_Server(*server_of(command, opener, str(path), lookup), command))
    path, stated = paths[0], Stated(run=run, variables=variables)
    servers = _alike(servers)
    if len(servers) > 1 and not _are_pools(servers):
        if any(server.exchanges for server in servers):
            raise refuse_role(servers[0].command, str(path))
        names = {str(n): server.label for n, server in enumerate(servers, 1)}
        servers = [servers[int(stated.chosen(names, str(path))) - 1]]
    elif run:
        raise SilicastError(
            f"has no run {run[:40]!r}: its servers are alike, or pools of one deployment",
            file=str(path),
            field="run",
            hint="leave --run out",
        )
    scenario, more = _scenario(servers)
    remarks = [f"read as a launch of {servers[0].tree['engine']['name']}"]
    remarks += list(dict.fromkeys([*more, *(r for server in servers for r in server.remarks)]))
    device = next((server.command.device for server in servers if server.command.device), "")
    remarks += device_named(device, scenario) if device else []
    if "device" not in scenario:
        remarks.append("device: not stated; name it")
    return {"format": 1, "task": "serving", **scenario}, remarks


def missing_of(scenario: Tree) -> tuple[str, str] | None:
    """The first field that serving needs and a scenario lacks, with what to state; None = nothing.

    >>> missing_of({"model": "Llama-3.1-8B"})[0]
    'workload.arrival'
    """
    work = scenario.get("workload")
    if not isinstance(work, dict) or not isinstance(work.get("arrival"), dict):
        return "workload.arrival", _TRAFFIC
    lengths = () if work["arrival"].get("kind") == "trace" else ("input_len", "output_len")
    lacking = next((name for name in lengths if name not in work), None)
    if lacking:
        return f"workload.{lacking}", _TRAFFIC
    return None if scenario.get("device") else ("device", "--set device=h100")


class _Server:
    """A server with what its command means."""

    def __init__(self, tree: Tree, remarks: list[str], command: ServerCommand) -> None:
        self.tree, self.remarks, self.command = tree, remarks, command
        self.role = str(tree.pop("role"))
        self.count = command.replicas

    @property
    def exchanges(self) -> bool:
        return CONNECTOR in self.tree["engine"].get("options", {})

    @property
    def label(self) -> str:
        """What it is, for people."""
        parallel = ", ".join(f"{n} {v}" for n, v in self.tree["parallel"].items())
        return " ".join(filter(None, (self.command.name, str(self.tree["model"]), parallel)))[:80]


def _commands(source: Source, variables: Mapping[str, str]) -> list[ServerCommand]:
    text = source.text()
    if _is_yaml(source.path):
        all_variables = {**_beside(source.path), **variables}
        documents = documents_of(text, str(source.path), all_variables)
        return commands_in(documents, all_variables) or [
            command for table in documents for command in options_alone(table, source.path.name)
        ]
    is_unit = "[Service]" in text
    if source.is_json and not is_unit:
        return commands_in([source.table], variables)
    if is_unit:
        lines = _UNIT.findall(text)
        text = "\n".join(line for kind, line in lines if kind == "ExecStart")
        pairs = [w.partition("=") for k, line in lines if k == "Environment" for w in split(line)]
        variables = {**{name: value for name, _, value in pairs}, **variables}
    commands = commands_of_script(text, variables)
    if is_unit and "\nEnvironmentFile=" in source.text():
        unread = "variables are not read: EnvironmentFile"
        commands = [replace(command, doubts=(*command.doubts, unread)) for command in commands]
    return commands


def _beside(path: Path) -> dict[str, str]:
    """Variables of the file ``.env`` that stands beside a file of compose."""
    env = path.parent / ".env"
    if not env.is_file():
        return {}
    lines = Source(env, MAX_BYTES, "variables").text().splitlines()
    pairs = [line.strip().partition("=") for line in lines if not line.lstrip().startswith("#")]
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs if name.strip()}


def _opener(
    command: ServerCommand, path: Path, options: Sequence[Path], used: set[Path]
) -> Callable[[str], Mapping[str, Any] | None]:
    """Opens files of options that a command names: of the launch file, given with it, or beside it.

    Args:
        options: files of options that were given; used: those that were opened are added.
    """

    def opened(name: str) -> Mapping[str, Any] | None:
        last = name.rpartition("/")[2]
        for written_name, text in command.files.items():
            if written_name == name or written_name.rpartition("/")[2] == last:
                return table_of(text, Path(last if "." in last else f"{last}.yaml"))
        beside = (path.parent / name, path.parent / last)
        alike = [file for file in options if file.name == last and file != path]
        for candidate in (*(file for file in alike if file in beside), *alike, *beside):
            if candidate.is_file():
                used.add(candidate)
                return Source(candidate, MAX_BYTES, "options of a server").table
        raise SilicastError(
            f"names the file {name[:80]}, which is not beside it",
            kind="io",
            file=str(path),
            field="--config",
            hint="put it into the same folder: it changes what the server does",
        )

    return opened


def _alike(servers: Sequence[_Server]) -> list[_Server]:
    """Servers without those that are alike, which are counted."""
    unlike: list[_Server] = []
    for server in servers:
        same = [e for e in unlike if e.tree == server.tree and e.role == server.role]
        if same:
            same[0].count += server.count
        else:
            unlike.append(server)
    return unlike


def _are_pools(servers: Sequence[_Server]) -> bool:
    """Whether servers together answer requests: some prefill and the others decode."""
    roles = {server.role for server in servers}
    shared = [{n: server.tree.get(n) for n in _SHARED if n != "precision"} for server in servers]
    return roles == {"prefill", "decode"} and all(table == shared[0] for table in shared)


def _scenario(servers: Sequence[_Server]) -> tuple[Tree, list[str]]:
    """One scenario of one pool or of several."""
    first = servers[0]
    if len(servers) == 1:
        scenario = {name: table for name, table in first.tree.items() if table}
        if first.role:
            text = f"the server only does {first.role}s; nothing is known of those beside it"
            raise SilicastError(
                text, field="pools", hint="give one file with the servers of both roles"
            )
        if first.count > 1:
            scenario["pools"] = {"replicas": {"count": first.count}}
        return scenario, []
    scenario = {name: first.tree[name] for name in _SHARED if first.tree.get(name)}
    pools: Tree = {}
    for server in servers:
        alike = sum(name.rstrip("0123456789") == server.role for name in pools)
        name = f"{server.role}{alike + 1}" if alike else server.role
        pools[name] = {"role": server.role, "count": server.count}
        for table in ("parallel", "engine", "precision"):
            if server.tree.get(table) and server.tree[table] != scenario.get(table):
                pools[name][table] = server.tree[table]
    return {**scenario, "pools": pools}, ["prefill and decode run in pools of their own"]
