"""Tokens in and out where nobody states them: of commands, of Python and of scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silicast.core.errors import SilicastError
from silicast.scenario.resolve import find_any_model

if TYPE_CHECKING:
    from silicast.scenario.schema import PoolTable, RawScenario
    from silicast.workload.models.model import ModelConfig

USUAL_INPUT_LEN, USUAL_OUTPUT_LEN = 1024, 128
"""Tokens of a request, where the model is made for as many and generates any."""
_BATCHES: dict[str, tuple[str, ...]] = {
    "inference": ("",),
    "serving": ("",),
    "capacity": ("traffic",),
    "plan": ("inference", "serving"),
}
"""Task -> where in its workload requests stand; "" = the workload itself."""


def usual_lengths(
    spec: object,
    input_len: int | None = None,
    output_len: int | None = None,
    folder: Path | None = None,
    engine: str | None = None,
) -> dict[str, int]:
    """``input_len`` and ``output_len`` of a request of a model; what is stated stays.

    Out: 128, or 1, the pass over the input, of a model that generates none or an engine that
    answers in one pass. In: 1024, or what is left of the tokens that the model was made for.

    Args:
        spec: the model as in a scenario; one that cannot be found is refused where it is answered.
        engine: that serves it, by name or alias; None = one that generates.

    >>> usual_lengths("Llama-3.1-8B"), usual_lengths("bert-base-uncased")
    ({'input_len': 1024, 'output_len': 128}, {'input_len': 512, 'output_len': 1})
    >>> usual_lengths("Llama-3.1-8B", engine="triton-server")
    {'input_len': 1024, 'output_len': 1}
    >>> usual_lengths("gpt2"), usual_lengths("gpt2", 2000)
    ({'input_len': 896, 'output_len': 128}, {'input_len': 2000, 'output_len': 128})
    """
    model = None if None not in (input_len, output_len) else _found(spec, folder)
    if output_len is None:
        single = (model is not None and not model.causal) or _in_one_pass(engine)
        output_len = 1 if single else USUAL_OUTPUT_LEN
    if input_len is None:
        input_len = USUAL_INPUT_LEN
        if model is not None and model.max_positions and isinstance(output_len, int):
            left = model.max_positions - generated(model, output_len)
            input_len = max(min(input_len, left), 1)
    return {"input_len": input_len, "output_len": output_len}


def generates(spec: object, folder: Path | None = None) -> bool:
    """Whether a model generates tokens; as far as is known, where it cannot be found.

    >>> generates("Llama-3.1-8B"), generates("bert-base-uncased"), generates("no such model")
    (True, False, True)
    """
    model = _found(spec, folder)
    return model is None or model.causal


def generated(model: ModelConfig, output_len: int) -> int:
    """Tokens of ``output_len`` that stand behind the prompt: none of an encoder, whose 1 is the
    pass over its input.
    """
    return output_len if model.causal else 0


def with_output_len(
    workload: dict[str, Any], raw: RawScenario, pools: Mapping[str, PoolTable], folder: Path
) -> dict[str, Any]:
    """A workload in which requests of a model that generates no tokens say so; other models' must
    say how many.
    """
    for position in _BATCHES.get(raw.task, ()):
        batch = workload.get(position) if position else workload
        if not isinstance(batch, dict) or "output_len" in batch or _traced(batch):
            continue
        spec = next((pool.model for pool in pools.values() if pool.model is not None), raw.model)
        model = _found(spec, folder)
        if model is not None and not model.causal:
            filled = {**batch, "output_len": 1}
            workload = {**workload, position: filled} if position else filled
    return workload


def _in_one_pass(engine: str | None) -> bool:
    """Whether an engine answers each request in one pass; one that cannot be found does not."""
    if engine is None:
        return False
    from silicast.composition.engines.engine import find_engine
    from silicast.serving.simulation.scheduler import scheduler_named

    try:
        table = find_engine(engine).serving
    except SilicastError:  # said where the scenario is answered
        return False
    return table is not None and scheduler_named(table.policy).one_pass


def _traced(batch: Mapping[str, Any]) -> bool:
    """Whether a trace says the lengths."""
    arrival = batch.get("arrival")
    return isinstance(arrival, dict) and ("path" in arrival or "rows" in arrival)


def _found(spec: object, folder: Path | None) -> ModelConfig | None:
    """The model, if there is one."""
    if not isinstance(spec, str | dict):
        return None
    try:
        return find_any_model(spec, folder or Path())
    except SilicastError:  # said where the scenario is answered
        return None
