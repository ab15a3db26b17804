"""Files of tuned configurations for a model on a device, and what an existing one leaves.

>>> from silicast.tuning.files import engines
>>> plan = tune_experts("qwen3-30b-a3b", "H20", engines()[0], tp=[1], tokens=[1, 64])
>>> plan.files[0].name
'E=128,N=768,device_name=NVIDIA_H20.json'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast.core.dtypes import Recipe, recipe_for
from silicast.core.errors import SilicastError, unsupported
from silicast.core.files import write_atomically
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.configuration import Configuration
from silicast.kernels.experts.expert_layer import ExpertLayer
from silicast.kernels.experts.routing import routing_name
from silicast.kernels.products.blocks import excesses
from silicast.kernels.products.tile_times import Product
from silicast.learning.configuration_ranking import configured_s, ranked, shipped_ranker
from silicast.tuning.files import (
    SWEPT_FORMATS,
    Entries,
    FileLayout,
    Tuned,
    driver_name,
    encoded,
    file_layout,
    nearest_entry,
    read_tuned_file,
    usual_tokens,
)
from silicast.tuning.layers import (
    ChosenBy,
    TunedLayer,
    routing_log_sd,
    tuned_layer,
    tuners_log_odds,
)
from silicast.tuning.tuner_choice import Tuning
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan

US = 1e6
DEGREES = (1, 2, 4, 8)
"""Tensor parallel degrees that files are written for where none is stated."""
MOST_TOKENS = 1 << 20
BLOCK_SCALED = "fp8_block"
VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}")


@final
@dataclass(frozen=True)
class TunedEntry:
    """One entry of a file.

    Attributes:
        tokens: entering the layer; configuration: for them.
        estimate_us, p05_us, p95_us: of both products.
        existing: what another file has for them; existing_us: time of that, same model; None
            where the device cannot run it.
        first: the best of the ranking with their times, us; the first of them is ``configuration``.
    """

    tokens: int
    configuration: Configuration
    estimate_us: float
    p05_us: float
    p95_us: float
    existing: Configuration | None = None
    existing_us: float | None = None
    first: tuple[tuple[Configuration, float], ...] = ()

    @property
    def left_pct(self) -> float | None:
        """Share of the existing entry's time that this one saves; never negative."""
        if self.existing_us is None:
            return None
        return max(100.0 * (1.0 - self.estimate_us / self.existing_us), 0.0)


@final
@dataclass(frozen=True)
class TunedFile:
    """One file to write: its name, folder, and entries by tokens.

    Attributes:
        name: of the file; folder: under the one that the engine is told of.
        parallel: what it is for, for people.
        entries: ascending; content: what is written.
        layer: of experts that it is about; None = a plain product.
    """

    name: str
    folder: str
    parallel: str
    entries: tuple[TunedEntry, ...]
    content: bytes
    layer: ExpertLayer | None = None

    def with_entries(self, chosen: Mapping[int, Configuration], engine: str) -> TunedFile:
        """The same with other configurations for some tokens: what was measured."""
        entries = tuple(
            replace(each, configuration=chosen.get(each.tokens, each.configuration))
            for each in self.entries
        )
        content = encoded({x.tokens: x.configuration for x in entries}, file_layout(engine))
        return replace(self, entries=entries, content=content)


@final
@dataclass(frozen=True)
class TuningPlan:
    """All files of a model on a device.

    Attributes:
        model, device, engine, dtype: what they are for.
        environment: the variable that tells the engine of the folder.
        compiler: version that the files are for, "" where they do not depend on it.
        files: to write; warnings: what a reader must know.
        hardware: the device itself.
    """

    model: str
    device: str
    engine: str
    dtype: str
    environment: str
    files: tuple[TunedFile, ...]
    warnings: tuple[str, ...]
    hardware: Device
    compiler: str = ""

    @property
    def routing(self) -> str:
        """How tokens were taken to spread over a rank's experts; "" where there are none."""
        return next((file.layer.distribution for file in self.files if file.layer), "")

    def write(self, folder: Path) -> list[Path]:
        """Writes all files, each whole or not at all; returns their paths."""
        paths = []
        for file in self.files:
            position = folder / file.folder
            try:
                position.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise SilicastError(
                    f"cannot make the folder: {error.strerror or error}",
                    kind="io",
                    file=str(position),
                ) from None
            write_atomically(position / file.name, file.content)
            paths.append(position / file.name)
        return paths


