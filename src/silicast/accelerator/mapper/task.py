"""What a user names: a design and a problem, by words or by files of Timeloop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from silicast.accelerator.counting.cost import MappingCost, Objective, cost
from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul, unrolled
from silicast.accelerator.counting.mapping import LoopNest, MappingBatch
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.design.architecture_file import Design, PolicyTable, find_design, rules_of
from silicast.accelerator.design.check import check_tensors
from silicast.accelerator.mapper._hunt import rank_of
from silicast.accelerator.mapper.budget import EFFORT
from silicast.accelerator.mapper.cached_mappings import cached_mapping
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.mapper import Mapped, best_mapping
from silicast.accelerator.mapper.policy import Filling, MapperPolicy, mapping_by_policy
from silicast.accelerator.timeloop.files import Description, read_description, read_mapping
from silicast.accelerator.zeros import density
from silicast.accelerator.zeros.zero_mapping import mapped_zeros, overflow
from silicast.core.errors import SilicastError, errors_located, unknown_name

OPERATIONS: dict[str, Callable[..., Einsum]] = {"conv2d": conv2d, "matmul": matmul}
OBJECTIVES: tuple[Objective, ...] = ("energy", "latency", "edp")
NO_ENERGY = "the design states no energy"
TIMELOOP = "parsed-processed-input.yaml"


@final
@dataclass(frozen=True)
class Task:
    """An einsum to be mapped onto a design under its rules, as its policy prefers.

    Attributes:
        policies: others that the design names, each with its own rules beside the design's.
    """

    einsum: Einsum
    architecture: Architecture
    constraints: Constraints
    policy: MapperPolicy = MapperPolicy()
    policies: Mapping[str, tuple[MapperPolicy, Constraints]] = field(default_factory=dict)

    def under(self, name: str) -> Task:
        """The task under a policy that its design names; "" = under the usual one.

        Raises:
            SilicastError: the design names no such policy.
        """
        if not name:
            return self
        if name not in self.policies:
            names = ", ".join(self.policies)
            raise unknown_name(
                f"the design has no policy called {name!r}",
                "policy",
                f"one of {names}" if names else "add [policies.NAME] to its architecture file",
            )
        policy, rules = self.policies[name]
        return replace(self, policy=policy, constraints=rules)


def task_of(
    design: str, op: str = "", sizes: Sequence[str] = (), densities: Sequence[str] = ()
) -> Task:
    """A task as the command line gives it.

    Args:
        design: name in the catalog, an architecture file, or a folder of Timeloop's files.
        op: conv2d or matmul; "" = the problem of Timeloop's files.
        sizes: words like ``c=64``.
        densities: words like ``Weights=0.4``; they go before those of the design.

    Raises:
        SilicastError: unknown names, sizes that are missing, or files that cannot be read.
    """
    folder = Path(design)
    if folder.is_dir() or folder.name.endswith(".yaml"):
        einsum = einsum_of(op, sizes) if op else None
        result = described(folder, einsum)
        einsum = einsum or result.einsum
        einsum = with_densities(einsum, {}, densities)
        return Task(einsum, result.architecture, result.constraints)
    if not op:
        raise _no_problem()
    file = design if design.endswith(".toml") else ""
    return task_on(find_design(design), einsum_of(op, sizes), densities, file)


def _no_problem() -> SilicastError:
    return SilicastError(
        "an architecture file has no problem in it",
        field="op",
        hint="give one, as in `conv2d c=3 m=64 p=112 q=112 r=7 s=7 stride=2`",
    )


def task_on(chosen: Design, einsum: Einsum, densities: Sequence[str] = (), file: str = "") -> Task:
    """A task of an einsum on a design: with its densities, and as its policy prefers.

    Args:
        densities: words like ``Weights=0.4``; they go before those of the design.
        file: of the design, for messages.

    Raises:
        SilicastError: a tensor that is not there.
    """
    with errors_located(file=file):
        einsum = with_densities(einsum, chosen.content.density)
        check_tensors(chosen.architecture, einsum.names)
    einsum = with_densities(einsum, {}, densities)
    named = {name: _policy_of(chosen, table) for name, table in chosen.content.policies.items()}
    policy, rules = _policy_of(chosen, chosen.content.policy)
    return Task(einsum, chosen.architecture, rules, policy, named)


def _policy_of(chosen: Design, table: PolicyTable) -> tuple[MapperPolicy, Constraints]:
    """A policy of a design's file, and the rules that hold under it."""
    filling = table.fill
    fill = None if filling is None else Filling(filling.level, filling.tensor, filling.cut)
    rules = chosen.constraints
    more = rules_of(table.constraint, chosen.architecture)
    rules = replace(rules, rules={**rules.rules, **more})
    return MapperPolicy(table.objective, table.first, table.round_up, fill), rules


