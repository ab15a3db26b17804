"""`silicast import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import show, warn
from silicast.app.flags import key_values
from silicast.core.errors import SilicastError


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
    """Import what other tools measured, or a training configuration of theirs.

    Rows of profiles, and of benchmarks of servers and collectives, calibrate a device and score
    predictions; rows that could not be identified are listed in the same file. A configuration
    becomes a scenario of task training; what of it was not used is listed.

    Args:
        files: Nsight Systems (SQLite, CSV), Nsight Compute (CSV), PyTorch profiler (JSON),
            Chakra (.et), nccl-tests, vllm bench serve, sglang.bench_serving, GenAI-Perf, AIPerf,
            guidellm, trtllm-bench, llama-bench, or a table of kernels (CSV, JSON Lines, Parquet).
            Or the configuration of a run: Megatron-LM (shell script, YAML), NeMo and Megatron-
            Bridge (YAML, Python), torchtitan (TOML, Python), DeepSpeed (JSON), accelerate and
            trainers of Hugging Face (YAML, JSON, shell script), Axolotl, LLaMA-Factory, MaxText
            (YAML), Calculon or SimuMax (three JSON files, or their folder).
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
    if not format_ and _is_training(files, output):
        variables = key_values(env or [], "--env", "--env TP=2")
        given = {name: str(value) for name, value in variables.items()}
        return _training(files, output, device, fields, run, given)
    if env:
        raise SilicastError(
            "only a script that starts a training run reads variables", field="--env"
        )
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


def _is_training(files: list[Path], output: Path) -> bool:
    """Whether a scenario is asked for, and the files are a training configuration."""
    if output.suffix.casefold() != ".json":
        return False
    from silicast.formats.training_configs import is_training_config

    return is_training_config(*files)


def _refuse_suffix(files: list[Path], output: Path) -> None:
    """Raises SilicastError where the files are a training configuration, and ``output`` is no file
    of a scenario.
    """
    from silicast.formats.training_configs import is_training_config

    if output.suffix.casefold() != ".json" and is_training_config(*files):
        raise SilicastError(
            f"is a training configuration, whose scenario {output.name} cannot be: it is JSON",
            file=str(files[0]),
            field="-o",
            hint=f"-o {output.with_suffix('.json')}",
        )


def _training(
    files: list[Path],
    output: Path,
    device: str,
    fields: dict[str, Any],
    run: str,
    variables: dict[str, str],
) -> int:
    import msgspec

    from silicast.core.files import write_atomically
    from silicast.formats.training_configs import missing_of, read_training_config
    from silicast.formats.training_configs.reader import NEEDED
    from silicast.scenario.decode import decode
    from silicast.scenario.set_fields import with_fields

    gpus = fields.get("cluster.gpus")
    devices = gpus if isinstance(gpus, int) and gpus > 0 else 0
    scenario, remarks = read_training_config(*files, devices=devices, run=run, variables=variables)
    given = {"device": device, **fields} if device else fields
    whole = with_fields(scenario, given)
    if isinstance(named := whole.get("device"), str):
        from silicast.hardware.catalog import find_device

        find_device(named)
    missing = missing_of(whole)
    if given and (missing is None or missing[0] == "device"):
        # what is stated is checked before a device is
        named = whole.get("device") or NEEDED["device"]
        decode({**whole, "device": named}, folder=output.parent)
    for line in remarks:
        if not (given.get("device") and line.startswith("device: not stated")):
            show(line)
    if missing is not None and missing[0] != "device":
        raise SilicastError(
            "is stated by none of the files", file=str(files[0]), field=missing[0], hint=missing[1]
        )
    if missing is None:
        _tried(whole, files[0], output.parent)
    content = msgspec.json.encode(whole)
    write_atomically(output, msgspec.json.format(content, indent=1) + b"\n")
    show(f"{output}: a scenario for `silicast run`")
    return status.ANSWERED


def _tried(scenario: dict[str, Any], file: Path, folder: Path) -> None:
    """Raises SilicastError, with the file and what to state, where the scenario cannot be run."""
    from silicast.scenario.answers.training.training_runs import run_of
    from silicast.scenario.decode import decode

    try:
        run_of(decode(scenario, folder=folder))
    except SilicastError as error:
        stated = f"what the files state is changed by --set {error.field or 'FIELD'}=VALUE"
        raise SilicastError(
            error.message,
            kind=error.kind,
            field=error.field,
            hint=f"{error.hint}; {stated}" if error.hint else stated,
            file=str(file),
        ) from None
