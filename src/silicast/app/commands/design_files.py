"""`silicast design import`, `design compare`, and `design map` of a file of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Count, Json
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.accelerator.mapper.task import Change


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@described()
class MapFlags:
    """How work is mapped, and what is shown of it.

    Attributes:
        density: of a tensor, such as Weights=0.4 or Weights=2:4; may be given several times.
        fuse: the operation that takes what this one leaves, as "matmul m=64 n=64 k=256", to run
            both tile by tile; `design map` of a file of layers: neighbours.
        objective: what is made small: energy, latency or edp; left out, as the design prefers, or
            energy; of several cores, latency.
        policy: a mapper that the design names ([policies.NAME]), such as row-stationary of eyeriss;
            left out, the best of all that could run.
        effort: partial mappings to try; more of them prove more.
        plot: draw the mapping, or the layers of a file, into this file (.svg, .png or .pdf).
    """

    density: Annotated[list[str] | None, Parameter(name="--density", negative="")] = None
    fuse: str = ""
    objective: str = ""
    policy: str = ""
    effort: Count = 10_000
    plot: Path | None = None
    json: Json = False


def import_(
    file: Path,
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"))],
    format_: Annotated[str, Parameter(name="--format")] = "",
) -> int:
    """Make an architecture file of another tool's description of a chip.

    Args:
        file: Timeloop's folder with parsed-processed-input.yaml, an accelerator of ZigZag (.yaml),
            a configuration of SCALE-Sim (.cfg), a chip of MAESTRO (.m), or an architecture of
            AccelForge (.yaml).
        output: the architecture file to write (.toml).
        format_: timeloop, zigzag, scalesim, maestro or accelforge, if the file does not say it.
    """
    from silicast.accelerator.design.architecture_text import text_of
    from silicast.accelerator.foreign.reader import read_hardware
    from silicast.core.files import write_atomically

    hardware = read_hardware(file, format_)
    text = text_of(hardware.architecture, hardware.constraints, hardware.notes)
    write_atomically(output, text.encode())
    show(f"wrote {output}: {hardware.architecture.name}")
    for note in hardware.notes:
        warn(note)
    return status.ANSWERED


def map_layers(chip: str, file: str, sizes: Sequence[str], flags: MapFlags, at: Change) -> int:
    """Maps every layer of a file and shows them with their totals."""
    from silicast.accelerator.counting.layer_table import mapped_layers, workload_of
    from silicast.accelerator.mapper.fusion_search import all_neighbours
    from silicast.accelerator.mapper.task import whole_sizes
    from silicast.report.designs.design_layers import layers_card, layers_data

    if flags.density:
        raise SilicastError(
            "is of one operation",
            field="--density",
            hint="of a file of layers, state [density] in the architecture file",
        )
    fuse = all_neighbours(flags.fuse)
    if flags.plot is not None:
        from silicast.report.drawing.plot_file import check_plot

        check_plot(flags.plot)
    workload = workload_of(Path(file), whole_sizes(sizes))
    for note in workload.notes:
        warn(note)
    result = mapped_layers(chip, workload, flags.objective, flags.effort, fuse=fuse, at=at)
    for note in result.remarks:
        warn(note)
    if flags.plot is not None:
        from silicast.report.designs.plots import draw_layers

        draw_layers(result, flags.plot)
    if flags.json:
        write_json(layers_data(result))
    else:
        show(layers_card(result))
    return status.ANSWERED


def map_cores(chip: str, op: str, sizes: Sequence[str], flags: MapFlags, at: Change) -> int:
    """Maps a network, or one operation, onto several cores.

    Raises:
        SilicastError: a flag that says nothing of several cores.
    """
    from silicast.accelerator.cores.core_file import read_cores
    from silicast.accelerator.cores.core_mapping import as_layer, mapped_cores
    from silicast.accelerator.cores.layer_graph import read_layer_graph
    from silicast.accelerator.counting.layer_table import is_workload
    from silicast.accelerator.mapper.task import einsum_of, whole_sizes
    from silicast.report.designs.core_schedules import cores_card, cores_data

    for name in ("density", "fuse", "policy", "plot"):
        if getattr(flags, name):
            raise SilicastError(
                "does not go with a file of several cores",
                field=f"--{name}",
                hint="leave it out, or map onto the design of one core",
            )
    system = read_cores(Path(chip))
    if is_workload(op):
        graph = read_layer_graph(Path(op), whole_sizes(sizes))
    else:
        graph = as_layer(einsum_of(op, sizes))
    result = mapped_cores(system, graph, flags.objective, flags.effort, at=at)
    for note in result.remarks:
        warn(note)
    if flags.json:
        write_json(cores_data(result))
    else:
        show(cores_card(result))
    return status.ANSWERED


def map_pair(
    chip: str, op: str, sizes: Sequence[str], flags: MapFlags, at: Change, *, explains: bool = False
) -> int:
    """Maps an operation and the one that takes what it leaves, apart and tile by tile."""
    from silicast.accelerator.mapper.fusion_search import fused_task
    from silicast.report.designs.fusion import fused_card, fused_data, fused_traffic

    if flags.plot is not None or flags.density:
        flag = "plot" if flags.plot is not None else "density"
        raise SilicastError(
            f"--{flag} does not go with --fuse", field=flag, hint="leave one of them out"
        )
    result = fused_task(chip, op, sizes, flags.fuse, flags.objective, flags.effort, at)
    if result.remark:
        warn(result.remark)
    if flags.json:
        write_json(fused_data(result))
    elif explains and result.cost is not None:
        show(fused_card(result), "", fused_traffic(result.cost))
    else:
        show(fused_card(result))
    return status.ANSWERED


@described()
def compare(
    chip: Path,
    op: str,
    /,
    *sizes: str,
    engine: str,
    objective: str = "energy",
    effort: Count = 10_000,
    json: Json = False,
) -> int:
    """Ask another tool that is installed for the same layer, and show ours beside its answer.

    Args:
        chip: a chip of the tool's own: an accelerator of ZigZag (.yaml), or Timeloop's folder; of
            AccelForge, one of our architecture files.
        op: conv2d or matmul.
        sizes: of the operation, such as c=64 m=64 p=56 q=56 r=3 s=3.
        engine: zigzag, timeloop or accelforge, which must be installed.
        objective: what is made small: energy, latency or edp.
        effort: partial mappings that ours tries.
    """
    from silicast.accelerator.peers.peer import beside
    from silicast.report.designs.design_layers import beside_card, beside_data

    result = beside(engine, chip, op, sizes, objective, effort)
    if json:
        write_json(beside_data(result))
    else:
        show(beside_card(result))
    return status.ANSWERED
