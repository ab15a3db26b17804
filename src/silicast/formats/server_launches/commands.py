"""The command that starts a server, among the words of a shell or of a container."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import final

from silicast.formats.server_launches.arguments import flag_named, known_flags
from silicast.formats.server_launches.launcher import Launcher, launchers
from silicast.formats.shell_branches import doubts_of
from silicast.formats.shell_options import host_count
from silicast.formats.shell_runs import ShellRun
from silicast.formats.shell_script import Script

_RELEASE = re.compile(r"(?:^|[:=@-])v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:rc|post|dev)\d+)*)")
_INSTALLED = re.compile(r"(vllm|sglang|tensorrt[-_]llm)(?:\[[^\]]*\])?==([\w.]+)")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(?!=)(.*)", re.DOTALL)
_LEFT = re.compile(r"\$\(\(.{0,200}?\)\)|\$\{?[A-Za-z_]\w*", re.DOTALL)
"""What is left to the shell: sums and variables."""
_NAMES = re.compile(r"[A-Za-z_]\w*")
_DOCKERS = frozenset(("docker", "podman", "nerdctl", "singularity", "apptainer", "enroot"))
_CHAIN = frozenset(("&&", "||", ";", "|", "&"))


@final
@dataclass(frozen=True)
class ServerCommand:
    """What starts servers alike.

    Attributes:
        arguments: the words behind those that start the engine.
        environment: variables that it certainly has; variables: that it may have, of the shell.
        version: release of the engine, by its image or package; "" = not said.
        name: of the service or container; hints: further words that may tell its role.
        replicas: servers alike; devices: that it is given, 0 = not hints.
        device: a name of its devices; files: that stand beside it, by name.
        doubts: what was assumed of its script, for people.
        is_options: it is a file of options alone, which nothing is known to read.
    """

    launcher: Launcher
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    name: str = ""
    hints: str = ""
    replicas: int = 1
    nodes: int = 1
    devices: int = 0
    device: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    is_options: bool = False


def command_in(words: Sequence[str]) -> ServerCommand | None:
    """The server that words start, if they start one.

    >>> server = command_in(["env", "A=1", "vllm", "serve", "org/model", "-tp", "2"])
    >>> server.launcher.engine, server.arguments, dict(server.environment)
    ('vllm', ('org/model', '-tp', '2'), {'A': '1'})
    >>> words = "docker run -e X=1 --gpus 2 vllm/vllm-openai:v0.11.0 --model org/model"
    >>> server = command_in(words.split())
    >>> server.version, server.arguments, server.devices
    ('0.11.0', ('--model', 'org/model'), 2)
    """
    for launcher in launchers():
        for start in launcher.reads.starts:
            if (at := _position(words, start)) is not None:
                tail = words[at + len(start) :]
                is_other_program = tail[:1] and tail[0] in launcher.reads.not_servers
                return None if is_other_program else _command_of(launcher, words[:at], tail)
    for launcher in launchers():
        for at, word in enumerate(words):
            if is_image(launcher, word) and starts_server(launcher):
                return _command_of(launcher, words[: at + 1], words[at + 1 :])
    return None


def options_alone(table: object, name: str) -> list[ServerCommand]:
    """The server whose options a file lists that its command names (``--config``): that of the
    engine which has all of them, where one of them is its model and one an option of its own that
    no other program would call so; none otherwise.

    >>> table = {"model": "org/model", "tensor-parallel-size": 2, "max_num_seqs": 8}
    >>> [(x.launcher.engine, x.arguments) for x in options_alone(table, "x.yaml")]
    [('vllm', ('--config', 'x.yaml'))]
    >>> options_alone({"model": "org/model", "lr": 0.1, "tp": 2}, "x.yaml")
    []
    >>> options_alone({"model": "org/model", "dtype": "bfloat16", "seed": 1}, "x.yaml")
    []
    """
    if not isinstance(table, Mapping) or len(table) < 2:
        return []
    names = {str(key).replace("_", "-") for key, value in table.items() if isinstance(value, str)}
    for launcher in launchers():
        model = {word[2:] for word in launcher.command if word.startswith("--model")} or {"model"}
        flags = {flag_named(launcher, str(key)).partition(".")[0] for key in table}
        telling = flags & _own_flags(launcher)
        if launcher.reads.config and model & names and telling and flags <= known_flags(launcher):
            words = (f"--{launcher.reads.config[0]}", name)
            return [ServerCommand(launcher, words, is_options=True)]
    return []


def _own_flags(launcher: Launcher) -> set[str]:
    """Flags of an engine by whose names it is known: degrees and options of three words or more."""
    reads = launcher.reads
    flags = {flag.partition(".")[0] for flag in (*reads.options, *reads.negated)}
    return {flag for flag in flags.union(reads.aliases.values()) if flag.count("-") > 1}


def commands_of_script(text: str, variables: Mapping[str, str]) -> list[ServerCommand]:
    """Every server that a script starts.

    Raises:
        SilicastError: kind "limit": variables grow beyond a limit.
    """
    script = Script.parse(text, variables)
    installed = {
        name.replace("_", "-"): version
        for words in script.runs
        for name, version in _INSTALLED.findall(" ".join(words))
    }
    packages = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
    roles = _roles_by_comment(text)
    commands = []
    for run in script.commands:
        words, assigned = run.words, run.assigned
        command = command_in(words)
        if command is None:
            continue
        outer = _command_of(command.launcher, run.around, ())
        version = command.version or outer.version
        version = version or installed.get(packages.get(command.launcher.engine, ""), "")
        replicas, doubts = _count_of(run)
        doubts += doubts_of(script.branched, script.missing, script.sourced)
        unexported = set(command.launcher.reads.variables) & (run.variables.keys() - run.exported)
        if names := sorted(unexported - {*assigned, *command.environment, *outer.environment}):
            doubts.append(f"set but not exported, so that the server has not: {', '.join(names)}")
        port = port_of(command.arguments)
        commands.append(
            replace(
                command,
                environment={**outer.environment, **assigned, **command.environment},
                variables=_environment_of(run),
                version=version,
                hints=" ".join((command.hints, roles.get(port, ""), _role_of_port(script, port))),
                replicas=replicas,
                name=command.name or outer.name,
                devices=command.devices or _visible(assigned) or outer.devices,
                files=script.files,
                doubts=tuple(doubts),
            )
        )
    return commands


def _environment_of(run: ShellRun) -> dict[str, str]:
    """Variables of its shell that a command has, too."""
    named = ((name, run.variables.get(name)) for name in sorted(run.exported))
    return {name: value for name, value in named if isinstance(value, str)}


def _count_of(run: ShellRun) -> tuple[int, list[str]]:
    """How many servers a command starts, by the loops around it and the machines it runs on, and
    what was assumed.
    """
    texts = (*run.words, *run.assigned.values(), *run.around)
    used = {name for text in texts for part in _LEFT.findall(text) for name in _NAMES.findall(part)}
    turns = {name: n for name, n in run.loops.items() if name in used or not name}
    doubts = []
    if 0 in turns.values():
        doubts.append("a loop of unknown length starts the server: counted once")
    if not (hosts := host_count(run.around)):
        doubts.append("the machines that the server is started on are not known: counted once")
    if any(word.partition("=")[0] == "--env-file" for word in (*run.words, *run.around)):
        doubts.append("variables are not read: --env-file")
    return math.prod(max(count, 1) for count in (hosts, *turns.values())), doubts


def is_image(launcher: Launcher, word: str) -> bool:
    """Whether a word names an image of the engine, in any registry and with any tag."""
    name = re.split(r"[:@](?!.*/)", word.replace("#", "/"))[0]
    return any(name == image or name.endswith(f"/{image}") for image in launcher.reads.images)


def starts_server(launcher: Launcher) -> bool:
    """Whether a container of the engine's image starts its server by itself."""
    return launcher.entrypoint[0] not in ("python", "python3", "trtllm-serve")


