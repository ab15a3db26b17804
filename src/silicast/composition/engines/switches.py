"""Engines' own switches: options of their command lines and environment variables, as their files
state them (``[switches]`` and ``[[backends]]`` of ``catalog/engines``).

A switch chooses kernels, sets options of ours that mean the same, or asks for a format of weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import msgspec

from silicast.composition.engines.engine import Engine, SwitchTable
from silicast.core.dtypes import RECIPES
from silicast.core.errors import SilicastError, unmodelled, unsupported
from silicast.core.naming import near
from silicast.core.releases import is_before, is_within, release_of
from silicast.hardware.device import Device
from silicast.hardware.platforms import listed, runs_on
from silicast.kernels.engine_kernels import Backend
from silicast.workload.libraries.catalog import library
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.precision import Precision

_WORDS = {True: "1", False: "0", "true": "1", "false": "0", "True": "1", "False": "0"}


@final
class Chosen(msgspec.Struct, frozen=True):
    """What switches of an engine mean.

    Attributes:
        engine: with the kernels that they choose.
        options: options of ours that mean the same.
        remarks: what was taken for granted about them.
    """

    engine: Engine
    options: dict[str, Any] = {}
    remarks: list[str] = []


def choose(engine: Engine, stated: Mapping[str, Any], version: str = "") -> Chosen:
    """What the switches among ``stated`` options mean under a version of the engine; "" = not
    stated.

    Raises:
        SilicastError: a value that the switch has not, a switch that the version has not, or two
            that contradict each other; names both.
    """
    kernels = dict[str, tuple[str, list[Backend]]]()
    options, recipes = dict[str, Any](), dict[str, str]()
    remarks: list[str] = []
    for name, switch, table, value in _switches(engine, stated):
        remarks += _check_release(engine, name, table, version)
        remarks += _check_beside(name, table, value, stated)
        if value in table.usual:
            continue
        backends = [backend for backend in engine.backends if value in backend.by.get(switch, ())]
        _check_value(engine, name, switch, value, known=bool(backends))
        for family in dict.fromkeys(family for backend in backends for family in backend.families):
            able = [backend for backend in backends if family in backend.families]
            other, before = kernels.setdefault(family, (name, able))
            both = [backend for backend in before if backend in able]
            if not both:
                raise _contradiction(name, value, other)
            kernels[family] = name, both
        for option, meant in table.sets.get(value, {}).items():
            if options.setdefault(option, meant) != meant:
                raise _contradiction(name, value, option)
        if recipe := table.recipes.get(value):
            recipes[name] = recipe
    if len(set(recipes.values())) > 1:
        first, second, *_ = recipes
        raise _contradiction(second, str(stated[second]), first)
    if kernels:
        chosen = {family: backends for family, (_, backends) in kernels.items()}
        tables = msgspec.structs.replace(engine.kernels, chosen=engine.kernels.chosen | chosen)
        engine = msgspec.structs.replace(engine, kernels=tables)
    return Chosen(engine, options, remarks)


def is_switch(engine: Engine, name: str) -> bool:
    """Whether a name is a switch of the engine's own."""
    return any(name == key or name in table.aliases for key, table in engine.switches.items())


def check_kernels(
    engine: Engine,
    stated: Mapping[str, Any],
    device: Device,
    model: ModelConfig,
    formats: Precision,
) -> tuple[Engine, list[str]]:
    """The engine without choices that the device or the formats cannot run where it then takes its
    usual kernels, and remarks about switches that change nothing.

    Raises:
        SilicastError: kernels that the device or the format cannot run; says which can.
    """
    remarks, dropped = [], []
    for name, switch, table, value in _switches(engine, stated):
        backends = [backend for backend in engine.backends if value in backend.by.get(switch, ())]
        if not backends or value in table.usual:
            continue
        label = name if value in _WORDS.values() else value
        problem = _problem(engine, backends, device, model, formats)
        if problem is None:
            continue
        message, hint = problem
        field = f"engine.options.{name}"
        if message and not table.optional:
            raise unsupported(message.format(label), field, hint)
        remarks.append(f"{field} changes nothing here: {(message or hint).format(label)}")
        dropped += backends
    if not dropped:
        return engine, remarks
    chosen = {
        family: able
        for family, backends in engine.kernels.chosen.items()
        if (able := [backend for backend in backends if backend not in dropped])
    }
    kernels = msgspec.structs.replace(engine.kernels, chosen=chosen)
    return msgspec.structs.replace(engine, kernels=kernels), remarks


def _problem(
    engine: Engine, backends: list[Backend], device: Device, model: ModelConfig, formats: Precision
) -> tuple[str, str] | None:
    """Why none of the back ends runs, and what would; without a message nothing asks for them."""
    if model.moe is None and all("moe" in backend.families for backend in backends):
        return "", f"{model.name} has no experts"
    here = [backend for backend in backends if _can_run(backend, device)]
    if not here:
        positions = [position for backend in backends for position in _positions(backend)]
        where = listed(list(dict.fromkeys(positions)))
        usual = f"leave it out and {engine.name} takes its usual kernels"
        return f"{device.name} cannot run {{0}}", f"it runs on {where}; {usual}"
    for backend in here:
        recipe = _recipe_of(backend, formats)
        if not backend.formats or not recipe or recipe in backend.formats:
            return None
    runs = ", ".join(recipe for backend in here for recipe in backend.formats)
    return f"{{0}} cannot run {_recipe_of(here[0], formats)}", f"it runs {runs}"


