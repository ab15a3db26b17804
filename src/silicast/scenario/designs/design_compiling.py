"""`silicast design compile`: the sizes that a model needs on a design, searched and stored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from silicast.accelerator.design.architecture_file import design_path
from silicast.accelerator.design.chip import chip_of
from silicast.accelerator.design.device import device_of_design
from silicast.accelerator.mapper.compiled import EFFORT, Wanted, compiled, wanted, with_mappings
from silicast.accelerator.mapper.refit import listening
from silicast.core.decode import MOST_TOML_BYTES, read_toml
from silicast.core.errors import SilicastError
from silicast.core.files import read_text, write_atomically
from silicast.scenario.decode import decode
from silicast.scenario.reading.usual_lengths import usual_lengths
from silicast.scenario.run import run
from silicast.workload.graphs.networks import network_file

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
