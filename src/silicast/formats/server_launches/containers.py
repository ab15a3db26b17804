"""Servers that containers start: docker compose, Kubernetes and what builds on it.

A table that has an image or a command is a container, wherever it stands; what stands above it says
how many there are, its devices, and files. No kind of object has rules of its launcher.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from silicast.formats.server_launches.commands import (
    ServerCommand,
    command_in,
    commands_of_script,
    is_image,
    quoted,
    release_in,
    starts_server,
)
from silicast.formats.server_launches.helm_values import as_container, degrees_of, model_of
from silicast.formats.server_launches.launcher import launchers
from silicast.formats.shell_options import script_in
from silicast.formats.yaml_file import parse_yaml

_DOCUMENT = re.compile(r"^---[ \t]*(?:#.*)?$", re.MULTILINE)
_OF_COMPOSE = re.compile(r"\$(?:\{(\w+)(?::?([-?])((?:[^{}]|\{[^{}]*\})*))?\}|(\w+)|(\$))")
_OF_PODS = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_NAMED = re.compile(r"\$[({]?([A-Za-z_]\w*)")
_PRODUCT = re.compile(r"gpu\.product|gke-accelerator|gpu-model|gpu\.type|instance-type")
_REPLICAS = ("replicas", "minReplicas", "scale", "replicaCount")
_ADDED = "VLLM_ADDITIONAL_ARGS"
"""Further arguments of the command that KServe's launcher templates state."""
_SHELLS = frozenset(("sh", "bash"))


@final
@dataclass(frozen=True)
class _Above:
    """What tables around a container say."""

    names: tuple[str, ...] = ()
    replicas: int = 1
    nodes: int = 1
    devices: int = 0
    device: str = ""
    model: str = ""
    degrees: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def documents_of(text: str, file: str, variables: Mapping[str, str]) -> list[Any]:
    """The documents of a YAML text; what compose puts in for variables is put in.

    Raises:
        SilicastError: a document is no YAML, or a template.
    """
    if re.search(r"^services:", text, re.MULTILINE) and "apiVersion:" not in text:
        text = _OF_COMPOSE.sub(lambda match: _put_in(match, variables), text)
    parts = [part for part in _DOCUMENT.split(text) if part.strip()]
    return [parse_yaml(part, file) for part in parts]


def commands_in(documents: Sequence[Any], variables: Mapping[str, str]) -> list[ServerCommand]:
    """Every server that containers of the documents start."""
    files = {
        name: text
        for document in documents
        if isinstance(document, dict)
        for name, text in _files_of(document)
    }
    above = _Above(files=files)
    return [command for document in documents for command in _walk(document, above, variables)]


