"""Times the best configurations of a tuning plan on the GPU at hand, and keeps what was timed.

Each trial is a line of ``trials.jsonl``, written out before the next one begins, so that a run that
is killed loses one trial at most; a second run goes on after the last line.

The kernels are this project's own: tiles, warps and stages are those of a configuration, the order
of tiles is the device's, so that the group size stays as predicted.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import msgspec

from silicast.core.decode import Strict, decode_json
from silicast.core.errors import SilicastError, unsupported
from silicast.core.files import read_bounded
from silicast.core.packages import missing_package
from silicast.kernels.configuration import Configuration, read_configuration
from silicast.kernels.experts.expert_layer import ExpertLayer
from silicast.tuning.plan import TuningPlan, first_candidates

MOST_BYTES = 256 << 20
FILE = "trials.jsonl"
PAGE = "docs/how-to/tune-a-kernel.md"
HINT = "move the file away"
Timer = Callable[[ExpertLayer, int, Configuration], float]
"""Layer, tokens and configuration -> microseconds of both products."""


@final
class Trial(Strict, frozen=True):
    """One timed configuration.

    Attributes:
        file: that it is for; tokens: of its entry.
        configuration: values; predicted_us, measured_us: measured is 0 where it failed.
        error: why it failed, "" = it did not.
    """

    file: str
    tokens: int
    configuration: dict[str, int | str]
    predicted_us: float
    measured_us: float
    error: str = ""

    @property
    def what(self) -> Configuration:
        return read_configuration(self.configuration)


def read_trials(path: Path) -> list[Trial]:
    """Trials of an earlier run; a last line that was cut off is left out.

    Raises:
        SilicastError: another line is no trial.
    """
    if not path.is_file():
        return []
    lines = _content(path).split(b"\n")
    trials = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            trial = decode_json(line, Trial, file=str(path), page=PAGE, hint=HINT, line=number)
        except SilicastError:
            if number == len(lines):
                break  # killed while it was written
            raise
        trials.append(trial)
    return trials


def run_trials(
    name: str,
    layer: ExpertLayer,
    candidates: Mapping[int, Sequence[tuple[Configuration, float]]],
    folder: Path,
    timer: Timer,
) -> Iterator[Trial]:
    """Times what was not timed before, and gives every trial, old ones first.

    Args:
        name: of the file that is tuned; candidates: tokens -> configurations with predicted us.
        folder: where the trials are kept; timer: times one.
    """
    path = folder / FILE
    earlier = [trial for trial in read_trials(path) if trial.file == name]
    done = {(trial.tokens, trial.what) for trial in earlier}
    yield from earlier
    with path.open("ab") as stream:
        if stream.tell() and not _ends_line(path):
            stream.truncate(_last_line_end(path))
        for tokens, ranked in candidates.items():
            for configuration, predicted in ranked:
                if (tokens, configuration) in done:
                    continue
                trial = _tried(name, layer, tokens, configuration, predicted, timer)
                stream.write(msgspec.json.encode(trial) + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
                yield trial


def _content(path: Path) -> bytes:
    return read_bounded(path, MOST_BYTES, "a file of trials")


def _ends_line(path: Path) -> bool:
    return _content(path).endswith(b"\n")


def _last_line_end(path: Path) -> int:
    return _content(path).rfind(b"\n") + 1


def _tried(
    name: str,
    layer: ExpertLayer,
    tokens: int,
    configuration: Configuration,
    predicted: float,
    timer: Timer,
) -> Trial:
    values, error, measured = dict(configuration.values), "", 0.0
    try:
        measured = timer(layer, tokens, configuration)
    except Exception as raised:
        error = f"{type(raised).__name__}: {' '.join(str(raised).split())[:200]}"
    return Trial(name, tokens, values, predicted, measured, error)


def best_measured(trials: Sequence[Trial]) -> dict[int, Trial]:
    """Tokens -> the fastest trial that ran."""
    measured: dict[int, Trial] = {}
    for trial in trials:
        best = measured.get(trial.tokens)
        if trial.measured_us > 0.0 and (best is None or trial.measured_us < best.measured_us):
            measured[trial.tokens] = trial
    return measured


def gpu_timer(dtype: str) -> Timer:
    """A timer on the first GPU.

    Raises:
        SilicastError: no PyTorch or Triton, no GPU, or a format that its kernels do not have.
    """
    for package in ("torch", "triton"):
        if importlib.util.find_spec(package) is None:
            otherwise = "run it on the machine with the GPU, or leave --measure out"
            raise missing_package(package, "measuring", "--measure", otherwise)
    import torch

    if not torch.cuda.is_available():
        raise unsupported(
            "measuring needs a GPU, and PyTorch finds none here",
            "--measure",
            "run it on the machine with the GPU, or leave --measure out",
        )
    if dtype not in ("bf16", "fp16"):
        raise unsupported(
            f"the kernels that are timed have no {dtype}", "--measure", "they have bf16 and fp16"
        )
    return _Experts("bfloat16" if dtype == "bf16" else "float16").time_us


@final
class _Experts:
    """Layers on a GPU; weights of the last one are kept."""

    def __init__(self, dtype: str) -> None:
        import torch

        self._torch: Any = torch
        self._dtype = getattr(torch, dtype)
        self._layer: ExpertLayer | None = None
        self._weights: tuple[Any, Any] = (None, None)

    def time_us(self, layer: ExpertLayer, tokens: int, one: Configuration) -> float:
        """Median of a bench that clears the L2 between calls."""
        import triton

        from silicast.measurement.sweeps import triton_kernels

        torch = self._torch
        w13, w2 = self._of(layer)
        x = torch.randn(tokens, layer.hidden, dtype=self._dtype, device="cuda")
        scores = torch.rand(tokens, layer.experts, device="cuda")
        weights, chosen = scores.topk(layer.topk, dim=1)
        to = triton_kernels.routing(chosen, weights, layer.experts, one.number("tile_m"))
        options = {
            "COLS": one.number("tile_n"),
            "DEPTH": one.number("tile_k"),
            "num_warps": one.number("warps"),
            "num_stages": one.number("stages"),
        }
        return 1e3 * float(
            triton.testing.do_bench(
                lambda: triton_kernels.experts(x, w13, w2, to, options), return_mode="median"
            )
        )

    def _of(self, layer: ExpertLayer) -> tuple[Any, Any]:
        if layer != self._layer:
            torch, shape = self._torch, (layer.experts, 2 * layer.width, layer.hidden)
            w13 = torch.randn(shape, dtype=self._dtype, device="cuda") * 0.02
            w2 = torch.randn(
                (layer.experts, layer.hidden, layer.width), dtype=self._dtype, device="cuda"
            )
            self._layer, self._weights = layer, (w13, w2)
        return self._weights


MOST_TRIALS = 1000
TIMED_ROUTINGS = ("", "balanced", "uniform")
TIMED_AT_RANDOM = "candidates were timed with tokens that choose experts at random, as tuners do"


def measured_plan(
    plan: TuningPlan, trials: int, folder: Path, timer_of: Callable[[str], Timer] = gpu_timer
) -> TuningPlan:
    """The plan with the fastest of the first ``trials`` configurations in every entry.

    Args:
        folder: that keeps what was timed, for a run that goes on after it was killed.
        timer_of: a format -> what times one configuration.

    Raises:
        SilicastError: no GPU, or the folder cannot be written.
    """
    if not 1 <= trials <= MOST_TRIALS:
        raise SilicastError(f"expected 1 to {MOST_TRIALS}, found {trials}", field="trials")
    if plan.routing not in TIMED_ROUTINGS:
        raise unsupported(
            f"tokens spread as {plan.routing} are not timed",
            "routing",
            "leave --measure out, or --routing",
        )
    timer = timer_of(plan.dtype)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SilicastError(
            f"cannot make the folder: {error.strerror or error}", kind="io", file=str(folder)
        ) from None
    files = []
    for file in plan.files:
        if file.layer is None:
            raise unsupported(
                "only layers of experts are timed", "--measure", "leave --measure out"
            )
        candidates = first_candidates(file, plan, trials)
        measured = best_measured(list(run_trials(file.name, file.layer, candidates, folder, timer)))
        files.append(file.with_entries({t: x.what for t, x in measured.items()}, plan.engine))
    return replace(plan, files=tuple(files), warnings=(*plan.warnings, TIMED_AT_RANDOM))
