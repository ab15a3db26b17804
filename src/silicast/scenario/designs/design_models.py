"""Designs of a parameter file under a whole model: what a scenario answers on each of them."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from silicast import __version__
from silicast.accelerator.design.architecture_file import Design, design_path
from silicast.accelerator.design.chip import chip_of
from silicast.accelerator.design.device import device_of_design
from silicast.accelerator.mapper.compiled import EFFORT, Wanted, compiled, wanted, with_mappings
from silicast.accelerator.mapper.refit import listening
from silicast.core.decode import MOST_TOML_BYTES, read_toml
from silicast.core.errors import SilicastError
from silicast.core.files import read_text, write_atomically
from silicast.core.hashing import content_hash
from silicast.core.numerics import I64
from silicast.exploration.design_evaluation import (
    ChangedBase,
    DesignEvaluation,
    check_metrics,
    problem_of,
)
from silicast.exploration.layer_metrics import OF_THE_CHIP
from silicast.exploration.problem import SearchProblem
from silicast.exploration.space_file import DieTable, ReadSpace
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.reading.usual_lengths import usual_lengths
from silicast.scenario.run import reply_to, run
from silicast.workload.graphs.networks import network_file

MANY = 10
"""Searches for one answer from which on it is worth it to store mappings."""


@final
class MappingSearches:
    """Counts the mapping searches since it was made."""

    def __init__(self) -> None:
        self._before = _in_all()
        self._noted = 0

    def note(self, _what: object) -> None:
        """One more, which is remembered nowhere else."""
        self._noted += 1

    def count(self) -> int:
        """Number of mapping searches so far."""
        return _in_all() - self._before + self._noted

    def advice(self, device: object, model: object) -> str:
        """The command that stores them for a model; "" where there were few, or for want of names.

        >>> MappingSearches().advice("eyeriss", "Llama-3.1-8B")
        ''
        """
        if self.count() < MANY or not (isinstance(device, str) and isinstance(model, str)):
            return ""
        output = f"{Path(device).stem}-{Path(model).name}.toml"
        return (
            f"{self.count()} mappings of {device} were searched; stored ones make such answers "
            f"quick:\n  silicast design compile {device} --model {model} -o {output}"
        )


def _in_all() -> int:
    """By this process; what maps is not imported for it."""
    stored: Any = sys.modules.get("silicast.accelerator.mapper.stored")
    searches = getattr(stored, "searches", None)  # none while another thread imports it
    return 0 if searches is None else int(searches())


@final
class ModelEvaluation(DesignEvaluation):
    """Metrics that a scenario answers, with each design as its device."""

    def __init__(
        self,
        base: ChangedBase,
        scenario: Mapping[str, Any],
        folder: Path,
        caps: Mapping[str, float],
        die: DieTable | None,
    ) -> None:
        super().__init__(base, caps, die)
        self._scenario, self._folder = scenario, folder

    def running(self, design: I64, built: Design) -> dict[str, float]:  # noqa: ARG002
        """Estimates of all metrics of the scenario."""
        return self.answered(self._base.changed(design))

    def answered(self, table: dict[str, Any]) -> dict[str, float]:
        """Estimates of all metrics on a design.

        Args:
            table: a decoded architecture file.

        Raises:
            SilicastError: as the scenario's own answer would be refused.
        """
        reply = reply_to({**self._scenario, "device": copy.deepcopy(table)}, folder=self._folder)
        if not isinstance(reply, Answer):
            error = reply.error
            raise SilicastError(error.message, kind=error.kind, field=error.field, hint=error.hint)
        return {name: belief.estimate for name, belief in reply.metrics.items()}


def design_problem(read: ReadSpace) -> SearchProblem:
    """The search that a parameter file describes: of its layers, or of its scenario.

    Raises:
        SilicastError: as :func:`.problem_of`; a file with both or with a device in its scenario,
            or a scenario that the base cannot answer.
    """
    content = read.content
    if not read.scenario:
        return problem_of(read)
    for field, is_stated in (
        ("layer", bool(content.layer)),
        ("scenario.device", "device" in read.scenario),
    ):
        if is_stated:
            raise SilicastError(
                "a scenario runs on the designs themselves",
                field=field,
                file=read.file,
                hint="leave it out",
            )
    base = ChangedBase(read)
    folder = Path(read.file).parent
    evaluation = ModelEvaluation(base, read.scenario, folder, content.caps, read.die)
    try:
        metrics = evaluation.answered(base.table)
    except SilicastError as error:
        raise SilicastError(
            f"the base does not answer it: {error.message}",
            kind=error.kind,
            field=f"scenario.{error.field}",
            file=read.file,
            hint=error.hint,
        ) from None
    check_metrics(read, base, (*metrics, *OF_THE_CHIP))
    identity = content_hash([__version__, content, base.table])
    return SearchProblem(read.space, read.objectives, evaluation, identity, content.caps)


PROGRAMS = frozenset({".json", ".onnx", ".pt2"})
"""Endings of files of programs; a model's own config.json is given by its folder."""
_TIMES = itertools.count()


def compile_design(
    name: str,
    model: str,
    output: Path,
    *,
    batches: Sequence[int],
    input_len: int | None = None,
    output_len: int | None = None,
    dtype: str | None = None,
    tp: int = 1,
    effort: int = EFFORT,
    said: Callable[[Wanted], None] | None = None,
) -> int:
    """Writes the design with mappings for all that static batches of a model ask for.

    Args:
        model: as in a scenario; an op-graph file or a model of a package is passed forward once.
        batches: sequences of each static batch.
        input_len, output_len: of each sequence; None = the usual ones of the model.
        dtype: format of products, None = the checkpoint's.

    Returns:
        How many mappings were stored.

    Raises:
        SilicastError: what the scenario of the model raises, or a mapping that does not fit.
    """
    path = design_path(name)
    table = read_toml(path)
    table.pop("mapping", None)
    requested = []
    for batch in batches:
        # Under a name of its own nothing is remembered of it: all sizes are asked for.
        fresh = {**table, "name": f"{table.get('name')} {next(_TIMES)}"}
        tree: dict[str, Any] = {"device": fresh, "model": model, "parallel": {"tp": tp}}
        if dtype is not None:
            tree["precision"] = {"weights": dtype}
        with listening() as heard:
            run(decode(_of_model(tree, model, batch, input_len, output_len)))
        requested += heard
    work = wanted(requested)
    if not work:
        raise SilicastError(f"{model} has nothing that is mapped", field="model")
    result = compiled(chip_of(device_of_design(table, str(path))), work, effort, said)
    text = with_mappings(read_text(path, MOST_TOML_BYTES, "a design"), result)
    write_atomically(output, text.encode())
    return len(result)


def _of_model(
    tree: dict[str, Any], model: str, batch: int, input_len: int | None, output_len: int | None
) -> dict[str, Any]:
    """A scenario of a program, or of a language model with its prompts."""
    if Path(model).suffix in PROGRAMS or ":" in model or network_file(model) is not None:
        program = str(Path(model).absolute()) if Path(model).is_file() else model
        remaining = {
            name: value for name, value in tree.items() if name not in ("model", "parallel")
        }
        return {**remaining, "task": "graph", "workload": {"graph": program}}
    lengths = usual_lengths(model, input_len, output_len)
    return {**tree, "task": "inference", "workload": {"batch": batch, **lengths}}
