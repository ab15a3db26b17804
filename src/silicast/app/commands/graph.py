"""`silicast graph`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from silicast.app.arguments import described
from silicast.app.flags import Calibrations, Json, Strict
from silicast.app.html_file import TraceFile, write_trace
from silicast.app.predict import predicted, print_reply, screen_of, with_calibrations
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import near
from silicast.workload.front_ends.packages import is_packaged
from silicast.workload.graphs.networks import network_file, network_names
from silicast.workload.models.lookup import model_from

FILES = (".json", ".onnx", ".pt2", ".tflite", ".et")


@described()
def graph(
    program: str,
    /,
    *,
    device: str,
    batch: int | None = None,
    seq_len: int | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    training: Annotated[bool, Parameter(negative="")] = False,
    optimizer: str | None = None,
    engine: str | None = None,
    attention: str | None = None,
    cuda_graph: Annotated[bool, Parameter(negative="")] = False,
    runtime: str | None = None,
    dtype: str | None = None,
    tier: str | None = None,
    calibration: Calibrations = None,
    trace: TraceFile = None,
    chakra: Path | None = None,
    plot: Path | None = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Predict one pass of a program or a model as a plain framework runs it.

    Args:
        program: an op graph (.json), an ONNX or TFLite model, an exported PyTorch program (.pt2), a
            Chakra trace (a folder of prefix.RANK.et, folder/prefix, or one file), a model of an
            installed package (timm:resnet50, torchvision:, transformers:, diffusers:), an
            architecture of a search space (nasbench201:, fbnet:), a network of the catalog
            (resnet50), or a model.
        batch: of a model, or the program's open size of that name.
        seq_len: tokens of a sequence, likewise.
        set_: an open size of a program by its name, as batch=64; give it once for each of several.
            Several values of one (batch=1,2,4..256) make a curve, with the largest that fits.
        training: forward and backward.
        optimizer: with the update of a program's weights by this rule.
        engine: torch-eager (default) or torch-compile.
        attention: of a model: math or fused.
        cuda_graph: the pass is captured once and replayed, without launches one by one.
        runtime: of an ONNX or TFLite file, whose rules join operators: onnxruntime, litert,
            openvino, coreml, tensorrt or qnn. Left out, every operator is a kernel.
        dtype: format of a model's matrix products; left out, the checkpoint's. Of a package's
            model, of all its weights and inputs; left out, as the package makes them (fp32).
        tier: the highest that may answer: analytic, cross-device, scaled or calibrated; left out,
            the best. On a board, analytic runs a file on the loop nest of its NPU.
        trace: a file to write the predicted timeline to, for ui.perfetto.dev.
        chakra: a folder to write the pass to as a Chakra execution trace, a file a rank.
        plot: a file (.svg, .png, .pdf) to draw the graph of kernels to: what a runtime joins to
            each, and where the time goes.
    """
    _check_plot(plot)
    scenario: dict[str, Any] = {"format": 1, "task": "graph", "device": device}
    is_file = _is_program(program)
    workload: dict[str, Any] = {"graph": str(Path(program).absolute())} if is_file else {}
    is_shipped = not is_file and network_file(program) is not None
    if is_packaged(program) or is_shipped or (not is_file and _is_network(program, device)):
        workload = {"graph": program}
    elif not is_file:
        _check_model(program)
        scenario["model"] = program
    if training:
        workload["mode"] = "training"
    stated = {"batch": batch, "seq_len": seq_len, "optimizer": optimizer}
    workload |= {name: value for name, value in stated.items() if value is not None}
    several = _set_sizes(workload, set_ or [])
    scenario["workload"] = workload
    named = {"attention": attention, "runtime": runtime}
    options = {name: value for name, value in named.items() if value is not None}
    if cuda_graph:
        options["cuda_graph"] = "full"
    if options:
        scenario["engine"] = {"name": engine or "torch-eager", "options": options}
    elif engine is not None:
        scenario["engine"] = engine
    if dtype is not None:
        scenario["precision"] = {"recipe": dtype}
    if tier is not None:
        scenario["tier"] = tier
    scenario = with_calibrations(scenario, calibration)
    if several:
        _require_none({"--trace": trace, "--chakra": chakra, "--plot": plot})
        from silicast.app.size_curves import curve_shown

        return curve_shown(scenario, *several, json=json, strict=strict)
    reply = predicted(scenario)
    if reply["ok"]:
        write_trace(scenario, trace)
        _write_chakra(scenario, chakra)
        _draw(scenario, plot)
    return print_reply(reply, screen_of(scenario), json=json, strict=strict)