def _can_run(backend: Backend, device: Device) -> bool:
    name = backend.library.get(device.architecture, backend.library.get("default", ""))
    return bool(name) and runs_on(device, backend.runs_on or library(name).runs_on)


def _positions(backend: Backend) -> list[str]:
    if backend.runs_on:
        return backend.runs_on
    if "default" in backend.library:
        return library(backend.library["default"]).runs_on
    return list(backend.library)


def quantised(
    engine: Engine, stated: Mapping[str, Any], formats: Precision, stated_recipe: str = ""
) -> Precision:
    """The formats with the weights that a switch asks for.

    Args:
        formats: of the checkpoint, or as the scenario states them.
        stated_recipe: recipe that the scenario states; "" = it states none.

    Raises:
        SilicastError: the scenario or the checkpoint is in another format.
    """
    for name, _, table, value in _switches(engine, stated):
        recipe = table.recipes.get(value, "")
        present = formats.experts or formats.recipe
        if not recipe or _alike(recipe, present):
            continue
        field = f"engine.options.{name}"
        if stated_recipe:
            hint = "leave one of them out"
            raise SilicastError(
                f"{value} contradicts precision {stated_recipe}", field=field, hint=hint
            )
        if present != formats.hidden or value not in table.online:
            raise SilicastError(
                f"{value} reads weights in {recipe}, the checkpoint's are in {present}",
                field=field,
                hint=f"name the quantised checkpoint, or state precision.recipe = {recipe}",
            )
        return Precision.from_formats(recipe=recipe, default=formats)
    return formats


def _alike(recipe: str, other: str) -> bool:
    """Whether a loader for one recipe reads the other: scales differ, weights do not."""
    return RECIPES[recipe].weights == RECIPES[other].weights


def _switches(
    engine: Engine, stated: Mapping[str, Any]
) -> Iterator[tuple[str, str, SwitchTable, str]]:
    """Name as stated, name of the switch, its table and its value as text, of each switch."""
    for name, value in stated.items():
        for key, table in engine.switches.items():
            if name == key or name in table.aliases:
                yield name, key, table, _text(value)


def _text(value: Any) -> str:
    text = _WORDS.get(value) if isinstance(value, str | bool) else None
    return text if text is not None else str(value)


def _check_release(engine: Engine, name: str, table: SwitchTable, version: str) -> list[str]:
    first = f"from {table.from_} on" if table.from_ else ""
    releases = " and ".join(filter(None, (first, f"before {table.until}" if table.until else "")))
    if release_of(version) is not None and not is_within(version, table.from_, table.until):
        text = f"{engine.name} {version} does not have it"
        raise unsupported(text, f"engine.options.{name}", f"releases {releases} have it")
    newer = is_before(engine.version, table.from_)
    older = bool(table.until) and not is_before(engine.version, table.until)
    if version or not (newer or older):
        return []
    return [
        f"engine.options.{name}: {engine.name} has it in releases {releases}; state the version"
    ]


def _check_beside(
    name: str, table: SwitchTable, value: str, stated: Mapping[str, Any]
) -> list[str]:
    """What a reader must know of a value.

    Raises:
        SilicastError: an option that has to stand beside it is not stated.
    """
    field = f"engine.options.{name}"
    if (needed := table.needs.get(value)) and not stated.get(needed):
        raise SilicastError(
            f"{value} works by {needed}, which is not stated",
            field=field,
            hint=f"state engine.options.{needed}",
        )
    return [f"{field} = {value}: {table.notes[value]}"] if value in table.notes else []


def _check_value(engine: Engine, name: str, switch: str, value: str, *, known: bool) -> None:
    table, field = engine.switches[switch], f"engine.options.{name}"
    if known or value in table.sets or value in table.recipes:
        return
    if instead := table.instead.get(value, table.instead.get("*", "")):
        raise unmodelled(f"{value} is not modelled as such", field, instead)
    if value in table.not_modelled or "*" in table.not_modelled:
        raise unmodelled(f"{value} is not modelled yet", field, _others(engine, switch))
    known_values = _values(engine, switch)
    hint = near(value, known_values) or _others(engine, switch)
    raise SilicastError(f"{engine.name} has no {value[:60]!r} for it", field=field, hint=hint)


def _values(engine: Engine, switch: str) -> list[str]:
    """Values that a switch may have and that are modelled."""
    table = engine.switches[switch]
    by_kernels = [value for backend in engine.backends for value in backend.by.get(switch, ())]
    return [*dict.fromkeys((*table.usual, *by_kernels, *table.sets, *table.recipes))]


def _others(engine: Engine, switch: str) -> str:
    return f"modelled: {', '.join(_values(engine, switch))}"


def _contradiction(name: str, value: str, other: str) -> SilicastError:
    return SilicastError(
        f"{name} = {value[:60]} contradicts {other}",
        field=f"engine.options.{name}",
        hint=f"leave one of them out: {name} or {other}",
    )


def _recipe_of(backend: Backend, formats: Precision) -> str:
    """The checkpoint's recipe of the ops that a back end runs; "" = formats do not matter."""
    if "moe" in backend.families:
        return formats.expert.name
    return formats.linear.name if "gemm" in backend.families else ""
