"""`silicast design`."""

from __future__ import annotations

from cyclopts import App

from silicast.app import status
from silicast.app.commands.design_files import import_, map_layers
from silicast.app.commands.design_search import search
from silicast.app.console import show, write_json
from silicast.app.flags import Json

design = App(
    name="design", help="Map work onto an accelerator that nobody has built.",
    help_format="plaintext",
)  # fmt: skip


@design.command(name="map")
def map_(
    chip: str, op: str = "", /, *sizes: str, density: list[str] | None = None,
    objective: str = "energy", effort: int = 10_000, json: Json = False,
) -> int:  # fmt: skip
    """Find the best mapping, as in `silicast design map eyeriss matmul m=64 n=64 k=64`.

    Args:
        chip: design of the catalog, an architecture file, or a folder of Timeloop's files.
        op: conv2d or matmul; left out, the problem of Timeloop's files. Or a file of layers, all of
            which are mapped: an op graph (.json), an ONNX model, layers of ZigZag (.yaml), a
            topology of SCALE-Sim (.csv), a network of MAESTRO (.m).
        sizes: of the operation, such as c=64 m=64 p=56 q=56 r=3 s=3; of a file, open ones, as
            batch=8.
        density: of a tensor, such as Weights=0.4 or Weights=2:4; may be given several times.
        objective: what is made small: energy, latency or edp.
        effort: partial mappings to try; more of them prove more.
        json: print JSON instead of tables.
    """
    from silicast.accelerator.layer_table import is_workload
    from silicast.accelerator.task import mapped, task_of
    from silicast.report.designs import answer_data, mapping_card

    if is_workload(op):
        return map_layers(chip, op, sizes, objective, effort, json=json)
    answer = mapped(task_of(chip, op, sizes, density or ()), objective, effort)
    if json:
        write_json(answer_data(answer))
    else:
        show(mapping_card(answer.nest, answer.cost, answer))
    return status.ANSWERED


@design.command
def explain(
    chip: str, op: str = "", /, *sizes: str, density: list[str] | None = None,
    objective: str = "energy", effort: int = 10_000, json: Json = False,
) -> int:  # fmt: skip
    """Show where the energy and the cycles of a mapping go, tensor by tensor.

    Args:
        chip: as of `design map`; a folder of Timeloop's files is explained with its own mapping.
        op: conv2d or matmul; left out, the mapping of Timeloop's files.
        sizes: of the operation, such as c=64 m=64 p=56 q=56 r=3 s=3.
        density: of a tensor, such as Weights=0.4 or Weights=2:4; may be given several times.
        objective: what is made small: energy, latency or edp.
        effort: partial mappings to try; more of them prove more.
        json: print JSON instead of tables.
    """
    from silicast.accelerator.task import given_mapping, mapped, task_of
    from silicast.report.designs import mapping_card, mapping_data, traffic_table

    if op:
        answer = mapped(task_of(chip, op, sizes, density or ()), objective, effort)
        nest, cost = answer.nest, answer.cost
    else:
        nest, cost = given_mapping(chip)
    if json:
        write_json(mapping_data(nest, cost))
    else:
        show(mapping_card(nest, cost), "", traffic_table(cost))
    return status.ANSWERED


design.command(search)
design.command(import_, name="import")
