"""`silicast collective`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, final

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Calibrations, Json, Strict
from silicast.app.predict import (
    Tree,
    predicted,
    print_reply,
    refused,
    require_measured,
    with_calibrations,
)
from silicast.core.errors import SilicastError


@described()
def collective(
    op: str,
    /,
    *,
    size: Annotated[str, Parameter(name="--bytes")],
    device: str | None = None,
    gpus: int | None = None,
    groups: int | None = None,
    group_stride: int | None = None,
    gpus_per_node: int | None = None,
    gpus_per_pod: int | None = None,
    oversubscription: float | None = None,
    inter_node: str | None = None,
    dtype: str | None = None,
    implementation: str | None = None,
    implementation_version: str | None = None,
    launch: str | None = None,
    astra_network: Path | None = None,
    astra_system: Path | None = None,
    plot: Path | None = None,
    calibration: Calibrations = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Predict a collective, as in `silicast collective all_reduce --bytes 1MiB --device h100`.

    Args:
        op: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send_recv.
        size: of the message as nccl-tests counts it (256MB, 1MiB), or a sweep (1KiB..1GiB).
        gpus: participants; left out, those of the device's usual node.
        groups: how many such groups of participants call it at once; left out, one.
        group_stride: 1, left out, forms groups of neighbours; 8 takes every eighth device.
        gpus_per_node: of the cluster; left out, the device's usual node.
        gpus_per_pod: devices below one level of switches; left out, all, or with
            --oversubscription those that one fast network joins, a node as a rule.
        oversubscription: how many times what enters that level is more than its uplinks carry.
        inter_node: the network between nodes, by its name in the catalog.
        dtype: element format; left out, bf16.
        implementation: whose collectives: nccl (default), vllm, sglang, trtllm.
        implementation_version: its release.
        launch: graph (default), eager or torch.
        astra_network: an ASTRA-sim network file; prints ASTRA-sim's own times.
        astra_system: the system file that goes with it.
        plot: a file (.svg, .png, .pdf) to draw a sweep to.
    """
    from silicast.scenario.answers.collective.collective_sizes import sizes_of

    sizes = sizes_of(size)
    options = {
        "dtype": dtype,
        "implementation": implementation,
        "implementation_version": implementation_version,
        "launch": launch,
        "groups": groups,
        "group_stride": group_stride,
    }
    workload = {"op": op, **{name: value for name, value in options.items() if value is not None}}
    joined = {
        "gpus_per_node": gpus_per_node,
        "gpus_per_pod": gpus_per_pod,
        "oversubscription": oversubscription,
        "inter_node": inter_node,
    }
    cluster = {name: value for name, value in joined.items() if value is not None}
    if astra_network is not None or astra_system is not None:
        if plot is not None:
            raise SilicastError("draws no times of ASTRA-sim", field="--plot", hint="leave it out")
        requested = _CollectiveRequest(device or "", workload, cluster, gpus, calibration)
        return _beside_astra(
            sizes, requested, astra_network, astra_system, strict=strict, json=json
        )
    if device is None:
        raise SilicastError("says on what: give it", field="--device", hint="--device h100")
    scenario = _CollectiveRequest(device, workload, cluster, gpus, calibration).scenario
    if len(sizes) > 1 or plot is not None:
        return _swept(scenario, sizes, plot, strict=strict, json=json)

    from silicast.report.tasks.collective import collective_report
    from silicast.scenario.answers.collective.collective_sizes import without_launch

    scenario = _sized(scenario, sizes[0])
    reply = predicted(scenario)
    other = without_launch(scenario)
    replayed = predicted(other) if other and reply["ok"] else None
    return print_reply(
        reply,
        lambda answer: collective_report(scenario, answer, replayed),
        json=json,
        strict=strict,
    )


@final
@dataclass(frozen=True)
class _CollectiveRequest:
    """What was asked, without a size."""

    device: str
    workload: Tree
    cluster: Tree
    gpus: int | None
    calibrations: list[Path] | None

    @property
    def scenario(self) -> Tree:
        from silicast.scenario.answers.collective.collective_sizes import usual_gpus

        scenario: dict[str, Any] = {
            "format": 1,
            "task": "collective",
            "device": self.device,
            "why": "full",
            "workload": self.workload,
        }
        if self.cluster:
            scenario["cluster"] = self.cluster
        gpus = usual_gpus(scenario) if self.gpus is None else self.gpus
        scenario["workload"] = {**self.workload, "gpus": gpus}
        return with_calibrations(scenario, self.calibrations)


def _sized(scenario: Tree, size: int) -> Tree:
    return {**scenario, "workload": {**scenario["workload"], "bytes": size}}


def _swept(
    scenario: Tree, sizes: tuple[int, ...], plot: Path | None, *, strict: bool, json: bool
) -> int:
    """Answers every size.

    Raises:
        SilicastError: the first size that is refused, or a drawing that cannot be made.
    """
    from silicast.report.drawing.plot_file import check_plot
    from silicast.report.tasks.collective import head_of, sweep_report, write_sweep

    if plot is not None:
        if len(sizes) < 2:
            raise SilicastError(
                "draws a sweep", field="--plot", hint="give several sizes, as --bytes 1KiB..1GiB"
            )
        check_plot(plot)
    points = [(size, _answer(_sized(scenario, size), strict=strict)) for size in sizes]
    if plot is not None:
        write_sweep(plot, points, head_of(scenario))
        warn(f"{plot}: the curve")
    if json:
        swept = [{"bytes": size, "answer": answer} for size, answer in points]
        write_json({"ok": True, "sweep": "bytes", "points": swept})
    else:
        show(sweep_report(scenario, points))
    return status.ANSWERED


def _answer(scenario: Tree, *, strict: bool = False) -> Tree:
    reply = predicted(scenario)
    if not reply["ok"]:
        raise refused(reply)
    if strict:
        require_measured(reply)
    return reply


def _beside_astra(
    sizes: tuple[int, ...],
    requested: _CollectiveRequest,
    network: Path | None,
    system: Path | None,
    *,
    strict: bool,
    json: bool,
) -> int:
    """ASTRA-sim's times, and Silicast's beside them where a device is named.

    Raises:
        SilicastError: one file without the other, or one that cannot be followed.
    """
    if network is None or system is None:
        missing = "--astra-network" if network is None else "--astra-system"
        raise SilicastError("goes with the other file of ASTRA-sim: give both", field=missing)
    import msgspec

    from silicast.report.tasks.collective import astra_report
    from silicast.scenario.answers.collective.collective_sizes import astra_points

    op = requested.workload["op"]
    npus, peers = astra_points(op, sizes, network, system)
    if requested.gpus not in (None, npus):
        raise SilicastError(
            f"{requested.gpus}, and the network file has {npus}",
            field="--gpus",
            hint="leave it out",
        )
    answers = {}
    if requested.device:
        scenario = replace(requested, gpus=npus).scenario
        answers = {
            peer.whole_size: _answer(_sized(scenario, peer.whole_size), strict=strict)
            for peer in peers
        }
    if json:
        points = [{**msgspec.to_builtins(p), "answer": answers.get(p.whole_size)} for p in peers]
        write_json({"ok": True, "npus": npus, "points": points})
    else:
        show(astra_report(op, npus, peers, answers))
    return status.ANSWERED