def architecture_of(design: str) -> Architecture:
    """A design by name, architecture file or folder of Timeloop's files.

    Raises:
        SilicastError: there is none, or it cannot be read.
    """
    folder = Path(design)
    if folder.is_dir() or folder.name.endswith(".yaml"):
        return described(folder).architecture
    return find_design(design).architecture


def notes_of(
    design: str, densities: Sequence[str] = (), einsum: Einsum | None = None
) -> tuple[str, ...]:
    """Statements about a design that change nothing, a line each.

    Args:
        design, densities: as of :func:`task_of`.
        einsum: that was mapped; None = the problem of Timeloop's files.

    Raises:
        SilicastError: it cannot be read.
    """
    folder = Path(design)
    if folder.is_dir() or folder.name.endswith(".yaml"):
        result = described(folder, einsum)
        notes, architecture, has_zeros = (
            result.notes,
            result.architecture,
            not result.einsum.is_dense,
        )
    else:
        chosen = find_design(design)
        notes, architecture, has_zeros = (), chosen.architecture, bool(chosen.content.density)
    if not (has_zeros or densities) or architecture.knows_zeros:
        return notes
    nothing = (
        "densities change nothing: no level of the design has a format, skip or gate, and its "
        "units multiply zeros too (on_zero)"
    )
    return (*notes, nothing)


def with_densities(
    einsum: Einsum, known: Mapping[str, str | float], words: Sequence[str] = ()
) -> Einsum:
    """An einsum with densities by name.

    Args:
        known: tensor -> density; those of tensors that are not there are left.
        words: like ``Weights=0.4``; see :func:`.density_of`.

    Raises:
        SilicastError: no such tensor, or no density.

    >>> with_densities(einsum_of("matmul", ["m=2", "n=3", "k=4"]), {}, ["Weights=2:4"]).is_dense
    False
    """
    densities = dict(known)
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise SilicastError(
                f"expected a tensor and its density, found {word!r}",
                field="density",
                hint=f"as in {einsum.names[0]}=0.4",
            )
        einsum.tensor(name)
        densities[name] = value
    return density.with_densities(einsum, densities)


def einsum_of(op: str, sizes: Sequence[str]) -> Einsum:
    """An einsum by name and words.

    Raises:
        SilicastError: an unknown operation or size, or one that is missing or no whole number.

    >>> einsum_of("matmul", ["m=2", "n=3", "k=4"]).points
    24
    """
    try:
        return sized(op, whole_sizes(sizes))
    except SilicastError as error:
        names = ", ".join(_sizes_of(op))
        raise SilicastError(error.message, field=error.field, hint=f"{op} has {names}") from None


def whole_sizes(words: Sequence[str]) -> dict[str, int]:
    """Sizes of words like ``c=64``.

    Raises:
        SilicastError: a word is none.

    >>> whole_sizes(["batch=8"])
    {'batch': 8}
    """
    sizes: dict[str, int] = {}
    for text in words:
        name, _, value = text.partition("=")
        if not (name and value.isdigit()):
            raise SilicastError(f"expected a size like k=64, found {text!r}", field="sizes")
        sizes[name] = int(value)
    return sizes


def sized(op: str, sizes: Mapping[str, Any]) -> Einsum:
    """An einsum by name and sizes.

    Raises:
        SilicastError: an unknown operation or size, or one that is missing or no whole number.

    >>> sized("matmul", {"m": 2, "n": 3, "k": 4}).points
    24
    """
    parameters = _sizes_of(op)
    for name, value in sizes.items():
        if name not in parameters:
            raise SilicastError(
                f"expected a size like {next(iter(parameters))}=64, found {name}={value}",
                field="sizes",
                hint=f"{op} has {', '.join(parameters)}",
            )
        if not isinstance(value, int):
            raise SilicastError(f"{name} is {value!r}, no whole number", field="sizes")
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in sizes
    ]
    if missing:
        raise SilicastError(f"{op} needs {', '.join(missing)}", field="sizes")
    return OPERATIONS[op](**sizes)


def _sizes_of(op: str) -> Mapping[str, inspect.Parameter]:
    if op not in OPERATIONS:
        raise unknown_name(f"unknown operation {op!r}", "op", f"there are {', '.join(OPERATIONS)}")
    return inspect.signature(OPERATIONS[op]).parameters


def mapped(task: Task, objective: str = "", effort: int = EFFORT) -> Mapped:
    """The best mapping of a task.

    Args:
        objective: energy, latency or edp; "" = what the design's policy says, else energy.
        effort: as of :func:`.best_mapping`.

    Raises:
        SilicastError: an unknown objective, one in which all mappings are equal, or no mapping
            fits.
    """
    task, goal, remark = aimed(task, objective)
    answer = _by_form(task, goal, effort)
    return replace(answer, remark="; ".join(filter(None, (remark, answer.remark))))