def _set_sizes(workload: dict[str, Any], words: list[str]) -> tuple[str, tuple[int, ...]] | None:
    """Puts sizes of one value each in place; the size that has several, with its values."""
    if not words:
        return None
    from silicast.scenario.answers.graph.size_curve import sizes_of

    sizes = sizes_of(words)
    single = {name: values[0] for name, values in sizes.items() if len(values) == 1}
    if "graph" in workload:
        workload["sizes"] = single
    else:
        workload |= single
    return next(((name, values) for name, values in sizes.items() if len(values) > 1), None)


def _write_chakra(scenario: dict[str, Any], folder: Path | None) -> None:
    if folder is None:
        return
    from silicast.app.console import warn
    from silicast.distributed.traces.trace_export import chakra_of
    from silicast.formats.chakra.files import write_chakra
    from silicast.scenario.answers.graph.answerer import pass_of
    from silicast.scenario.decode import decode
    from silicast.scenario.resolving.program_file import is_execution_trace

    requested = decode(scenario)
    if is_execution_trace(requested):
        raise SilicastError("the program is a Chakra trace already", field="--chakra")
    trace = chakra_of(pass_of(requested).program)
    write_chakra(trace, folder)
    warn(f"{folder}: {len(trace.ranks)} ranks of {len(trace.ranks[0].nodes):,} nodes")


def _check_plot(target: Path | None) -> None:
    if target is None:
        return
    from silicast.report.drawing.plot_file import check_plot

    check_plot(target)


def _require_none(files: dict[str, Path | None]) -> None:
    for flag, target in files.items():
        if target is not None:
            raise SilicastError("is of one size", field=flag, hint="give one value with --set")


def _draw(scenario: dict[str, Any], target: Path | None) -> None:
    if target is None:
        return
    from silicast.app.console import warn
    from silicast.report.drawing.graph_plot import draw_kernels
    from silicast.scenario.answers.graph.answerer import pass_of
    from silicast.scenario.answers.graph.drawn_kernels import drawn_kernels
    from silicast.scenario.decode import decode
    from silicast.scenario.reading.boards import is_board
    from silicast.scenario.resolving.program_file import is_execution_trace

    requested = decode(scenario)
    if is_execution_trace(requested):
        raise SilicastError("the program is a Chakra trace", field="--plot", hint="--trace")
    if is_board(requested.raw.device):
        raise SilicastError(
            "a board's networks are predicted whole, not kernel by kernel",
            field="--plot",
            hint="draw the file's graph on a device with kernels, as --device 'Raspberry Pi 5'",
        )
    its_pass = pass_of(requested)
    draw_kernels(drawn_kernels(its_pass), target, f"{its_pass.model} in {its_pass.format}")
    warn(f"{target}: the graph of kernels")


def _is_program(name: str) -> bool:
    """Whether it names a file, or a folder of traces, and no model."""
    if name.endswith(FILES):
        return not name.endswith("config.json")
    from silicast.formats.chakra.files import is_chakra
    from silicast.workload.spaces.space import is_architecture

    path = Path(name)
    if is_architecture(name):
        return False
    return (path.is_dir() or "/" in name) and is_chakra(path)


def _is_network(name: str, device: str) -> bool:
    """Whether it is a network of a search space, or one by name on a board's NPU."""
    from silicast.scenario.reading.boards import is_board
    from silicast.workload.spaces.space import is_architecture

    return is_architecture(name) or is_board(device)


def _check_model(name: str) -> None:
    """A name of a model, or a path of a configuration; anything else is refused by what it is."""
    path = Path(name)
    is_model = name.endswith("config.json") or path.joinpath("config.json").exists()
    if path.exists() and not is_model:
        raise SilicastError(
            "is neither a program nor a model",
            field="program",
            file=name,
            hint=f"programs end in {', '.join(FILES)}; `silicast trace FILE.py:FUNCTION` makes one",
        )
    try:
        model_from(name)
    except SilicastError as error:
        if error.kind != "unknown_name" or error.field != "model":
            raise
        hint = near(name, network_names())
        if hint.startswith("known"):
            hint = error.hint or hint
        raise unknown_name(f"unknown network or model {name!r}", "program", hint) from None
