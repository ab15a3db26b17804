"""`silicast design`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.commands.design_files import (
    MapFlags,
    compare,
    import_,
    map_cores,
    map_layers,
    map_pair,
)
from silicast.app.commands.design_search import search
from silicast.app.console import show, warn, watched_from_first, write_json
from silicast.app.flags import Count, Json
from silicast.app.process_flags import ProcessFlags, named_by_flags

if TYPE_CHECKING:
    from silicast.accelerator.counting.einsum import Einsum
    from silicast.accelerator.mapper.task import Change

Batches = Annotated[list[int] | None, Parameter(name="--batch", negative="")]

design = App(
    name="design",
    help="Map work onto an accelerator that nobody has built.",
    help_format="plaintext",
)


@design.command(name="map")
@described()
def map_(
    chip: str,
    op: str = "",
    /,
    *sizes: str,
    flags: MapFlags | None = None,
    process: ProcessFlags | None = None,
) -> int:
    """Find the best mapping, as in `silicast design map eyeriss matmul m=64 n=64 k=64`.

    Args:
        chip: design of the catalog, an architecture file, or a folder of Timeloop's files; or a
            file of several cores ([[core]]), onto which a network is mapped as a whole.
        op: conv2d or matmul; left out, the problem of Timeloop's files. Or a file of layers, all of
            which are mapped: an op graph (.json), an ONNX model, layers of ZigZag (.yaml), a
            topology of SCALE-Sim (.csv), a network of MAESTRO (.m); or resnet50.
        sizes: of the operation, such as c=64 m=64 p=56 q=56 r=3 s=3; of a file, open ones, as
            batch=8.
    """
    from silicast.accelerator.cores.core_file import has_cores
    from silicast.accelerator.counting.layer_table import is_workload
    from silicast.accelerator.mapper.task import mapped, task_of
    from silicast.report.designs.mappings import answer_data, mapping_card
    from silicast.report.drawing.plot_file import check_plot

    options, at = flags or MapFlags(), process or ProcessFlags()
    changed = _under(options.policy, at)
    if has_cores(chip):
        return map_cores(chip, op, sizes, options, changed)
    if is_workload(op):
        return map_layers(chip, op, sizes, options, changed)
    if options.fuse:
        return map_pair(chip, op, sizes, options, changed)
    if options.plot is not None:
        check_plot(options.plot)
    task = changed(task_of(chip, op, sizes, options.density or ()))
    answer = mapped(task, options.objective, options.effort)
    _warn_of(chip, options.density, at, answer.remark, answer.cost.einsum)
    if options.plot is not None:
        from silicast.report.designs.mapping_plot import draw_mapping

        draw_mapping(answer.nest, answer.cost, options.plot)
    if options.json:
        write_json(answer_data(answer))
    else:
        show(mapping_card(answer.nest, answer.cost, answer))
    return status.ANSWERED


@design.command
@described()
def explain(
    chip: str,
    op: str = "",
    /,
    *sizes: str,
    flags: MapFlags | None = None,
    process: ProcessFlags | None = None,
) -> int:
    """Show where the energy and the cycles of a mapping go, tensor by tensor.

    Args:
        chip: as of `design map`; a folder of Timeloop's files is explained with its own mapping.
        op: conv2d or matmul; left out, the mapping of Timeloop's files.
        sizes: of the operation, such as c=64 m=64 p=56 q=56 r=3 s=3.
    """
    from silicast.accelerator.mapper.task import given_mapping, mapped, task_of
    from silicast.report.designs.mappings import mapping_card, mapping_data, traffic_table
    from silicast.report.drawing.plot_file import check_plot

    options, at = flags or MapFlags(), process or ProcessFlags()
    changed = _under(options.policy, at)
    if options.fuse:
        return map_pair(chip, op, sizes, options, changed, explains=True)
    if options.plot is not None:
        check_plot(options.plot)
    if op:
        task = changed(task_of(chip, op, sizes, options.density or ()))
        answer = mapped(task, options.objective, options.effort)
        nest, cost, remark = answer.nest, answer.cost, answer.remark
    else:
        nest, cost = given_mapping(chip, changed)
        remark = ""
    _warn_of(chip, options.density, at, remark, cost.einsum)
    if options.plot is not None:
        from silicast.report.designs.mapping_plot import draw_mapping

        draw_mapping(nest, cost, options.plot)
    if options.json:
        write_json(mapping_data(nest, cost))
    else:
        show(mapping_card(nest, cost), "", traffic_table(cost))
    return status.ANSWERED


@design.command(name="compile")
@described()
def compile_(
    chip: str,
    /,
    *,
    model: str,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    batch: Batches = None,
    input_len: int | None = None,
    output_len: int | None = None,
    dtype: str | None = None,
    tp: int = 1,
    effort: Count = 10_000,
) -> int:
    """Search and store mappings of all that a model needs, as in `silicast design compile chip.toml
    --model Llama-3.1-8B -o chip-llama.toml`; the file written is a design like the one read.

    Args:
        chip: design of the catalog, or an architecture file.
        model: as of `silicast infer`, or an op-graph file.
        output: file to write.
        batch: sequences of a static batch, several times for several; left out, 1, 8 and 64.
        input_len: tokens of each prompt; left out, 1024, or what the model is made for.
        output_len: tokens generated; left out, 128, or none of an encoder.
        dtype: format of the matrix products; left out, the checkpoint's.
        effort: partial mappings to try for each size; more of them may find better ones.
    """
    from silicast.scenario.designs.design_models import MappingSearches, compile_design

    searches = MappingSearches()
    with watched_from_first("mappings searched", searches.count):
        result = compile_design(
            chip, model, output, batches=batch or [1, 8, 64], input_len=input_len,
            output_len=output_len, dtype=dtype, tp=tp, effort=effort, said=searches.note,
        )  # fmt: skip
    show(f"{output}: {result} mappings")
    return status.ANSWERED


@design.command
@described()
def cost(
    chip: str,
    /,
    *,
    node: float,
    area: float | None = None,
    wafer_usd: float | None = None,
    defects: float | None = None,
    from_node: float | None = None,
    json: Json = False,
) -> int:
    """Say what a die of a design costs, and how its energies go to another node.

    Args:
        chip: design of the catalog, an architecture file, or a folder of Timeloop's files.
        node: that it is made in, nm.
        area: of the die, mm2; left out, that of the design's levels at the node that their areas
            are of.
        wafer_usd: price of a wafer; left out, that of the shipped table.
        defects: a square centimetre; left out, those of the shipped table.
        from_node: nm of the energies and areas in the design; left out, the same as `node`.
    """
    from silicast.accelerator.mapper.task import architecture_of
    from silicast.report.designs.die_costs import cost_card, cost_data, cost_of_design

    design = architecture_of(chip)
    flags = {"area": "--area", "wafer_usd": "--wafer-usd", "defects_per_cm2": "--defects"}
    if from_node is None:
        flags["from_nm"] = "--node"
    with named_by_flags(**flags):
        cost = cost_of_design(
            design, node, node if from_node is None else from_node, area, wafer_usd, defects
        )
    if json:
        write_json(cost_data(cost))
    else:
        show(cost_card(cost))
    return status.ANSWERED


def _under(policy: str, at: ProcessFlags) -> Change:
    """What a policy and a process make of a task."""
    return lambda task: at.applied(task.under(policy))


def _warn_of(
    chip: str, densities: list[str] | None, at: ProcessFlags, remark: str, einsum: Einsum
) -> None:
    """Warns of statements that change nothing, and of what was done otherwise than asked."""
    from silicast.accelerator.mapper.task import notes_of

    for note in (*notes_of(chip, densities or (), einsum), *at.notes, remark):
        if note:
            warn(note)


design.command(search)
design.command(import_, name="import")
design.command(compare)
