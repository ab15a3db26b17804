"""What reads the training configuration of another tool, and the one that understands a file.

A tool is one module of this package that subclasses :class:`TrainingConfig` and registers itself.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError, over_limit
from silicast.core.plain_data import MAX_TOML_BYTES
from silicast.core.registry import Registry
from silicast.formats.source import Source
from silicast.formats.training_configs.megatron_switches import of_environment

Tree = dict[str, Any]
MOST_FILES = 16
SUFFIXES = (".json", ".toml", ".yaml", ".yml", ".sh", ".bash", ".slurm", ".txt", ".args", ".py")
"""Of files that are read in a folder."""
NEEDED = {
    "model": "Llama-3.1-8B",
    "workload.seq_len": "4096",
    "workload.global_batch": "8",
    "device": "h100",
}
"""Fields that a run needs, with an example."""
EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts")
"""Names that a ``config.json`` has for them."""
_MOST_RUNS = 12
_NONE: Mapping[str, str] = MappingProxyType({})


@final
@dataclass(frozen=True)
class Stated:
    """What the user states beside the files.

    Attributes:
        devices: of the run; 0 = as the files say.
        run: which of several runs in a file; "" = there is one.
        variables: that the shell has when it starts a script.
        consulted: files of which a run was chosen.
    """

    devices: int = 0
    run: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    consulted: list[str] = field(default_factory=list, compare=False)

    def chosen(self, runs: Mapping[str, str], file: str) -> str:
        """The name of one of several runs of a file.

        Args:
            runs: their names, and what each is, for people.

        Raises:
            SilicastError: none is chosen of several, one that is not there, or there are none.
        """
        self.consulted.append(file)
        if self.run in runs:
            return self.run
        if len(runs) == 1 and not self.run:
            return next(iter(runs))
        if not runs:
            raise SilicastError(
                "holds no command that starts a run with its arguments",
                file=file,
                hint="name the file that starts the run",
            )
        shown = [f"{name} ({label})" if label else name for name, label in runs.items()]
        more = f" and {len(shown) - _MOST_RUNS} more" if len(shown) > _MOST_RUNS else ""
        listed = f"{', '.join(shown[:_MOST_RUNS])}{more}"
        message = f"has no run {self.run[:40]!r}" if self.run else f"holds {len(runs)} runs"
        raise SilicastError(
            f"{message}: {listed}", file=file, field="run", hint=f"--run {next(iter(runs))}"
        )


class TrainingConfig(ABC):
    """Reads the configuration of one tool.

    Class attributes:
        name: of the tool; files: what it needs, for people.
        numbers: a field of the scenario -> the name under which the tool has it.
    """

    name: ClassVar[str]
    files: ClassVar[str]
    numbers: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def recognises(self, files: Sequence[Source]) -> bool:
        """Whether the files are of this tool, by their content."""

    @abstractmethod
    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:
        """The scenario, and remarks: what was assumed, and each field that could not be used.

        Raises:
            SilicastError: a field is missing or wrong; names file and field.
        """


_KNOWN: Registry[TrainingConfig] = Registry(
    "silicast.formats.training_configs", "training configuration", "format"
)
register = _KNOWN.register


def is_training_config(*paths: Path) -> bool:
    """Whether a tool recognises the files; False too where they cannot be read.

    Raises:
        SilicastError: some of the files are one and others are not; kind "unsupported": a library
            that reads them is not installed.
    """
    try:
        files = _opened(dict.fromkeys(paths))
        if any(tool.recognises(files) for tool in _KNOWN.all().values()):
            return True
    except SilicastError as error:
        if error.kind == "unsupported":  # a library is missing: whoever reads says which
            raise
    if len(paths) > 1:
        alone = [path for path in paths if is_training_config(path)]
        others = [path for path in paths if path not in alone]
        if alone and others:
            raise SilicastError(
                f"does not go with the training configuration {alone[0].name}",
                file=str(others[0]),
                hint="is it cut off, or of another tool? mend it or leave it out",
            )
    return False


def read_training_config(
    *paths: Path, devices: int = 0, run: str = "", variables: Mapping[str, str] = _NONE
) -> tuple[Tree, list[str]]:
    """The scenario of task ``training`` that another tool's configuration describes.

    Args:
        paths: its files, or one folder that holds them.
        devices: that the run has, where the files leave it to their launcher; 0 = as they state.
        run: which one of a file that holds several.
        variables: of the shell that starts a script, such as {"TP": "2"}.

    Returns:
        The scenario as a plain tree, without what the files do not state (often the device), and
        remarks: what was assumed, and each field that was not used.

    Raises:
        SilicastError: no tool recognises the files, one of their fields is wrong or contradicts
            another, they hold several runs, or a number does not divide.
    """
    for path in paths:
        if paths.count(path) > 1:
            raise SilicastError("is given twice", file=str(path), hint="give each file once")
    files = _opened(paths)
    tool = next(
        (candidate for candidate in _KNOWN.all().values() if candidate.recognises(files)), None
    )
    if tool is None:
        tools = "; ".join(
            f"{candidate.name}: {candidate.files}" for candidate in _KNOWN.all().values()
        )
        raise SilicastError(
            "is no training configuration that is known", file=str(paths[0]), hint=tools
        )
    stated = Stated(devices, run, variables)
    try:
        scenario, remarks = tool.read(files, stated)
    except SilicastError as error:
        raise (error if error.file else error.located(file=str(files[0].path))) from None
    if run and not stated.consulted:
        raise SilicastError(
            f"has no run {run[:40]!r}: it holds one run",
            file=str(files[0].path),
            field="run",
            hint="leave --run out",
        )
    _check_variables(variables, files)
    check_divides(scenario, tool.numbers, str(files[0].path))
    remarks = [f"read as a configuration of {tool.name}", *remarks]
    if "device" not in scenario:
        remarks.append("device: not stated; name it")
    return {"format": 1, "task": "training", **scenario}, remarks


def missing_of(scenario: Tree) -> tuple[str, str] | None:
    """The first field that a run needs and a scenario lacks, with what to state; None = nothing."""
    for name, example in NEEDED.items():
        value: Any = scenario
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return name, f"--set {name}={example}"
    return None


def check_divides(scenario: Tree, numbers: Mapping[str, str], file: str) -> None:
    """Raises SilicastError where a plan does not divide, at the number to change.

    Args:
        numbers: as :attr:`TrainingConfig.numbers`.
    """
    model, work = scenario.get("model"), scenario.get("workload", {})
    parallel = scenario.get("parallel", {})
    sizes: Mapping[str, Any] = model if isinstance(model, dict) else {}
    degrees = {name: int(parallel.get(name, 1)) for name in ("tp", "cp", "ep", "dp")}
    micro = int(work.get("micro_batch", 1))
    experts = next((sizes[name] for name in EXPERTS if sizes.get(name)), 0)
    rules = (
        ("model.num_attention_heads", sizes.get("num_attention_heads"), degrees["tp"], "tp"),
        ("model.experts", experts, degrees["ep"], "ep"),
        ("workload.seq_len", work.get("seq_len"), 2 * degrees["cp"] * (degrees["cp"] > 1), "cp"),
        (
            "workload.global_batch",
            work.get("global_batch"),
            micro * degrees["dp"] * ("dp" in parallel),
            f"dp of {degrees['dp']} x micro-batch of {micro}",
        ),
    )
    for field_name, whole, part, degree in rules:
        if not whole or part <= 1 or int(whole) % part == 0:
            continue
        by = numbers.get(f"parallel.{degree}", degree)
        below = int(whole) // part * part
        near = f"{below} or {below + part}" if below else str(part)
        raise SilicastError(
            f"{whole} does not divide by {part} ({by})",
            file=file,
            field=numbers.get(field_name, field_name),
            hint=f"change it to {near}, or change {by}",
        )


def _opened(paths: Iterable[Path]) -> list[Source]:
    files = []
    for path in paths:
        if path.is_dir():
            files += sorted(p for p in path.iterdir() if p.suffix.casefold() in SUFFIXES)
        else:
            files.append(path)
    if not files:
        named = next(map(str, paths), "")
        raise SilicastError("holds no configuration", kind="io", file=named)
    if len(files) > MOST_FILES:
        raise over_limit(
            f"holds {len(files)} files", hint="name the ones", file=str(files[0].parent)
        )
    return [Source(path, MAX_TOML_BYTES, "a configuration of training") for path in files]


def _check_variables(variables: Mapping[str, str], files: Sequence[Source]) -> None:
    """Raises SilicastError for a variable that no file mentions and no library reads."""
    for name in variables:
        read = any(re.search(rf"\b{re.escape(name)}\b", file.text()) for file in files)
        if not read and not name.startswith("SLURM_") and not of_environment({name: ""}):
            raise SilicastError(
                "no file reads this variable",
                file=str(files[0].path),
                field=f"--env {name}",
                hint="check its name, or leave it out",
            )


def parallel_of(**degrees: int | bool) -> Tree:
    """Degrees without those that are 1; whether states and tokens are shared is always stated.

    >>> parallel_of(tp=8, pp=1, sp=False, zero=0), parallel_of(tp=1, dp=2, sp=False, zero=1)
    ({'tp': 8, 'sp': False, 'zero': 0}, {'dp': 2, 'zero': 1})
    """
    parallel = {
        name: value for name, value in degrees.items() if name in ("sp", "zero") or value != 1
    }
    if "tp" not in parallel:
        parallel.pop("sp", None)
    return parallel