def aimed(task: Task, objective: str) -> tuple[Task, Objective, str]:
    """A task with what is made small: time alone, where no action of the design costs energy.

    Returns:
        the task, the objective, and a remark where it is another than the usual one, or "".

    Raises:
        SilicastError: as of :func:`mapped`.
    """
    goal = objective_of(objective or task.policy.objective or "energy")
    missing = task.architecture.missing_energy
    if task.architecture.costs_energy:
        if not missing or goal != "latency":
            return task, goal, ""
        remark = f"{missing} has no energy in the file: the energy shown leaves it out"
        return replace(task, architecture=task.architecture.timed()), goal, remark
    remark = _only_time(task.architecture, goal, is_wish=bool(objective))
    return replace(task, architecture=task.architecture.timed()), "latency", remark


def _only_time(architecture: Architecture, objective: Objective, *, is_wish: bool) -> str:
    """The remark on a design no action of which costs energy.

    Raises:
        SilicastError: an objective of energy was asked for.
    """
    if objective == "latency":
        return ""
    states = "every energy of the design is 0" if architecture.states_energy else NO_ENERGY
    if is_wish:
        raise SilicastError(
            f"{states}, so that all mappings are equal by {objective}",
            field="objective",
            hint="give --objective latency, or energies in the architecture file",
        )
    return f"{states}: mapped for least time (as --objective latency), energy is not answered"


def _by_form(task: Task, objective: Objective, effort: int) -> Mapped:
    """The better mapping of an einsum as it is, and on a systolic array of its unrolled windows:
    what feeds such an array unrolls them, so that its rows take a window's words in any number.
    """
    answer = _mapped(task, objective, effort)
    product = unrolled(task.einsum) if task.architecture.marches else None
    if product is None:
        return answer
    try:
        other = _mapped(replace(task, einsum=product), objective, effort)
    except SilicastError:  # rules that name dimensions of windows: it was mapped as it is
        return answer
    if not rank_of(other.cost, objective).is_before(rank_of(answer.cost, objective)):
        return answer
    return replace(other, bound=min(answer.bound, other.bound), tried=answer.tried + other.tried)


def _mapped(task: Task, goal: Objective, effort: int) -> Mapped:
    if task.architecture.knows_zeros:
        return mapped_zeros(task.einsum, task.architecture, task.constraints, goal, effort)
    how = (task.constraints, task.policy, goal, effort)
    return cached_mapping(task.einsum, task.architecture, how, lambda: _new(task, goal, effort))


def _new(task: Task, goal: Objective, effort: int) -> Mapped:
    if not task.policy.is_plain:
        return mapping_by_policy(
            task.einsum, task.architecture, task.constraints, task.policy, goal, effort
        )
    return best_mapping(
        task.einsum, task.architecture, task.constraints, objective=goal, effort=effort
    )


def objective_of(name: str) -> Objective:
    """An objective by its name.

    Raises:
        SilicastError: there is none.
    """
    for objective in OBJECTIVES:
        if name == objective:
            return objective
    raise unknown_name(
        f"unknown objective {name!r}", "objective", f"one of {', '.join(OBJECTIVES)}"
    )


Change = Callable[[Task], Task]
"""What is done to a task before it is mapped: its design at another node."""


def as_stated(task: Task) -> Task:
    """Leaves a mapping as it is stated."""
    return task


def given_mapping(folder: str, at: Change = as_stated) -> tuple[LoopNest, MappingCost]:
    """The mapping that Timeloop's files hold, and what it costs by our own counts.

    Args:
        at: what is done to the design before it is counted.

    Raises:
        SilicastError: a file cannot be read, or the mapping does not belong to it.
    """
    path = Path(folder)
    if not (path.is_dir() or path.name.endswith(".yaml")):
        raise _no_problem()
    if path.name.endswith(".yaml"):
        path = path.parent
    outcome = described(path)
    nest = read_mapping(path / "map.yaml", outcome)
    batch = MappingBatch.from_nest(nest, outcome.einsum, outcome.architecture)
    task = at(Task(outcome.einsum, outcome.architecture, outcome.constraints))
    result = cost(task.einsum, task.architecture, batch)
    if not result.fits[0]:
        raise overflow(result)
    return batch.nest(0, outcome.einsum, outcome.architecture), result


def described(path: Path, einsum: Einsum | None = None) -> Description:
    """Timeloop's description, with the tables that stand beside it.

    Args:
        einsum: the problem; None = that of the file.
    """
    folder = path if path.is_dir() else path.parent
    tables = [folder / name for name in ("ERT.yaml", "ART.yaml")]
    ert, art = (table if table.is_file() else None for table in tables)
    file = path / TIMELOOP if path.is_dir() else path
    return read_description(file, ert, art, einsum)