def _put_in(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match[5]:
        return "$"
    value = variables.get(match[1] or match[4])
    if value is not None:
        return value
    return match[3] if match[2] == "-" else match[0]


def _files_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Texts of a ConfigMap, and of compose's configs."""
    if document.get("kind") == "ConfigMap" and isinstance(document.get("data"), dict):
        yield from ((n, t) for n, t in document["data"].items() if isinstance(t, str))
    configs = document.get("configs")
    for name, table in configs.items() if isinstance(configs, dict) else ():
        if isinstance(table, dict) and isinstance(table.get("content"), str):
            yield name, table["content"]


def _walk(node: Any, above: _Above, variables: Mapping[str, str]) -> Iterator[ServerCommand]:
    if isinstance(node, list):
        for item in node:
            yield from _walk(item, above, variables)
    if not isinstance(node, dict):
        return
    node = as_container(node, above.model)
    above = _with(node, above)
    yield from _started(node, above, variables)
    apart = isinstance(node.get("prefill"), dict) and "decode" not in node
    for name, item in node.items():
        # tables x-... of compose are templates, which start nothing by themselves
        if isinstance(item, dict | list) and not str(name).startswith("x-"):
            # who states prefill apart decodes in the rest
            role = ("decode",) if apart and name != "prefill" else ()
            inner = replace(above, names=(*above.names[-8:], *role, str(name)))
            yield from _walk(item, inner, variables)


def _with(node: Mapping[str, Any], above: _Above) -> _Above:
    """What a table adds to those around it."""
    changes: dict[str, Any] = {}
    deploy_node = node.get("deploy")
    deploy: Mapping[str, Any] = deploy_node if isinstance(deploy_node, dict) else {}
    for table in (node, deploy):
        for name in _REPLICAS:
            count = table.get(name)
            if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                changes["replicas"] = count
    if isinstance(node.get("size"), int) and "workerTemplate" in node:
        changes["nodes"] = node["size"]
    gpus = {"limits": {"gpu": node.get("requestGPU")}}  # of a chart
    if devices := _devices(node.get("resources") or deploy.get("resources") or gpus):
        changes["devices"] = devices
    stated_here = {"degrees": degrees_of(node), "model": model_of(node)}
    changes |= {name: value for name, value in stated_here.items() if value}
    selector = node.get("nodeSelector")
    for key, value in selector.items() if isinstance(selector, dict) else ():
        if _PRODUCT.search(str(key)):
            changes["device"] = str(value)
    metadata = node.get("metadata")
    names = [node.get("name"), metadata.get("name") if isinstance(metadata, dict) else None]
    names += [node.get("subComponentType")]
    changes["names"] = (*above.names, *(name for name in names if isinstance(name, str)))
    changes["environment"] = {**above.environment, **_environment(node)}
    return replace(above, **changes)


def _environment(node: Mapping[str, Any]) -> dict[str, str]:
    """Variables of a table or a list, in the forms of compose and of Kubernetes."""
    values: dict[str, str] = {}
    for key in ("environment", "env", "envs"):
        table = node.get(key)
        if isinstance(table, dict):
            values |= {str(n): _text(v) for n, v in table.items() if not isinstance(v, dict)}
        for entry in table if isinstance(table, list) else ():
            if isinstance(entry, dict) and "value" in entry:
                values[str(entry.get("name"))] = _text(entry["value"])
            elif isinstance(entry, str) and "=" in entry:
                name, _, value = entry.partition("=")
                values[name] = value
    return values


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return str(value)


def _devices(resources: Any) -> int:
    """Devices of one container; 0 = not hints."""
    if not isinstance(resources, dict):
        return 0
    for name in ("limits", "requests"):
        table = resources.get(name)
        for key, count in table.items() if isinstance(table, dict) else ():
            if str(key) in ("nvidia.com/gpu", "amd.com/gpu", "gpu") and str(count).isdigit():
                return int(count)
    reserved = resources.get("reservations")
    listed = reserved.get("devices") if isinstance(reserved, dict) else None
    for device in listed if isinstance(listed, list) else ():
        if isinstance(device, dict) and isinstance(device.get("device_ids"), list):
            return len(device["device_ids"])
        if isinstance(device, dict) and isinstance(device.get("count"), int):
            return int(device["count"])
    return 0


def _started(
    node: Mapping[str, Any], above: _Above, variables: Mapping[str, str]
) -> Iterator[ServerCommand]:
    """Servers of a table that is a container."""
    image = node["image"] if isinstance(node.get("image"), str) else ""
    start = [*_words(node.get("entrypoint")), *_words(node.get("command"))]
    words = [*start, *_words(node.get("args"))]
    words += above.degrees if "modelCommand" in node else ()
    environment = {**variables, **above.environment}
    put_in = {name for word in words for name in _NAMED.findall(word)}
    unused = {n: v for n, v in above.environment.items() if n not in put_in}
    words = [_OF_PODS.sub(lambda m: environment.get(m[1], m[0]), word) for word in words]
    launcher = next(
        (candidate for candidate in launchers() if image and is_image(candidate, image)), None
    )
    added = above.environment.get(_ADDED)
    if launcher is not None and not words and added is not None:
        words = ["vllm", "serve", above.model, *split(added)]
    if not words and launcher is None:
        return
    if launcher is not None and command_in(words) is None and not _is_shell(words):
        # a pod's command stands in place of the image's program, compose's behind it
        replaces = "args" in node or not _IN_PODS.isdisjoint(above.names)
        command_words = _words(node.get("entrypoint")) or (replaces and _words(node.get("command")))
        if command_words or not starts_server(launcher):
            return
        words = [image, *words]
    if _is_shell(words) and words[-1] == (inner := script_in(words)):
        # a script may set anew what the container has
        text = f"{_assignments(above.environment)}\n{inner}"
        outer = {n: v for n, v in variables.items() if n not in above.environment}
        servers = commands_of_script(text, outer)
    else:
        servers = commands_of_script(quoted(words), environment)
    unread = [f"variables are not read: {n}" for n in ("env_file", "envFrom") if node.get(n)]
    for server in servers:
        hints = " ".join((*above.names[-6:], str(image)))
        changed = {n: v for n, v in server.variables.items() if environment.get(n) != v}
        others = {n: v for n, v in unused.items() if n not in changed}
        yield replace(
            server,
            environment={**others, **server.environment},
            variables=changed,
            version=server.version
            or (release_in(image) if is_image(server.launcher, image) else ""),
            name=next((n for n in reversed(above.names) if n not in _NO_NAMES), ""),
            hints=f"{server.hints} {hints}",
            replicas=above.replicas * server.replicas,
            nodes=above.nodes,
            devices=server.devices or above.devices,
            device=above.device,
            files={**above.files, **server.files},
            doubts=(*server.doubts, *unread),
        )


_IN_PODS = frozenset(("containers", "initContainers"))
_NO_NAMES = frozenset(
    ("containers", "spec", "template", "server", "main", "vllm", "sglang", "mainContainer")
)


def _assignments(variables: Mapping[str, str]) -> str:
    """Lines of a shell that set variables."""
    named = (name for name in variables if name.isidentifier() and name.isascii())
    return "\n".join(f"{name}={shlex.quote(variables[name])}" for name in named)


def _is_shell(words: Sequence[str]) -> bool:
    return bool(words) and words[0].rpartition("/")[2] in _SHELLS


def _words(value: Any) -> list[str]:
    """Words of a list, or of a line as a shell divides it."""
    if isinstance(value, list):
        return [_text(item) for item in value]
    return split(value) if isinstance(value, str) else []


def split(line: str) -> list[str]:
    """Words of a line as a shell divides it; as blanks do where a quote does not end."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
