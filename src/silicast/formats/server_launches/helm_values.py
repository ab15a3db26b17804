"""Values of Helm charts that start servers of vLLM, as the containers that the charts make of them.

vLLM's production stack lists models with a table ``vllmConfig``; llm-d's model service states the
model and the degrees around containers with a ``modelCommand``. Both as recalled; no chart was
read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from silicast.formats.server_launches.arguments import known_flags
from silicast.formats.server_launches.launcher import launcher_of

_HUB = "hf://"
_DEGREES = {"tensor": "--tensor-parallel-size", "data": "--data-parallel-size"}
_OF_CACHES = ("enabled", "cpuOffloadingBufferSize")
_CONNECTOR = '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'


def as_container(node: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """A table of values as the container that its chart makes; others as they are.

    Args:
        model: that tables around it name.

    >>> made = as_container({"modelURL": "org/m", "vllmConfig": {"maxModelLen": 4096}}, "")
    >>> made["command"], made["args"]
    (['vllm', 'serve', 'org/m'], ['--max-model-len', '4096'])
    """
    config = node.get("vllmConfig")
    if isinstance(config, dict) and isinstance(node.get("modelURL"), str):
        made: dict[str, Any] = {
            "command": ["vllm", "serve", node["modelURL"]],
            "args": list(_arguments(config)),
        }
        if isinstance(node.get("repository"), str):
            made["image"] = f"{node['repository']}:{node.get('tag', 'latest')}"
        cache = node.get("lmcacheConfig")
        if isinstance(cache, dict) and cache.get("enabled"):
            made["args"] += ["--kv-transfer-config", _CONNECTOR]
            unread = {name: value for name, value in cache.items() if name not in _OF_CACHES}
            made["args"] += _words_of("lmcacheConfig", unread, {})
            size = str(cache.get("cpuOffloadingBufferSize", ""))
            made["env"] = [
                *(node["env"] if isinstance(node.get("env"), list) else ()),
                {"name": "LMCACHE_MAX_LOCAL_CPU_SIZE", "value": size},
            ]
        return {**node, **made}
    if node.get("modelCommand") == "vllmServe" and model:
        return {**node, "command": ["vllm", "serve", model]}
    return node


def model_of(node: Mapping[str, Any]) -> str:
    """The model that a table of artefacts names, by its place on the hub where it has one; "" =
    none.
    """
    named = ""
    for table in (node.get("modelArtifacts"), node.get("model")):
        if isinstance(table, dict):
            name, uri = str(table.get("name") or ""), str(table.get("uri") or "")
            named = uri.removeprefix(_HUB) if uri.startswith(_HUB) else name or named
    return named


def degrees_of(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Arguments that a table ``parallelism`` stands for; further fields by their names in it.

    >>> degrees_of({"parallelism": {"tensor": 2, "workers": 4}})
    ('--tensor-parallel-size', '2', '--parallelism.workers', '4')
    """
    return tuple(_words_of("parallelism", node.get("parallelism"), _DEGREES))


def _words_of(table: str, fields: Any, flags: Mapping[str, str]) -> Iterator[str]:
    """Fields of a table by the flags that they are, else by their names in it, which are listed as
    not used.
    """
    for name, value in fields.items() if isinstance(fields, dict) else ():
        yield flags.get(str(name), f"--{table}.{name}")
        yield json.dumps(value) if isinstance(value, dict | list) else str(value)


def _arguments(config: Mapping[str, Any]) -> Iterator[str]:
    """Arguments by fields: their names are those of the flags without hyphens."""
    flags = {flag.replace("-", ""): flag for flag in known_flags(launcher_of("vllm"))}
    for name, value in config.items():
        flag = flags.get(str(name).casefold(), str(name))
        if name == "extraArgs" and isinstance(value, list):
            yield from map(str, value)
        elif isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif value not in (None, "") and name not in ("v0", "v1"):
            yield f"--{flag}"
            yield json.dumps(value) if isinstance(value, dict | list) else str(value)
