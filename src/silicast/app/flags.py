"""Command-line flags to scenarios: the same structure that a scenario file holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, final

from cyclopts import Parameter, validators

from silicast.app.arguments import described, placed
from silicast.core.errors import SilicastError
from silicast.core.plain_data import value_of_word

Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]

Strict = Annotated[bool, Parameter(name="--strict", negative="", show_default=False)]

Calibrations = Annotated[list[Path] | None, Parameter(name="--calibration", negative="")]

Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]

F = TypeVar("F")

LENGTHS = ("q_lens", "kv_lens")
"""Fields of a kernel that are lists, even of one."""
PLAN_DEGREES = ("tp", "pp", "dp", "ep", "cp", "attention_dp")


def flags_of(kind: type[F], arguments: Mapping[str, Any]) -> F:
    """Flags of a command from the arguments of the Python function that does the same.

    Args:
        arguments: by name; those that are None or no flags of this kind are left out.

    >>> flags_of(Degrees, {"model": "Llama-3.1-8B", "tp": 2, "pp": None})
    Degrees(tp=2, pp=None, ep=None, attention_dp=None)
    """
    names: Mapping[str, Any] = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return kind(**{n: value for n, value in arguments.items() if n in names and value is not None})


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@described()
class BatchFlags:
    """What runs: a model with its precision under an engine, and one batch of requests."""

    model: str
    batch: int = 1
    input_len: int | None = None
    output_len: int | None = None
    engine: str | None = None
    engine_version: str | None = None
    option: Annotated[list[str] | None, Parameter(negative="")] = None
    dtype: str | None = None
    weights: str | None = None
    kv_dtype: str | None = None
    power_w: float | None = None


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@described("serve")
class Degrees:
    """How a model is spread over devices."""

    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    attention_dp: int | None = None

    @property
    def given(self) -> dict[str, int]:
        """The degrees that were given, as a scenario writes them."""
        degrees = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return {name: degree for name, degree in degrees if degree is not None}


def inference_scenario(
    batch_flags: BatchFlags, parallel: dict[str, int], device: str
) -> dict[str, Any]:
    """The scenario that a static batch's flags stand for; what was left out stays left out, but for
    its lengths.
    """
    from silicast.scenario.reading.usual_lengths import usual_lengths

    lengths = usual_lengths(str(batch_flags.model), batch_flags.input_len, batch_flags.output_len)
    scenario: dict[str, Any] = {
        "format": 1,
        "task": "inference",
        "model": batch_flags.model,
        "device": device,
        "workload": {"batch": batch_flags.batch, **lengths},
    }
    if parallel:
        scenario["parallel"] = parallel
    engine = engine_of(
        batch_flags.engine, batch_flags.engine_version, batch_flags.option, "inference"
    )
    if engine is not None:
        scenario["engine"] = engine
    names = ("dtype", "weights", "kv_dtype", "power_w")
    return placed(scenario, {name: getattr(batch_flags, name) for name in names})


def engine_of(
    name: str | None, version: str | None, options: list[str] | None, task: str
) -> str | dict[str, Any] | None:
    """The engine of flags as a scenario writes it; None where nothing is stated.

    >>> engine_of("llama.cpp", None, ["n_cpu_moe=8"], "inference")
    {'name': 'llama.cpp', 'options': {'n_cpu_moe': 8}}
    """
    table: dict[str, Any] = {}
    if options:
        table["options"] = key_values(options, "--option", "async_scheduling=false")
    if version is not None:
        table["version"] = version
    if not table:
        return name
    if name is None:
        from silicast.composition.engines.engine import default_engine

        name = default_engine(task)
    return {"name": name, **table}


def kernel_scenario(op: str, fields: list[str], device: str) -> dict[str, Any]:
    """The scenario of one kernel from ``key=value`` words.

    >>> kernel_scenario("gemm", ["m=8", "dtype=bf16", "causal=true"], "h100")["workload"]["kernel"]
    {'op': 'gemm', 'm': 8, 'dtype': 'bf16', 'causal': True}
    """
    kernel: dict[str, Any] = {"op": op}
    for name, value in key_values(fields).items():
        table, dot, inner = name.partition(".")
        if dot:  # of an inner table, as configuration.tile_m=64
            kernel.setdefault(table, {})[inner] = value
        else:
            kernel[name] = value
    for name in LENGTHS:
        if name in kernel and not isinstance(kernel[name], list):
            kernel[name] = [kernel[name]]
    return {"format": 1, "task": "kernel", "device": device, "workload": {"kernel": kernel}}


TEXTS = ("version", "name", "model", "engine", "device", "library", "library_version", "variant")
"""Last parts of keys that hold text, even if it looks like a number ("0.10")."""


def key_values(
    words: list[str], field: str = "kernel", example: str = "m=4096 n=4096 k=4096 dtype=bf16"
) -> dict[str, Any]:
    """``key=value`` words as typed fields.

    Args:
        field, example: what an error names and offers.

    Raises:
        SilicastError: a word has no "=", or a key stands twice.

    >>> key_values(["parallel.tp=2", "engine.version=0.10"])
    {'parallel.tp': 2, 'engine.version': '0.10'}
    """
    fields: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or not text:
            raise SilicastError(
                f"expected key=value, found {word[:60]!r}",
                field=field,
                hint=f"for example {example}",
            )
        if key in fields:
            raise SilicastError(f"{key!r} is given twice", field=field, hint="give it once")
        fields[key] = text if key.rpartition(".")[2] in TEXTS else _value(text)
    return fields


TABLE_EXAMPLES = {"speculative": "method=eagle,k=3,acceptance=0.7", "lora": "rank=16,adapters=8"}


def table_of(name: str, text: str) -> dict[str, Any]:
    """A table of a scenario from what a flag of its name says.

    >>> table_of("lora", "rank=16, adapters=8")
    {'rank': 16, 'adapters': 8}
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    return key_values(words, f"--{name}", TABLE_EXAMPLES[name])


def plan_degrees(text: str) -> dict[str, int]:
    """A plan such as ``tp=2,pp=2``.

    >>> plan_degrees("tp=2,pp=2")
    {'tp': 2, 'pp': 2}

    Raises:
        SilicastError: an unknown degree, or one that is not a whole number.
    """
    if not text.strip():
        raise SilicastError("is empty", field="--plan", hint="for example tp=2,pp=2")
    plan = key_values([word.strip() for word in text.split(",")], "--plan", "tp=2,pp=2")
    for name, degree in plan.items():
        if name not in PLAN_DEGREES:
            raise SilicastError(
                f"unknown degree {name!r}", field="--plan", hint=f"one of {', '.join(PLAN_DEGREES)}"
            )
        if not isinstance(degree, int) or isinstance(degree, bool):
            raise SilicastError(f"{name} = {degree!r} is not a whole number", field="--plan")
    return plan


def _value(text: str) -> Any:
    """A number, true or false, a list of numbers (1,2,3 or [1,2,3]; of one: 1, or [1]), or text."""
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip().removesuffix(",")
        return [_value(part.strip()) for part in inner.split(",")] if inner else []
    if "," in text:
        return [_value(part) for part in text.removesuffix(",").split(",")]
    return value_of_word(text)
