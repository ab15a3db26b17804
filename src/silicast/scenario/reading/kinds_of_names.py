"""What an unknown name is a name of: a model where a device is asked for, and the like."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from silicast.core.dtypes import recipe_for
from silicast.core.errors import SilicastError, errors_located, unknown_name
from silicast.core.plain_data import shown
from silicast.scenario.schema import OWN_FORMAT

FILES = {
    "device": "a device file ends in .toml",
    "model": "a model is a config.json, or a folder with one",
    "engine": "an engine file ends in .toml",
}
"""Kind of name -> what its file looks like."""


def with_kind(
    error: SilicastError, spec: str | dict[str, Any], folder: Path = Path()
) -> SilicastError:
    """An unknown name's error with what the name is a name of, where it is one of another kind, or
    the path of a file (relative to ``folder``).

    >>> unknown = unknown_name("unknown device 'vllm'", "device", "did you mean L4?")
    >>> str(with_kind(unknown, "vllm"))
    "device: unknown device 'vllm' (vllm is an engine)"
    >>> with_kind(unknown, "h100, l4").message
    'expected one device, found 2: h100, l4'
    """
    if error.kind != "unknown_name" or not isinstance(spec, str) or not error.field:
        return error
    kind = error.field.rpartition(".")[2]
    names = [name.strip() for name in spec.split(",")]
    if len(names) > 1 and all(kind in kinds_of(name) for name in names):
        message = f"expected one {kind}, found {len(names)}: {spec}"
        return unknown_name(message, error.field, SEVERAL, file=error.file)
    for other, article in kinds_of(spec).items():
        if other != kind:
            return unknown_name(
                error.message, error.field, f"{spec} is {article} {other}", file=error.file
            )
    if kind in FILES and (folder / spec).exists():
        hint = f"{spec} is a path, but {FILES[kind]}"
        return unknown_name(error.message, error.field, hint, file=error.file)
    return error


def kinds_of(name: str) -> dict[str, str]:
    """Every kind that a name belongs to, with its article.

    >>> kinds_of("h100"), kinds_of("nobody knows")
    ({'device': 'a'}, {})
    """
    from silicast.accelerator.design.architecture_file import design_names
    from silicast.composition.engines.engine import engine_names
    from silicast.hardware.index import device_names
    from silicast.scenario.kernels.kernel_case import OPS
    from silicast.workload.models.lookup import names_model

    kinds: dict[str, str] = {}
    if name in device_names():
        kinds["device"] = "a"
    if names_model(name):
        kinds["model"] = "a"
    if name in engine_names():
        kinds["engine"] = "an"
    if name in OPS:
        kinds["kernel op"] = "a"
    if name in design_names():
        kinds["design"] = "a"
    return kinds


SEVERAL = "one question each, or several side by side: silicast compare, silicast sweep"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")


def is_collective(op: object) -> str:
    """The collective that a kernel's op means, "" = none.

    >>> is_collective("AllReduce"), is_collective("all-to-all"), is_collective("gemm")
    ('all_reduce', 'all_to_all', '')
    """
    plain = str(op).casefold().translate(str.maketrans("", "", "-_ "))
    return next((name for name in COLLECTIVES if name.replace("_", "") == plain), "")


def collective_hint(op: str) -> str:
    """The command that predicts a collective.

    >>> collective_hint("all_reduce")[:50]
    'it is a collective: `silicast collective all_reduc'
    """
    return (
        f"it is a collective: `silicast collective {op} --bytes 1MB --device h100 --gpus 8`, or "
        f'task = "collective" with workload = {{ op = {shown(op)}, bytes, gpus }}'
    )


SPELLINGS: dict[str, str] = {
    # tuned kernel configurations of vLLM and SGLang
    "fp8_w8a8": "fp8", "fp8_w8a8_channelwise": "fp8", "float8": "fp8", "int8_w8a8": "int8",
    "int8_w8a16": "int8_wo", "int4_w4a16": "int4_wo",
    # recipes of training reports: current, delayed and micro scaling
    "fp8-cs": "fp8", "fp8-ds": "fp8", "fp8-mx": "mxfp8", "fp8-cs (fp8-mx)": "fp8",
    # XLA's element types
    "f16": "fp16", "f32": "fp32", "f64": "fp64", "s8": "int8", "f8e4m3fn": "fp8", "f8e5m2": "fp8",
    "f8e4m3fnuz": "fp8", "f8e5m2fnuz": "fp8",
}  # fmt: skip
_SUFFIX = re.compile(r"_down|/(default|pure|fp16)|x[a-z0-9]+->[a-z0-9]+")
"""What tables append to a format: a projection, a policy, the other operand and the result."""


def dtype_name(name: str, field: str) -> str:
    """The canonical name of a number format or recipe.

    Raises:
        SilicastError: unknown; the nearest names are offered.

    >>> dtype_name("bfloat16", "dtype"), dtype_name("bf16xbf16->f32", "dtype")
    ('bf16', 'bf16')
    """
    plain = name.strip().casefold()
    suffix = _SUFFIX.search(plain)
    if suffix and suffix.end() == len(plain):
        plain = plain[: suffix.start()]
    with errors_located(field):
        also = (OWN_FORMAT,) if field.startswith("precision.") else ()
        return recipe_for(SPELLINGS.get(plain, plain), also=also).name