def release_in(word: str) -> str:
    """The release that an image's tag names; "" = none.

    >>> release_in("vllm/vllm-openai:v0.11.0"), release_in("lmsysorg/sglang:v0.5.3.post1-cu126")
    ('0.11.0', '0.5.3.post1')
    >>> release_in("vllm/vllm-openai:latest")
    ''
    """
    tag = word.rpartition("/")[2].partition(":")[2]
    match = _RELEASE.match(f":{tag}") if tag else None
    return match[1] if match else ""


def port_of(arguments: Sequence[str]) -> str:
    """The port that arguments name; "" = the engine's assigned."""
    for word, following in _pairs(arguments):
        if word == "--port":
            return following
        if word.startswith("--port="):
            return word.partition("=")[2]
    return ""


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word with the one behind it; the last with ""."""
    return itertools.zip_longest(words, words[1:], fillvalue="")


def _without_settings(words: Sequence[str]) -> Iterator[str]:
    """Words without the values of ``-o``, by which ``ssh`` is given settings of a connection."""
    return (word for before, word in zip(("", *words), words, strict=False) if before != "-o")


def _position(words: Sequence[str], start: Sequence[str]) -> int | None:
    """Where words begin that start a server; programs may be stated with their folder."""
    for at in range(len(words) - len(start) + 1):
        here = [PurePosixPath(words[at]).name, *words[at + 1 : at + len(start)]]
        if here == list(start) and "install" not in words[:at]:
            return at
    return None


def _command_of(
    launcher: Launcher, before: Sequence[str], arguments: Sequence[str]
) -> ServerCommand:
    """A command by the words before and behind what starts it."""
    environment: dict[str, str] = {}
    devices, name, version = 0, "", ""
    in_docker = any(PurePosixPath(word).name in _DOCKERS for word in before)
    for word, following in _pairs([*_without_settings(before)]):
        if in_docker and word in ("-e", "--env"):
            environment |= _assignment(following)
        elif in_docker and re.match(r"(-e|--env)=?[A-Za-z_]\w*=", word):
            environment |= _assignment(re.sub(r"^(-e|--env)=?", "", word))
        elif in_docker and word == "--name":
            name = following
        elif in_docker and word.partition("=")[0] == "--gpus":
            devices = _docker_devices(word.partition("=")[2] or following)
        elif not in_docker and not word.startswith("-"):
            environment |= _assignment(word)
        if is_image(launcher, word):
            version = release_in(word)
    end = next((at for at, word in enumerate(arguments) if word in _CHAIN), len(arguments))
    return ServerCommand(
        launcher,
        tuple(arguments[:end]),
        environment,
        version=version,
        name=name,
        hints=name,
        devices=devices or _visible(environment),
    )


def _assignment(word: str) -> dict[str, str]:
    match = _ASSIGNED.fullmatch(word)
    return {match[1]: match[2]} if match else {}


def _docker_devices(word: str) -> int:
    """Devices by the value of docker's ``--gpus``; 0 = all, or not hints."""
    word = word.strip("\"'")
    if word.isdigit():
        return int(word)
    listed = word.partition("device=")[2].strip("\"'")
    return len(listed.split(",")) if listed else 0


def _visible(environment: Mapping[str, str]) -> int:
    """Devices that a variable of the driver lists; 0 = none does."""
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    listed = next((environment[name] for name in names if environment.get(name)), "")
    return len(listed.split(",")) if re.fullmatch(r"[\d,\s]+", listed) else 0


def _roles_by_comment(text: str) -> dict[str, str]:
    """Port of a command -> the comment above its line."""
    comments: dict[str, str] = {}
    comment = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment = line
        elif match := re.search(r"--port[ =](\S+)", line):
            comments[match[1]] = comment
            comment = ""
    return comments


def _role_of_port(script: Script, port: str) -> str:
    """A role by the option of a router that names a server's port."""
    if not port:
        return ""
    for words in script.runs:
        for word, following in _valued(words):
            if re.search(rf"(?:^|:|\b){re.escape(port)}\b", following):
                if re.search("prefill", word):
                    return "prefill"
                if re.search("decod", word):
                    return "decode"
    return ""


def _valued(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options with each of their values."""
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            if value:
                yield name, value
        elif name:
            yield name, word


def quoted(words: Sequence[str]) -> str:
    """Words as a line of a shell, in which nothing is expanded."""
    return shlex.join(words)