def tune_experts(
    model: str | ModelConfig,
    device: str | Device,
    engine: str,
    *,
    dtype: str = "",
    tp: Sequence[int] = DEGREES,
    ep: int = 1,
    tokens: Sequence[int] = (),
    existing: Path | None = None,
    compiler: str = "",
    routing: str | Sequence[float] | None = None,
    top: int = 1,
) -> TuningPlan:
    """Files of tuned configurations of a model's experts.

    Args:
        model, device: or their names in the catalog; engine: one that reads such files.
        dtype: recipe of the experts; "" = as the checkpoint says.
        tp: tensor parallel degrees, one file each; ep: ranks that share the experts.
        tokens: numbers of tokens to make entries for; () = those that tuners use.
        existing: a file whose entries are judged beside the new ones.
        compiler: version of the compiler that the files are for.
        routing: how tokens spread over a rank's experts: a distribution's name, or one share an
            expert; None = evenly, as tuners time kernels.
        top: how many of each ranking an entry tells.

    Raises:
        SilicastError: no experts, a degree that does not divide them, a format or device without
            such files, or an existing file in another format.
    """
    engine = engine.strip().casefold()
    if compiler and not VERSION.fullmatch(compiler):
        raise SilicastError(
            f"expected a version, found {compiler[:40]!r}",
            field="compiler",
            hint="for example 3.5.1",
        )
    layout, board, config = _found(engine, device, model)
    recipe = recipe_for(dtype or config.default_precision.expert.name)
    existing_entries = read_tuned_file(existing) if existing else None
    counts = _checked(tokens or usual_tokens())
    files = tuple(
        _file(layer, parallel, board, recipe, engine, counts, existing_entries, compiler, top)
        for parallel, layer in _layers(config, tp, ep, routing)
    )
    return TuningPlan(
        config.name,
        board.name,
        engine,
        recipe.name,
        layout.environment,
        files,
        (
            *_warnings(board, recipe, files[0].layer),
            *_impossible(existing, existing_entries, board, recipe),
        ),
        board,
        compiler or layout.stated_compiler,
    )


def tune_products(
    model: str | ModelConfig,
    device: str | Device,
    engine: str,
    *,
    dtype: str = BLOCK_SCALED,
    tp: Sequence[int] = (1,),
    tokens: Sequence[int] = (),
    existing: Path | None = None,
    top: int = 1,
) -> TuningPlan:
    """Files of tuned configurations of a model's plain products with scaled blocks.

    Args:
        existing: a file whose entries are judged beside the new ones, of the product that its
            name states.
        top: how many of each ranking an entry tells.

    Raises:
        SilicastError: as :func:`tune_experts`; a format whose blocks have no scales.
    """
    engine = engine.strip().casefold()
    layout, board, config = _found(engine, device, model)
    recipe = recipe_for(dtype)
    if recipe.scale_rows <= 1:
        raise unsupported(
            f"plain products in {recipe.name} have no such files", "dtype", f"use {BLOCK_SCALED}"
        )
    existing_entries = read_tuned_file(existing) if existing else None
    counts = _checked(tokens or usual_tokens())
    files = []
    for degree in _stated(tp):
        for rows, depth in _products(config, degree):
            name = layout.gemm_name(Tuned(rows, depth), driver_name(board), recipe.name)
            before = existing_entries if existing and existing.name == name else None
            entries = tuple(
                _product_entry(x, rows, depth, board, recipe, before, ChosenBy(engine), top)
                for x in counts
            )
            content = encoded({x.tokens: x.configuration for x in entries}, layout)
            files.append(TunedFile(name, "", f"tp {degree}", entries, content))
    unique = {file.name: file for file in files}
    return TuningPlan(
        config.name,
        board.name,
        engine,
        recipe.name,
        layout.environment,
        tuple(unique.values()),
        (*_warnings(board, recipe), *_impossible(existing, existing_entries, board, recipe)),
        board,
    )


def _found(
    engine: str, device: str | Device, model: str | ModelConfig
) -> tuple[FileLayout, Device, ModelConfig]:
    """The engine's layout of files, the device and the model that the names mean."""
    return (
        file_layout(engine),
        find_device(device) if isinstance(device, str) else device,
        find_model(model) if isinstance(model, str) else model,
    )


