"""Which constants of matrix products hold for a format, and whether it was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from silicast.core.dtypes import BITS, RECIPES, Recipe
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import (
    constants_of,
    has_physics,
    load_physics,
    measured_constants,
)
from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.catalog import kernel_rule
from silicast.workload.libraries.library_file import KernelRule, RuleFacts

PHYSICS = "gemm"
RELEASES = "gemm_releases"
"""Constants of kernels that only some releases of a library run, fitted on top of all others."""


BORROWS: Mapping[str, str] = {
    "fp8_static": "fp8",
    "mxfp8": "fp8",
    "w4afp8": "fp8",
    "w4a8_mxfp4_mxfp8": "fp8",
    "fp8_fp4": "fp8",
    "int8": "sq",
    "mxfp4": "nvfp4",
}
"""Recipe -> the one whose constants hold where it has none of its own: the same units multiply."""

SAME_PRODUCT = frozenset({"fp8_static", "int8"})
"""Of those, the ones whose product is the very same: only what happens before it differs."""

NEAREST: Mapping[str, str] = {"nvfp4": "fp8", "mxfp4": "fp8"}
"""Recipe -> the one that applies to it where neither it nor what it borrows was fitted anywhere."""

NO_RULE = KernelRule(op=["gemm"])

SIXTEEN_BITS = ("bf16", "fp16")


TYPICAL_OPS = 1024.0
"""16-bit operations per clock of the core for which scaled constants are stated (Ada's)."""

SCALED: Mapping[str, tuple[str, float]] = {
    "launch_clocks": ("launch_s", 0.0),
    "step_clocks": ("step_s", -1.0 / 3.0),
    "store_per_clock": ("store_bytes_per_clock", 0.8),
}
"""Scaled constant -> the one that it gives, and the power of a core's operations per clock that it
grows with. Latencies are clocks of the core; results are to the operations that make them as a
surface is to its volume. Whole architectures held out chose these laws (docs/explanation/gemm.md).
"""

FED = ("tensor_efficiency", "operand_bytes_per_clock")
"""How well a main loop keeps the tensor cores fed: scaling blocks outside of them costs it much."""

WIDENED_BEFORE = "dequant_bf16"
"""In a kernel's name: weights were converted when the model was loaded."""


BATCHED = "batched"
"""What a kernel of batched products is called whose library has no name for it."""


def is_batched_call(kernel: str) -> bool:
    """Whether a kernel's name says that it is a call for a batch of products.

    >>> is_batched_call("sglang_torch_bmm"), is_batched_call("torch_flow")
    (True, False)
    """
    return "bmm" in kernel or kernel == BATCHED


def run_as(recipe: Recipe, device: Device, kernel: str = "") -> Recipe:
    """What a library runs for ``recipe``: its weights alone where narrow operands gain nothing.

    Devices without units for a narrow format have it at the rate of a wider one
    (:mod:`silicast.kernels.physics.formats`); there, kernels widen the weights and leave the
    activations.

    >>> from silicast.hardware.catalog import find_device
    >>> from silicast.kernels.physics.formats import with_format
    >>> run_as(RECIPES["fp8"], with_format(find_device("A100"), "fp8")[0]).activations
    'bf16'
    """
    if WIDENED_BEFORE in kernel:
        return RECIPES["bf16"]
    if BITS[recipe.activations] >= BITS["bf16"]:
        return recipe
    pipe = device.matrix_pipe(recipe.compute)
    rate = device.rate_per_core(pipe, recipe.compute)
    for wide in (*SIXTEEN_BITS, "fp32"):
        if device.rate_per_core(pipe, wide) == rate:
            return recipe.weight_only(wide)
    return recipe


def rule_of(variant: Variant, architecture: str) -> KernelRule:
    """What is known of a library's products beside its constants: how it chooses tiles.

    Its style, where a release has kernels of its own, replaces the library's name in theirs.
    """
    if is_batched_call(variant.kernel):
        return NO_RULE
    return kernel_rule("gemm", RuleFacts.from_variant(variant, architecture)) or NO_RULE


def maker_of(variant: Variant, architecture: str) -> str:
    """Whose constants hold: the library's, or those of one release's kernels.

    >>> maker_of(Variant("fp8_block", library="sglang", version="0.5.10"), "blackwell")
    'sglang_early'
    """
    return rule_of(variant, architecture).style or variant.library


def constants_for(
    device: Device, recipe: Recipe, library: str = "", pipe: str = "tensor", kernel: str = ""
) -> dict[str, float]:
    """Constants of a device's architecture; see :func:`selected` and :func:`from_specification`.

    On the FMA pipe a format without constants of its own runs in the kernels of fp32, where those
    were measured; fp64 does everywhere, for it has no others.
    """
    architecture = device.architecture
    table = _fed(from_specification(_known(architecture, library), device), device)
    measured = "fp32.tensor_efficiency" in measured_constants(PHYSICS, architecture)
    if pipe != "fma" or recipe.name == "fp32" or not (measured or recipe.name == "fp64"):
        return selected(table, recipe, library, kernel)
    own_constants = selected(table, recipe, library, kernel)
    constants = selected(table, RECIPES["fp32"], library)
    constants |= {n: x for n, x in own_constants.items() if n.startswith(("quantise_", "widen_"))}
    if recipe.name == "fp64":
        prefix = "fp64_fma."
        constants |= {n.removeprefix(prefix): x for n, x in table.items() if n.startswith(prefix)}
    return constants


def _known(architecture: str, library: str) -> Mapping[str, float]:
    """Constants of an architecture, with those of a release's kernels where the name is theirs."""
    constants = constants_of(PHYSICS, architecture)
    mark = f":{library}"
    if not library or any(name.endswith(mark) for name in constants) or not has_physics(RELEASES):
        return constants
    others = measured_constants(RELEASES, architecture)
    return {**constants, **{name: x for name, x in others.items() if name.endswith(mark)}}


def from_specification(table: Mapping[str, float], device: Device) -> dict[str, float]:
    """A flat table with every scaled constant turned into what it is on ``device``.

    Only architectures that nobody measured have scaled ones. Where the tensor cores scale blocks
    themselves, fp8_block then reaches what fp8 does.

    >>> from silicast.hardware.catalog import find_device
    >>> found = from_specification({"fp8.launch_clocks": 4000.0}, find_device("A100"))
    >>> sorted(found), round(found["fp8.launch_s"] * 1e6, 2)
    (['fp8.launch_s'], 2.84)
    """
    specification = dict(table)
    of_scale = _scaled_names(tuple(table))
    if not of_scale:
        return specification
    clock = device.clocks.boost_hz
    rates = [device.rate_per_core("tensor", name) for name in SIXTEEN_BITS]
    size = max(*rates, 0.0) / TYPICAL_OPS or 1.0
    for name in of_scale:
        scaled_name, power = SCALED[_plain(name)]
        scaled = specification.pop(name) * math.exp(power * math.log(size))
        specification[name.replace(_plain(name), scaled_name)] = (
            scaled / clock if scaled_name.endswith("_s") else scaled
        )
    if device.rate_per_core("tensor", "nvfp4") > 0.0:
        specification |= {
            f"fp8_block.{n}": specification[f"fp8.{n}"] for n in FED if f"fp8.{n}" in specification
        }
    return specification


def _fed(table: dict[str, float], device: Device) -> dict[str, float]:
    """Operands come faster from a shared memory that is faster than the one they were measured on.

    Only tables that state that one ("smem_bytes_per_clock") follow it.
    """
    smem_rate = table.pop("smem_bytes_per_clock", 0.0)
    if smem_rate <= 0.0 or "smem" not in device.memory:
        return table
    faster = device.memory["smem"].bandwidth_bytes_per_s / (smem_rate * device.clocks.boost_hz)
    if faster <= 1.0:
        return table
    wanted = "operand_bytes_per_clock"
    return {n: x * faster if _plain(n) == wanted else x for n, x in table.items()}


@lru_cache(maxsize=256)
def _scaled_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in a table whose constants follow the clock and the rate of a core."""
    return tuple(name for name in names if _plain(name) in SCALED)


def _plain(name: str) -> str:
    """Of a constant's full name "recipe.constant:library" the constant."""
    return name.rpartition(".")[2].partition(":")[0]


def queued(constants: Mapping[str, float], architecture: str) -> dict[str, float]:
    """Constants of FMA kernels that wait in the device's queue.

    They were measured under the host, where splitting k costs a second call of the host; in a
    queue it costs what it does in the queues in which the matrix units' kernels were measured.

    >>> from silicast.hardware.catalog import find_device
    >>> own = constants_for(find_device("P100"), RECIPES["fp32"], pipe="fma")
    >>> queued(own, "pascal")["split_s"] < own["split_s"]
    True
    """
    second = constants_of(PHYSICS, architecture)["split_s"]
    splits = {n: min(constants[n], second) for n in ("split_s", "narrow_split_s") if n in constants}
    return {**constants, **splits}


def selected(
    table: Mapping[str, float], recipe: Recipe, library: str, kernel: str = ""
) -> dict[str, float]:
    """The constants that hold for one recipe and library, under their plain names.

    "fp8.tensor_efficiency" holds for the recipe fp8 only, "fp8.quantise_s:vllm" also for vLLM only;
    "...:bmm" and "...:vllm_bmm" for calls of batched products (:func:`is_batched_call`).

    >>> selected({"a": 1.0, "fp8.a": 2.0, "fp8.a:vllm": 3.0}, RECIPES["fp8"], "sglang")
    {'a': 2.0}
    """
    names = _selected_names(tuple(table), lineage(recipe), library, is_batched_call(kernel))
    selected = {plain: table[name] for plain, name in names}
    if recipe.widens:
        name = f"{_weight_only(recipe)}.widen_ops"
        selected |= {"widen_ops": table[name]} if name in table else {}
    return selected


@lru_cache(maxsize=1024)
def _selected_names(
    names: tuple[str, ...], recipes: tuple[str, ...], library: str, batched: bool
) -> tuple[tuple[str, str], ...]:
    """Plain name and full name of each constant that :func:`selected` takes from a table: every
    clock of a board has a table of the same names.
    """
    selected: dict[str, str] = {}
    marks = ["", f":{library}"]
    if batched:
        marks += [":bmm", f":{library}_bmm"]
    for recipe in ("", *recipes):
        wanted = f"{recipe}." if recipe else ""
        for mark in marks:
            for name in names:
                head, dot, tail = name.rpartition(".")
                plain, colon, which = tail.partition(":")
                if f"{head}{dot}" == wanted and f"{colon}{which}" == mark:
                    selected[plain] = name
    return tuple(selected.items())


def widen_ops(recipe: Recipe) -> float:
    """Vector instructions to convert one weight of a recipe that widens them, as measured."""
    return load_physics(PHYSICS).default[f"{_weight_only(recipe)}.widen_ops"]


def lineage(recipe: Recipe) -> tuple[str, ...]:
    """Whose constants hold for a recipe, the most particular last.

    >>> lineage(RECIPES["mxfp4"]), lineage(RECIPES["nvfp4_wo"])
    (('fp8', 'nvfp4', 'mxfp4'), ('int4_wo', 'nvfp4_wo'))
    """
    names = [table[recipe.name] for table in (NEAREST, BORROWS) if recipe.name in table]
    if recipe.widens and BITS[recipe.activations] >= BITS["bf16"]:
        names.append(_weight_only(recipe))
    return tuple(dict.fromkeys((*names, recipe.name)))


def _weight_only(recipe: Recipe) -> str:
    return "int4_wo" if BITS[recipe.weights] <= BITS["int4"] else "int8_wo"


def measured_format(device: Device, recipe: Recipe) -> bool:
    """Whether products of this recipe were measured and fitted on this very architecture.

    False for formats that borrow another's constants (tf32 those of bf16, fp64 those of bf16 or
    fp32, mxfp4 those of nvfp4), and on architectures that another stands in for.

    Raises:
        SilicastError: the device multiplies in the recipe's compute format on no pipe.

    >>> from silicast.hardware.catalog import find_device
    >>> [measured_format(find_device("H100"), RECIPES[x]) for x in ("bf16", "fp8", "int8", "fp32")]
    [True, True, False, False]
    """
    pipe = device.matrix_pipe(recipe.compute)
    return _fitted_name(pipe, recipe) in measured_constants(PHYSICS, device.architecture)


def measured_anywhere(recipe: Recipe) -> bool:
    """Whether products of this recipe were measured and fitted on some architecture."""
    tables = load_physics(PHYSICS).architectures.values()
    return any(
        _fitted_name(pipe, recipe) in table for pipe in ("tensor", "fma") for table in tables
    )


def _fitted_name(pipe: str, recipe: Recipe) -> str:
    """The constant that is there where the recipe was fitted; 16-bit floats share their units."""
    if pipe == "tensor" and recipe.name in SIXTEEN_BITS:
        return "independent_log_sd"
    name = BORROWS[recipe.name] if recipe.name in SAME_PRODUCT else recipe.name
    return f"{name}.independent_log_sd"
