"""ONNX Runtime on this machine's CPU, one thread: runs of test models, its own joined graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import numpy as np

from silicast.core.packages import missing_package
from silicast.measurement.runtimes.minimal_pairs import (
    INPUT,
    OPERATORS,
    REPEATS,
    SHAPE,
    imported_onnx,
    model_of,
    warm_cpu_s,
)

PROVIDER = "CPUExecutionProvider"
LAYOUT_CHANGES = ("ReorderInput", "ReorderOutput")
"""Operators of its own that only bring tensors into another order."""


@cache
def _package() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise missing_package("onnxruntime") from None
    return onnxruntime


@final
class OnnxRuntime:
    """Sessions by chain of operators, made once."""

    name = "onnxruntime"
    target = "cpu"
    operators = frozenset(OPERATORS)

    def __init__(self) -> None:
        self.version = str(_package().__version__)
        self._sessions: dict[tuple[str, ...], Any] = {}
        self._feed = {INPUT: np.zeros(SHAPE, np.float32)}

    def seconds(self, chain: Sequence[str]) -> float:
        """Seconds of the CPU that a repeat of a chain takes, the quicker of two warm runs."""
        session = self._sessions.get(tuple(chain))
        if session is None:
            session = self._sessions[tuple(chain)] = _session(model_of(chain))
        return warm_cpu_s(lambda: session.run(None, self._feed)) / REPEATS

    def own_operators(self, chain: Sequence[str]) -> tuple[str, ...]:
        """Kinds of the operators that its own optimised graph keeps of a repeat of a chain, layout
        changes and the barrier aside.
        """
        onnx = imported_onnx()
        with TemporaryDirectory() as folder:
            path = Path(folder) / "optimised.onnx"
            _session(model_of(chain), path)
            kinds = [node.op_type for node in onnx.load(str(path)).graph.node]
        running = [kind for kind in kinds if kind not in LAYOUT_CHANGES]
        return tuple(running[: round(len(running) / REPEATS) - 1])


def _session(content: bytes, optimised: Path | None = None) -> Any:
    runtime = _package()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    return runtime.InferenceSession(content, options, providers=[PROVIDER])