def _products(config: ModelConfig, tp: int) -> list[tuple[int, int]]:
    """Rows and depth of the weights of a rank's plain products, the head's left out."""
    table: dict[tuple[int, int], None] = {}
    for _, node in build_graph(config, Plan(tp=tp)).nodes():
        sizes = dict(node.op.dims)
        n, k = sizes.get("n"), sizes.get("k")
        plain = node.op.family == "gemm" and sizes.get("m") == "tokens"
        if plain and isinstance(n, int) and isinstance(k, int):
            table[n, k] = None
    return list(table)


def _product_entry(
    count: int,
    rows: int,
    depth: int,
    device: Device,
    recipe: Recipe,
    entries: Entries | None,
    chosen: ChosenBy,
    top: int,
) -> TunedEntry:
    product = Product.plain(count, rows, depth)
    result = ranked(product, device, recipe)
    about = Tuning("gemm", count, 1, rows, depth)
    score = result.log_odds + tuners_log_odds(result, about, chosen)
    possible = result.steps.tiles.k == recipe.scale_group
    order = np.argsort(-np.where(possible, score, -np.inf), kind="stable")
    order = order[: min(top, int(possible.sum()))]
    index = int(order[0])
    seconds = float(result.time_s[index])
    share = seconds / result.estimate_s
    low, high = (share * bound for bound in result.interval())
    existing = nearest_entry(entries, count) if entries else None
    return TunedEntry(
        count,
        result.grid[index],
        US * seconds,
        US * low,
        US * high,
        existing,
        _existing_us(existing, device, recipe, lambda one: configured_s(product, one, result)),
        tuple((result.grid[n], US * float(result.time_s[n])) for n in order.tolist()),
    )


def _checked(tokens: Sequence[int]) -> tuple[int, ...]:
    for count in tokens:
        if not 1 <= count <= MOST_TOKENS:
            raise SilicastError(f"expected 1 to {MOST_TOKENS}, found {count}", field="tokens")
    return tuple(sorted(set(tokens)))


def _stated(degrees: Sequence[int]) -> Sequence[int]:
    """Refuses a list of degrees that is empty."""
    if not degrees:
        raise SilicastError("states no degree", field="tp", hint="for example 1,2,8")
    return degrees


