"""`silicast import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import show, warn
from silicast.app.flags import key_values
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.scenario.reading.scenario_readers import ScenarioReader


def import_(
    files: list[Path],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    format_: Annotated[str, Parameter(name="--format")] = "",
    device: str = "",
    run: str = "",
    env: Annotated[list[str] | None, Parameter(negative="")] = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
) -> int:
    """Import what other tools measured, a training configuration, or what starts a server.

    Rows of profiles, and of benchmarks of servers and collectives, calibrate a device and score
    predictions; rows that could not be identified are listed in the same file. A configuration
    becomes a scenario of task training, what starts a server one of task serving; what of it was
    not used is listed.

    Args:
        files: Nsight Systems (SQLite, CSV), Nsight Compute (CSV), PyTorch profiler (JSON),
            Chakra (.et), nccl-tests, vllm bench serve, sglang.bench_serving, GenAI-Perf, AIPerf,
            guidellm, trtllm-bench, llama-bench, or a table of kernels (CSV, JSON Lines, Parquet).
            Or the configuration of a run: Megatron-LM (shell script, YAML), NeMo and Megatron-
            Bridge (YAML, Python), torchtitan (TOML, Python), DeepSpeed (JSON), accelerate and
            trainers of Hugging Face (YAML, JSON, shell script), Axolotl, LLaMA-Factory, MaxText
            (YAML), Calculon or SimuMax (three JSON files, or their folder). Or what starts servers
            of vLLM, SGLang or TensorRT-LLM: a shell script, docker compose or Kubernetes (YAML).
        output: the file of measurements to write or to continue; of a configuration, the scenario
            to write (.json).
        format_: the tool, if it cannot be recognised by the file.
        device: that was measured, if the file does not state it: catalog name, or path to a device
            file.
        run: which one of a configuration that holds several runs.
        env: NAME=value of a variable that a script leaves to the shell; may be given several times.
        set_: field=value that the files do not state, such as parallel.tp=2 or
            workload.arrival.concurrency=8; may be given several times.
    """
    from silicast.measurement.importers.files import import_files, save
    from silicast.report.measurements.imported import imported_lines, is_understood

    fields = key_values(set_ or [], "--set", "--set parallel.tp=2")
    if not format_ and (described := _described_by(files, output)) is not None:
        variables = key_values(env or [], "--env", "--env TP=2")
        environment = {name: str(value) for name, value in variables.items()}
        return _scenario(described, files, output, device, fields, run, environment)
    if env:
        raise SilicastError("only a script that starts a run reads variables", field="--env")
    try:
        result = import_files(files, name=format_, device=device, fields=fields)
    except SilicastError:
        if not format_:
            _refuse_suffix(files, output)
        raise
    save(result, output)
    for line in imported_lines(result):
        show(line)
    understood = is_understood(result)
    if not understood:
        warn("no row can be predicted: see the reasons above")
    return status.ANSWERED if understood else status.NOT_ANSWERED


def _described_by(files: list[Path], output: Path) -> ScenarioReader | None:
    """What reads the files as a scenario, if one is asked for and they describe one."""
    if output.suffix.casefold() != ".json":
        return None
    from silicast.scenario.reading.scenario_readers import reader_of

    return reader_of(*files)


def _refuse_suffix(files: list[Path], output: Path) -> None:
    """Raises SilicastError where the files describe a scenario, and ``output`` cannot be one."""
    from silicast.scenario.reading.scenario_readers import reader_of

    if output.suffix.casefold() != ".json" and (reader := reader_of(*files)) is not None:
        raise SilicastError(
            f"is {reader.what}, whose scenario {output.name} cannot be: it is JSON",
            file=str(files[0]),
            field="-o",
            hint=f"-o {output.with_suffix('.json')}",
        )


def _scenario(
    reader: ScenarioReader,
    files: list[Path],
    output: Path,
    device: str,
    fields: dict[str, Any],
    run: str,
    variables: dict[str, str],
) -> int:
    import msgspec

    from silicast.core.files import write_atomically
    from silicast.scenario.decode import decode
    from silicast.scenario.set_fields import with_fields

    gpus = fields.get("cluster.gpus")
    devices = gpus if isinstance(gpus, int) and gpus > 0 else 0
    scenario, remarks = reader.read(files, devices, run, variables)
    changes = {"device": device, **fields} if device else fields
    whole = with_fields(scenario, changes)
    if isinstance(named := whole.get("device"), str):
        from silicast.hardware.catalog import find_device

        find_device(named)
    missing = reader.missing(whole)
    if changes and (missing is None or missing[0] == "device"):
        # what is stated is checked before a device is
        named = whole.get("device") or "h100"
        decode({**whole, "device": named}, folder=output.parent)
    for line in remarks:
        if not (changes.get("device") and line.startswith("device: not stated")):
            show(line)
    if missing is not None and missing[0] != "device":
        raise SilicastError(
            "is stated by none of the files", file=str(files[0]), field=missing[0], hint=missing[1]
        )
    if missing is None:
        _tried(reader, whole, files[0], output.parent)
    content = msgspec.json.encode(whole)
    write_atomically(output, msgspec.json.format(content, indent=1) + b"\n")
    show(f"{output}: a scenario for `silicast run`")
    return status.ANSWERED


def _tried(reader: ScenarioReader, scenario: dict[str, Any], file: Path, folder: Path) -> None:
    """Raises SilicastError, with the file and what to state, where the scenario cannot be run."""
    from silicast.scenario.decode import decode

    try:
        decoded = decode(scenario, folder=folder)
        if reader.task == "training":
            from silicast.scenario.answers.training.training_runs import run_of

            run_of(decoded)
        else:
            from silicast.scenario.answers.serving.answerer import prepared
            from silicast.scenario.answers.serving.launch_plan import SAMPLE

            prepared(decoded, SAMPLE)
    except SilicastError as error:
        change = f"what the files state is changed by --set {error.field or 'FIELD'}=VALUE"
        raise SilicastError(
            error.message,
            kind=error.kind,
            field=error.field,
            hint=f"{error.hint}; {change}" if error.hint else change,
            file=str(file),
        ) from None
