"""What is wrong with a command line, in one line that says what to type instead."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cyclopts import CycloptsError, UnknownOptionError

ELSEWHERE: Final = {
    "gpu": ("device",), "gpu_type": ("device",), "hardware": ("device",), "system": ("device",),
    "accelerator": ("device",), "num_gpus": ("gpus", "tp"), "total_gpus": ("gpus", "tp"),
    "model_path": ("model",), "model_id": ("model",), "checkpoint": ("model",),
    "quantization": ("dtype",), "precision": ("dtype",), "kv_cache_dtype": ("kv_dtype",),
    "tensor_parallel_size": ("tp",), "tensor_model_parallel_size": ("tp",),
    "pipeline_parallel_size": ("pp",), "pipeline_model_parallel_size": ("pp",),
    "expert_parallel_size": ("ep",), "data_parallel_size": ("dp", "attention_dp", "replicas"),
    "batch_size": ("batch",), "global_batch_size": ("global_batch",),
    "micro_batch_size": ("micro_batch",), "seq_length": ("seq_len",), "gbs": ("global_batch",),
    "mbs": ("micro_batch",), "context_parallel_size": ("cp",),
    "isl": ("input_len",), "prompt_len": ("input_len",),
    "random_input_len": ("input_len",),
    "osl": ("output_len",), "max_tokens": ("output_len",), "random_output_len": ("output_len",),
    "qps": ("rate",), "request_rate": ("rate",), "max_concurrency": ("concurrency",),
    "num_prompts": ("requests",), "num_requests": ("requests",), "goodput": ("slo",),
    "backend": ("engine",), "framework": ("engine",), "power_limit": ("power_w",),
}  # fmt: skip
"""What other tools call it -> our options, the first of them that a command has."""

TASKS: Final = {
    "infer": "inference", "serve": "serving", "capacity": "serving", "train": "training",
    "graph": "graph",
}  # fmt: skip
"""Commands of one task -> that task."""
MOST_COMMANDS = 6
MODEL_LATER: Final = frozenset(("serve", "capacity"))
"""Commands whose model a launch file may name, so that the parser does not ask for it."""


def said_of(error: CycloptsError) -> str:
    """What a command line lacks, and the word to type for one that nobody knows."""
    from cyclopts import MissingArgumentError, UnknownOptionError, UnusedCliTokensError

    error.verbose = False
    if isinstance(error, UnknownOptionError):
        typed = str(error.token.keyword or error.token.value).partition("=")[0]
        options = [name for each in error.argument_collection for name in each.names]
        ours = meant(typed, options)
        if ours:
            return f"Unknown option: {typed}. It is {ours} here."
        if "FIELDS" in options and (field := field_of(typed)):
            return f"Unknown option: {typed}. Write {field}={_value(error)}"
        command = " ".join(error.command_chain or ())
        if field := scenario_field(command, typed):
            return f"Unknown option: {typed}. A scenario states it: {field} (silicast run)"
        if others := commands_with(typed):
            return f"Unknown option: {typed}. It is of silicast {', '.join(others)}"
    if isinstance(error, UnusedCliTokensError):
        free = error.unused_tokens or []
        word = loose(free, "model") if {*(error.command_chain or ())} & MODEL_LATER else ""
        named = f": write --model {word}" if word else ""
        return f"{' '.join(free)}: expected options alone{named}"
    if (
        not isinstance(error, MissingArgumentError)
        or error.argument is None
        or error.tokens_so_far
        or error.keyword is not None  # it is there, without a value
    ):
        return " ".join(str(error).split())
    name, unused = error.argument.name, error.unused_tokens or ()
    unknown = [token for token in unused if token.startswith("-")]
    if unknown and (ours := meant(unknown[0], [name])):
        return f"{name} is missing: {unknown[0]} is {ours} here"
    if unknown:
        return f"{name} is missing, and there is no {', '.join(unknown)}"
    if name.startswith("--") and (word := loose(unused, name.lstrip("-"))):
        return f"{name} is missing: write {name} {word}"
    return f"{name} is missing"


def meant(typed: str, options: Collection[str]) -> str:
    """Our option for what another tool calls so; "" = none.

    >>> meant("--qps", ["--rate", "--tp"]), meant("--request_rate", ["--rate"]), meant("--qps", [])
    ('--rate', '--rate', '')
    """
    word = typed.lstrip("-").replace("-", "_").lower()
    ours = (f"--{name.replace('_', '-')}" for name in ELSEWHERE.get(word, ()))
    return next((name for name in ours if name in options), "")


def scenario_field(command: str, typed: str) -> str:
    """The field of a scenario that is typed as an option of the command of its task; "" = none.

    >>> scenario_field("train", "--task"), scenario_field("train", "--frobnicate")
    ('workload.task', '')
    """
    from silicast.scenario.schema import RawScenario
    from silicast.scenario.workloads import BY_TASK

    task, word = TASKS.get(command), typed.lstrip("-").replace("-", "_")
    if task is None:
        return ""
    if word in BY_TASK[task].__struct_fields__:
        return f"workload.{word}"
    return word if word in RawScenario.__struct_fields__ else ""


def commands_with(option: str) -> list[str]:
    """Commands that have an option of just this name, at most :data:`MOST_COMMANDS`.

    >>> commands_with("--tokens-per-user"), commands_with("--frobnicate")
    (['compare'], [])
    """
    table = _options_of_commands()
    return [name for name, options in table.items() if option in options][:MOST_COMMANDS]


@cache
def _options_of_commands() -> dict[str, frozenset[str]]:
    """Names of the options of each command that has some."""
    from silicast.app.cli import build_app

    app = build_app()
    return {
        name: frozenset(word for a in app[name].assemble_argument_collection() for word in a.names)
        for name in app
        if not name.startswith("-") and app[name].default_command is not None
    }


def field_of(typed: str) -> str:
    """The field of a kernel that is typed as an option; "" = none.

    >>> field_of("--dtype"), field_of("--num-heads"), field_of("--frobnicate")
    ('dtype', 'num_heads', '')
    """
    from silicast.scenario.kernels.kernel_case import OPS

    name = typed.lstrip("-").replace("-", "_")
    tables = ((s.required, s.optional, s.flags, s.words, s.dtypes) for s in OPS.values())
    fields = {"dtype", *(field for table in itertools.chain(*tables) for field in table)}
    return name if name in fields else ""


def _value(error: UnknownOptionError) -> str:
    """The value that follows an unknown option, or stands behind its "="."""
    word = str(error.token.value)
    following = dict(pairwise(error.unused_tokens or ())).get(word, "")
    behind = word.partition("=")[2] or ("" if following.startswith("-") else following)
    return behind or "VALUE"


def loose(tokens: Sequence[str], kind: str = "") -> str:
    """The first word that belongs to no option, sets no field and is no name of another kind; "" =
    none.

    >>> loose(["Qwen3-8B", "h100"]), loose(["--gpu", "h100"]), loose([])
    ('Qwen3-8B', '', '')
    >>> loose(["m=64", "h100", "Qwen3-8B"], "model")
    'Qwen3-8B'
    """
    from silicast.scenario.reading.kinds_of_names import kinds_of

    pairs = pairwise(("", *tokens))
    words = (b for a, b in pairs if not (a.startswith("-") or b.startswith("-") or "=" in b))
    kinds_by_word = ((word, kinds_of(word) if kind else {}) for word in words)
    fits = {kind, "design"} if kind == "device" else {kind}
    return next((word for word, kinds in kinds_by_word if not kinds or fits & kinds.keys()), "")