def _layers(
    config: ModelConfig, degrees: Sequence[int], ep: int, routing: str | Sequence[float] | None
) -> Iterator[tuple[str, ExpertLayer]]:
    experts = config.moe
    if experts is None:
        raise unsupported(f"{config.name} has no experts", "model", "tune gemm for its products")
    if ep < 1 or experts.experts % ep:
        raise SilicastError(f"{ep} does not divide {experts.experts} experts", field="ep")
    name = routing_name(routing, experts.experts // ep)
    for tp in _stated(degrees):
        if tp < 1 or experts.intermediate % tp:
            raise SilicastError(
                f"{tp} does not divide the experts' width of {experts.intermediate}", field="tp"
            )
        yield (
            f"tp {tp} ep {ep}",
            ExpertLayer(
                experts=experts.experts // ep,
                topk=experts.topk,
                hidden=experts.latent or config.hidden,
                width=experts.intermediate // tp,
                gated=config.gated,
                distribution=name,
            ),
        )


def _file(
    layer: ExpertLayer,
    parallel: str,
    device: Device,
    recipe: Recipe,
    engine: str,
    counts: Sequence[int],
    known: Entries | None,
    compiler: str,
    top: int,
) -> TunedFile:
    layout = file_layout(engine)
    name = layout.moe_name(Tuned(layer.experts, layer.width), driver_name(device), recipe.name)
    chosen = ChosenBy(engine, compiler or layout.stated_compiler)
    layers = [tuned_layer(layer, count, device, recipe, chosen=chosen) for count in counts]
    entries = tuple(_entry(tuned, known, device, recipe, top) for tuned in layers)
    content = encoded({x.tokens: x.configuration for x in entries}, layout, compiler)
    return TunedFile(name, layout.place(compiler), parallel, entries, content, layer)


def _entry(
    tuned: TunedLayer, entries: Entries | None, device: Device, recipe: Recipe, top: int
) -> TunedEntry:
    existing = nearest_entry(entries, tuned.tokens) if entries else None
    return TunedEntry(
        tuned.tokens,
        tuned.best,
        US * tuned.estimate_s,
        US * tuned.p05_s,
        US * tuned.p95_s,
        existing,
        _existing_us(existing, device, recipe, tuned.seconds_of),
        tuple(zip(tuned.first(top), (US * tuned.seconds(tuned.order[:top])).tolist(), strict=True)),
    )


def _warnings(device: Device, recipe: Recipe, layer: ExpertLayer | None = None) -> Iterator[str]:
    card = shipped_ranker().card
    if device.name not in card.devices:
        alike = "" if device.architecture in card.architectures else ", nor its architecture,"
        yield (
            f"{device.name} was not swept{alike}: the order follows physics and what sweeps of "
            f"{', '.join(card.devices)} taught; measure the first ten to be sure"
        )
    if recipe.name not in SWEPT_FORMATS:
        yield (
            f"only products of 16 bits were swept; {recipe.name} follows their order and what "
            "tuners of engines chose in such formats"
        )
    if layer is not None and layer.distribution != "balanced":
        yield (
            f"only kernels with even tokens were swept; {layer.distribution} counts by the "
            f"analytic times, with a spread of {routing_log_sd(layer.distribution, device):.0%} "
            "of their own; engines read no routing from a file"
        )


def _impossible(
    path: Path | None, entries: Entries | None, device: Device, recipe: Recipe
) -> Iterator[str]:
    """Entries of an existing file that the device cannot run, and by how much they exceed it."""
    for tokens, configuration in (entries or {}).items():
        for resource, needed, there in excesses(configuration, device, recipe):
            yield (
                f"{path}: entry {tokens} does not run on {device.name}: {configuration.label} "
                f"needs {needed:,.0f} {resource}, {needed - there:,.0f} too many"
            )


def _existing_us(
    configuration: Configuration | None,
    device: Device,
    recipe: Recipe,
    seconds_of: Callable[[Configuration], float],
) -> float | None:
    """Microseconds of an existing entry; None where there is none, or the device cannot run it."""
    if configuration is None or any(excesses(configuration, device, recipe)):
        return None
    return US * seconds_of(configuration)


def first_candidates(
    file: TunedFile, plan: TuningPlan, count: int
) -> dict[int, list[tuple[Configuration, float]]]:
    """Tokens -> the first configurations of a file's entries with their predicted microseconds."""
    device, recipe = plan.hardware, recipe_for(plan.dtype)
    first_candidates: dict[int, list[tuple[Configuration, float]]] = {}
    if file.layer is None:
        return first_candidates
    for entry in file.entries:
        layer = tuned_layer(
            file.layer, entry.tokens, device, recipe, chosen=ChosenBy(plan.engine, plan.compiler)
        )
        positions = layer.order[:count].tolist()
        first_candidates[entry.tokens] = [
            (layer.ranked[0].grid[position], US * float(seconds))
            for position, seconds in zip(positions, layer.seconds(layer.order[:count]), strict=True)
        ]
    return first_candidates


def plan_data(plan: TuningPlan) -> dict[str, Any]:
    """A plan as plain tables, for JSON."""
    return {
        "model": plan.model, "device": plan.device, "engine": plan.engine, "dtype": plan.dtype,
        "environment": plan.environment, "routing": plan.routing, "warnings": list(plan.warnings),
        "files": [
            {
                "name": file.name, "folder": file.folder, "parallel": file.parallel,
                "entries": [_entry_data(each) for each in file.entries],
            }
            for file in plan.files
        ],
    }  # fmt: skip


def _entry_data(each: TunedEntry) -> dict[str, Any]:
    entry_data: dict[str, Any] = {
        "tokens": each.tokens,
        "configuration": dict(each.configuration.values),
        "latency_us": {"estimate": each.estimate_us, "p05": each.p05_us, "p95": each.p95_us},
    }
    if len(each.first) > 1:
        entry_data["first"] = [
            {"configuration": dict(configuration.values), "latency_us": us}
            for configuration, us in each.first
        ]
    if each.existing is not None:
        entry_data["existing"] = {
            "configuration": dict(each.existing.values),
            "latency_us": each.existing_us,
            "left_pct": each.left_pct,
        }
    return entry_data
