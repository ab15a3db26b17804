"""What a server's command means: fields of a scenario of task ``serving``."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from silicast.core.errors import SilicastError, unsupported
from silicast.core.naming import near
from silicast.formats.effects import NOTHING, UNKNOWN, WIDENS, WIDER, effects_of
from silicast.formats.fields import Fields, listed_names
from silicast.formats.server_launches.arguments import Opener, arguments_of, known_flags
from silicast.formats.server_launches.commands import ServerCommand
from silicast.formats.server_launches.drafts import lora_of, speculative_of
from silicast.formats.server_launches.host_caches import (
    CONNECTOR,
    OF_HOST_CACHES,
    TRANSFERS,
    in_host_memory,
)
from silicast.formats.server_launches.launcher import Launcher, SplitFlags
from silicast.formats.server_launches.model_facts import ModelFacts, ModelLookup
from silicast.formats.server_launches.weight_files import model_and_mix
from silicast.formats.shell_options import unresolved

Tree = dict[str, Any]
_LEAVES_AS_IT_IS = ("auto", "none", "None", "")
_HALF = ("bfloat16", "float16", "half", "bf16", "fp16")
_CACHES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e4m3fn": "fp8",
    "fp8_e5m2": "fp8_e5m2",
}
_OF_ROLES = (
    f"{TRANSFERS}.kv-role",
    "cache-transceiver-config.backend",
    "disaggregation-transfer-backend",
    "disaggregation-bootstrap-port",
)
"""Flags that a server with a role has, and that change nothing else that is modelled."""


def server_of(
    command: ServerCommand, opened: Opener, file: str, lookup: ModelLookup
) -> tuple[Tree, list[str]]:
    """The part of a scenario that a command states, and remarks.

    Returns:
        Tables ``model``, ``engine``, ``parallel``, ``precision``, ``speculative``, ``lora`` and
        ``cluster``, as far as they are stated, and ``role`` ("" = it does both).

    Raises:
        SilicastError: a value of a flag that changes the run is left to the shell, or is wrong.
    """
    launcher, reads = command.launcher, command.launcher.reads
    by_variables = flags_of_variables(command)
    words = (*(f"--{flag}={value}" for flag, value in by_variables.items()), *command.arguments)
    arguments = arguments_of(launcher, words, opened, file)
    remarks = [
        f"--{short}: read as --{flag}, which alone begins so"
        for short, flag in arguments.abbreviated.items()
    ]
    remarks += command.doubts
    values = {**arguments.values}
    closed_remarks(values, launcher, file, remarks)
    usual = {
        name
        for name, value in values.items()
        if str(value) in (*_LEAVES_AS_IT_IS, *reads.usual.get(name, ()))
    }
    fields = Fields({n: v for n, v in values.items() if n not in usual}, file=file, loose=True)
    model, served, mix = _model(fields, launcher, file, lookup, remarks)
    tree: Tree = {"model": model}
    options: Tree = {}
    if reads.split is None:
        tree["parallel"] = _parallel(fields, launcher, served, remarks)
    else:
        mode = str(values.get(reads.split.mode, "")).casefold()
        tree["parallel"] = _split_over(fields, reads.split, mode, command.devices, remarks)
    weights = {"weights": mix} if mix else {}
    if precision := weights | _precision(fields, launcher, remarks):
        tree["precision"] = precision
    for name, table in (
        ("speculative", speculative_of(launcher.engine, fields, served, lookup, remarks)),
        ("lora", lora_of(fields)),
    ):
        if table:
            tree[name] = table
    tree["role"] = _role(fields, command, remarks)
    options |= _options(fields, launcher)
    if tree["role"]:
        for name in (n for n in fields.names() if n in _OF_ROLES):
            fields.get(name)
        options.pop(CONNECTOR, None)  # a pool with a role has one
        if tree["role"] == "prefill":
            options.pop("async_scheduling", None)  # nor does it decode beside anything
    options |= in_host_memory(fields, command, options, tree["parallel"])
    options |= _variables(command, by_variables, file, remarks)
    if in_node := _in_node(fields, command, tree["parallel"]):
        tree["cluster"] = {"gpus_per_node": in_node}
    engine: Tree = {"name": launcher.engine}
    if command.version:
        engine["version"] = command.version
    remarks += _unused(fields, launcher, options)
    if options:
        engine["options"] = options
    tree["engine"] = engine
    remarks += _devices(command, tree)
    return tree, remarks


def closed_remarks(values: Tree, launcher: Launcher, file: str, remarks: list[str]) -> None:
    """Takes out values that are left to the shell; those that change nothing are remarked.

    Raises:
        SilicastError: one that changes the run.
    """
    for name, value in list(values.items()):
        if not (isinstance(value, str) and unresolved(value)):
            continue
        shown = value[:40]
        if name == "model-path" or effects_of(launcher.engine).effect(name) != NOTHING:
            variable = re.search(r"\$\{?([A-Za-z_]\w*)", shown)
            raise SilicastError(
                f"its value {shown!r} is left to the shell",
                file=file,
                field="model" if name == "model-path" else f"--{name}",
                hint=f"state it: silicast import FILE -o scenario.json --env {variable[1]}=value"
                if variable
                else "write the value into the file",
            )
        del values[name]
        remarks.append(f"not used: --{name}, whose value {shown!r} is left to the shell")


def flags_of_variables(command: ServerCommand) -> Tree:
    """Flags that variables of the environment state, of launchers that take them so."""
    launcher, values = command.launcher, dict[str, Any]()
    if launcher.reads.environment:
        flags = known_flags(launcher)
        for name, value in {**command.variables, **command.environment}.items():
            flag = name.casefold().replace("_", "-")
            if flag in flags and name.isupper() and value:
                values[flag] = value
    return values


def _model(
    fields: Fields, launcher: Launcher, file: str, lookup: ModelLookup, remarks: list[str]
) -> tuple[str, ModelFacts | None, str]:
    """The model's name, by which its configuration is found, the model where it is known, and the
    mix of formats of its file; "" = it is a checkpoint.
    """
    name = fields.text("model-path", default="")
    if launcher.reads.mixes and (name or fields.has("hf-repo")):
        return _weight_file(name, fields, lookup, launcher.reads.mixes, remarks)
    if not name:
        raise SilicastError(
            "the command names no model", file=file, field="model", hint="write it into the command"
        )
    named = fields.text("served-model-name", default="").split()
    for candidate in (name, name.rstrip("/").rpartition("/")[2], *named):
        if (facts := lookup(candidate)) is not None:
            return candidate, facts, ""
    return name, None, ""


def _weight_file(
    path: str, fields: Fields, lookup: ModelLookup, usual: str, remarks: list[str]
) -> tuple[str, ModelFacts | None, str]:
    """The same of a file of weights, which is read itself where it is there.

    Args:
        usual: the mix that is taken from a repository where nothing states one.
    """
    if path[:1] in tuple("./~") and (facts := lookup(path)) is not None:
        return path, facts, ""
    repository = fields.text("hf-repo", default="")
    file_name = fields.text("hf-file", default="")
    model, mix = model_and_mix(path or repository)
    if not path:
        mix = model_and_mix(file_name)[1] or mix
        if not mix:
            mix = usual
            remarks.append(f"{repository} without a mix of formats: {usual} is taken")
    for candidate in (model, model.rstrip("/").rpartition("/")[2]):
        if (facts := lookup(candidate)) is not None:
            return candidate, facts, mix
    return model, None, mix


def _split_over(
    fields: Fields, split: SplitFlags, mode: str, visible: int, remarks: list[str]
) -> Tree:
    """The degree of a model that is split over devices by no degree of its own.

    Args:
        mode: the value of the flag that says how; visible: devices that the command has, 0 = not
            said.

    Raises:
        SilicastError: shares that are no numbers, or all 0.
    """
    text = _text_of(fields, split.shares)
    shares = [] if text == "none" else [part.strip() for part in re.split(r"[,/]", text)]
    held = [share for share in map(_share, shares) if share != 0.0]
    if shares and (not held or any(math.isnan(share) for share in held)):
        raise fields.error(
            f"expected numbers from 0, one of them above 0, found {text[:60]!r}", split.shares
        )
    named = [part for part in _text_of(fields, split.devices).split(",") if part != "none"]
    if mode == split.alone:
        return {}
    devices = len(held) or len(named) or visible
    if len(set(held)) > 1:
        remarks.append(f"--{split.shares} {text}: the devices are taken to have equal shares")
    if not devices:
        remarks.append(
            "a model is split over every device that the server sees: one is taken "
            f"(--{split.shares} 1,1 or CUDA_VISIBLE_DEVICES=0,1 says two)"
        )
    return {split.degrees.get(mode, "pp"): devices} if devices > 1 else {}


def _share(text: str) -> float:
    """A share of a model; NaN = it is none.

    >>> _share("3"), _share("-1"), _share("half")
    (3.0, nan, nan)
    """
    try:
        share = float(text)
    except ValueError:
        return math.nan
    return share if 0.0 <= share < math.inf else math.nan


def _parallel(
    fields: Fields, launcher: Launcher, model: ModelFacts | None, remarks: list[str]
) -> Tree:
    """Degrees; one that is 1 is left out."""
    flags = {name: _flag(flag) for name, flag in launcher.flags.items()}
    tp = fields.count(flags["tp"], default=1) if "tp" in flags else 1
    pp = fields.count(flags["pp"], default=1) if "pp" in flags else 1
    ep = fields.count(flags["ep"], default=1) if "ep" in flags else 1
    groups = fields.count(flags.get("attention_dp", "data-parallel-size"), default=1)
    experts = model is None or model.has_experts
    apart = [_flag(flag) for flag in launcher.switches.get("attention_dp", ())]
    in_groups = [flag for flag in apart if fields.flag(flag)]
    degrees = {"tp": tp, "pp": pp}
    if launcher.options is not None and fields.flag("enable-attention-dp"):
        degrees |= {"tp": 1, "attention_dp": tp}
    elif launcher.tp_counts_groups and groups > 1:
        if in_groups:
            if tp % groups:
                raise fields.error(f"{tp} does not divide by {groups} groups", flags["tp"])
            degrees |= {"tp": tp // groups, "attention_dp": groups}
        else:
            degrees["dp"] = groups
    elif groups > 1:
        degrees["attention_dp" if experts else "dp"] = groups
    spreads = [
        _flag(flag)
        for flag in launcher.switches.get("experts", ())
        if fields.flag(_flag(flag)) and experts
    ]
    spreads += [
        name
        for name, values in launcher.reads.spreads_experts.items()
        if _text_of(fields, name) in values and experts
    ]
    if spreads:
        ep = degrees["tp"] * degrees.get("attention_dp", 1)
        remarks.append(f"experts are spread over all {ep} ranks: --{spreads[0]}")
    degrees["ep"] = ep
    return {name: degree for name, degree in degrees.items() if degree != 1}


def _text_of(fields: Fields, name: str) -> str:
    """A value as text; "none" where the flag is not there."""
    if not fields.has(name):
        return "none"
    value = fields.get(name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _precision(fields: Fields, launcher: Launcher, remarks: list[str]) -> Tree:
    precision: Tree = {}
    apart = launcher.reads.cache_formats
    if any(fields.has(flag) for flag in apart):
        formats = [fields.text(flag, default="f16") for flag in apart]
        precision["kv_cache"] = "/".join(dict.fromkeys(formats))
        return precision
    cache = fields.text("kv-cache-dtype", "kv-cache-config.dtype", default="")
    if cache:
        precision["kv_cache"] = _CACHES.get(cache, cache)
    dtype = fields.text("dtype", default="")
    if dtype in ("float32", "float", "fp32"):
        precision["weights"] = "fp32"
    elif dtype in _HALF:
        remarks.append(f"--dtype {dtype}: 16 bits, as the checkpoint's activations are taken")
    elif dtype:
        raise fields.error(f"expected one of {', '.join(_HALF)}, float32, roles {dtype!r}", "dtype")
    return precision


def _options(fields: Fields, launcher: Launcher) -> Tree:
    """Options of the engine among the flags."""
    reads, options = launcher.reads, dict[str, Any]()
    for name in sorted(fields.names(), key=reads.renamed.__contains__):  # those by name first
        read = fields.count if name in reads.counts else fields.get
        if name in reads.options:
            options[name.replace("-", "_")] = read(name)
        elif name in reads.renamed:
            value, option = read(name), reads.renamed[name]
            if name in reads.largest and not (isinstance(value, list) and len(value) > 1):
                value = value[0] if isinstance(value, list) and value else value
                option = reads.largest[name]
            options[option] = value
        elif name in reads.negated:
            options[reads.negated[name]] = not fields.flag(name)
    sizes = ("cudagraph_capture_sizes", "cuda_graph_bs")
    for name in [n for n in options if n.rpartition(".")[2] in sizes]:
        value = options[name]
        if isinstance(value, str) and re.fullmatch(r"\d+(,\d+)*", value):
            value = [int(size) for size in value.split(",")]
        if value == 0:  # none is captured
            del options[name]
            options["cuda_graph"] = "off"
        else:
            options[name] = value if isinstance(value, list) else [value]
    return options


def _variables(command: ServerCommand, flags: Tree, file: str, remarks: list[str]) -> Tree:
    """Options of the engine among variables of the environment, and remarks about others.

    Args:
        flags: those that variables state, which are read as flags.

    Raises:
        SilicastError: one that changes the run is left to the shell.
    """
    launcher = command.launcher
    effects, options = effects_of(launcher.engine), dict[str, Any]()
    groups: dict[str, list[str]] = {}
    of_flags = {flag.upper().replace("-", "_") for flag in flags}
    for name, value in {**command.variables, **command.environment}.items():
        if name in of_flags:
            continue
        effect = NOTHING if name in OF_HOST_CACHES else effects.effect(name)
        if name in launcher.reads.variables:
            if unresolved(value):
                raise SilicastError(
                    f"its value {value[:40]!r} is left to the shell", file=file, field=name
                )
            options[name] = value
        elif effect not in (NOTHING, UNKNOWN) and value not in ("", "0", "false"):
            groups.setdefault(effect, []).append(f"{name}={value[:30]}")
        elif effect == UNKNOWN and name in command.environment:
            groups.setdefault(UNKNOWN, []).append(name)
    for effect, names in groups.items():
        if effect == UNKNOWN:
            remarks.append(f"variables that are not known and not read: {listed_names(names)}")
        else:
            remarks.append(_not_used(effect, names))
            if effect in WIDENS:
                options.setdefault("unpriced", []).extend(n.partition("=")[0] for n in names)
    return options


def _role(fields: Fields, command: ServerCommand, remarks: list[str]) -> str:
    """What a server does alone, prefill or decode; "" = both."""
    mode = fields.text("disaggregation-mode", default="").casefold()
    mode = mode or fields.text("server-role", default="").casefold()
    by_mode = {"prefill": "prefill", "decode": "decode", "context": "prefill"}
    if mode in (*by_mode, "generation"):
        return by_mode.get(mode, "decode")
    of_kv = fields.get(f"{TRANSFERS}.kv-role")
    moves = fields.has(f"{TRANSFERS}.kv-connector") or any(
        name.startswith("cache-transceiver-config") for name in fields.names()
    )
    if of_kv in ("kv_producer", "kv_consumer"):
        return "prefill" if of_kv == "kv_producer" else "decode"
    if not moves:
        return ""
    values = [word for word in command.arguments if not word.startswith(("-", "{"))]
    words = [*command.hints.split(), *values]
    roles = {
        role
        for word in words
        for role, peer in (("prefill", "decode"), ("decode", "prefill"))
        if role in word.casefold() and peer not in word.casefold()
    }
    if len(roles) != 1:
        return ""
    (role,) = roles
    remarks.append(f"taken as the server that does {role}s, by a name, comment or router beside it")
    return role


def _in_node(fields: Fields, command: ServerCommand, parallel: Mapping[str, int]) -> int:
    """Devices of a node; 0 = one node."""
    nodes = fields.count("nnodes", default=command.nodes)
    total = parallel.get("tp", 1) * parallel.get("pp", 1) * parallel.get("attention_dp", 1)
    local = fields.count("data-parallel-size-local", default=0, least=0)
    if local and "attention_dp" in parallel:
        return local * parallel.get("tp", 1) if local < parallel["attention_dp"] else 0
    if nodes > 1 and total % nodes:
        raise fields.error(f"{total} devices do not divide by {nodes} nodes", "nnodes")
    return total // nodes if nodes > 1 else 0


def _devices(command: ServerCommand, tree: Tree) -> list[str]:
    """A remark where a server is given another number of devices than its degrees ask for."""
    parallel = tree["parallel"]
    needed = 1
    for name in ("tp", "pp", "attention_dp", "dp"):
        needed *= parallel.get(name, 1)
    started = command.devices * command.nodes
    if not started or started == needed or (started < needed and "cluster" in tree):
        return []
    if started < needed:
        return [f"it is given {started} devices and asks for {needed}: it would not start"]
    return [f"it is given {started} devices and uses {needed}"]


def _unused(fields: Fields, launcher: Launcher, options: Tree) -> list[str]:
    """Remarks about flags that nothing asked for, by what they would change."""
    flags, effects = known_flags(launcher), effects_of(launcher.engine)
    groups: dict[str, list[str]] = {}
    for line in fields.unused():
        name = line.partition(" = ")[0]
        effect = effects.effect(name)
        if effect == UNKNOWN and name.partition(".")[0] not in flags:
            groups.setdefault("", []).append(f"--{line}")
        else:
            groups.setdefault(effect, []).append(f"--{line}")
    remarks = []
    for effect, lines in groups.items():
        if effect:
            remarks.append(_not_used(effect, lines))
        else:
            version = f"{launcher.engine} {launcher.version}"
            told = listed_names([_with_nearest(line, flags) for line in lines])
            remarks.append(f"no flag of {version}, would change {UNKNOWN}{WIDER}: {told}")
        if effect in WIDENS or not effect:
            names = [line[2:].partition(" = ")[0] for line in lines]
            options.setdefault("unpriced", []).extend(names)
    return remarks


def _with_nearest(line: str, known: Collection[str]) -> str:
    """A flag that is not known, with the one that it is like.

    >>> _with_nearest("--tensor-paralel-size = 2", ["max-model-len", "tensor-parallel-size"])
    '--tensor-paralel-size = 2 (did you mean tensor-parallel-size?)'
    >>> _with_nearest("--own", ["max-model-len"])
    '--own'
    """
    hint = near(line[2:].partition(" = ")[0], sorted(known), 1)
    return f"{line} ({hint})" if hint.startswith("did you mean") else line


def _not_used(effect: str, lines: list[str]) -> str:
    head = "not used" if effect == NOTHING else f"not used, would change {effect}"
    return f"{head}{WIDER if effect in WIDENS else ''}: {listed_names(lines)}"


def _flag(flag: str) -> str:
    """A flag as arguments name it."""
    return flag.removeprefix("--").replace("_", "-")


def refuse_role(command: ServerCommand, file: str) -> SilicastError:
    """Servers that exchange caches, of which nobody says what they do."""
    return unsupported(
        "moves caches to other servers, and nothing says whether it prefills or decodes",
        f"--{TRANSFERS}",
        'state kv_role, as in {"kv_connector": "...", "kv_role": "kv_producer"}, or name the '
        "service or its comment prefill or decode",
        file=file or command.name,
    )
