"""Measured models: programs with random weights, the sizes they are measured in, how they are run.

A model is one file of :mod:`.programs` that registers a function::

    @measured("resnet50", {"b1": {"batch": 1}})
    def resnet50(place, sizes):
        return Program(ResNet50(...), (images,))

These files define PyTorch modules, so that they are imported only where PyTorch is needed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final, get_args

from silicast.core.errors import SilicastError
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.sweeps.runtime import capturing, on_side_stream

Sizes = Mapping[str, int]
Mode = Literal["eager", "graph", "compiled"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""In the order of measuring: the fastest to prepare first."""
ENGINES: dict[Mode, Any] = {
    "eager": "torch-eager",
    "graph": {"name": "torch-eager", "options": {"cuda_graph": "full"}},
    "compiled": "torch-compile",
}
"""The engine of a mode in a scenario."""
CAPTURE_WARM_UP = 3
"""Calls before a capture, as torch.cuda.graph requires."""
SMALL, LARGE = "small", "large"
"""Scales: what a CPU runs in some tenths of a second, and what fills a GPU."""

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}


@final
@dataclass(frozen=True)
class ModelCall:
    """A module and the arguments of one call, on the measured device.

    Attributes:
        module: a ``torch.nn.Module`` in ``eval`` mode; args: of its call.
        traced: module of the same work without control flow that depends on values, for the trace;
            None = the module itself.
        not_compiled: why it is not measured compiled, "" = it is.
        not_captured: why it cannot be captured as a CUDA graph, "" = it can.
    """

    module: Any
    args: tuple[Any, ...]
    traced: Any = None
    not_compiled: str = ""
    not_captured: str = ""

    def why_not(self, mode: Mode, machine: MeasuredMachine) -> str:
        """Why it is not measured in a mode on a machine; "" = it is."""
        if mode == "graph":
            return self.not_captured if machine.kind == "cuda" else "a CPU has no CUDA graphs"
        if mode == "compiled":
            return self.not_compiled or _no_compiler(machine)
        return ""

    def prepared(self, mode: Mode) -> Callable[[], object]:
        """One call in a mode, already compiled or captured; without gradients."""
        import torch

        module = self.module
        if mode == "compiled":
            torch.compiler.reset()
            module = torch.compile(module, dynamic=False)

        def call() -> object:
            with torch.no_grad():
                return module(*self.args)

        if mode != "graph":
            call()
            return call
        graph = torch.cuda.CUDAGraph()
        on_side_stream(torch, [call] * CAPTURE_WARM_UP)
        with capturing(torch, graph):
            output = call()

        def replay(result: object = output) -> object:
            graph.replay()
            return result

        return replay


def _no_compiler(machine: MeasuredMachine) -> str:
    """Why torch.compile cannot compile."""
    if machine.kind == "cuda" and importlib.util.find_spec("triton") is None:
        return "torch.compile needs Triton on a GPU: pip install triton"
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++")):
        return "torch.compile needs a C++ compiler: install g++, or name one in CXX"
    return ""


@final
@dataclass(frozen=True)
class Place:
    """Where a program is built.

    Attributes:
        device: "cpu", "cuda", or "meta" for tensors without data.
        dtype: format of its numbers ("fp32", "bf16").
    """

    device: str
    dtype: str

    def torch_dtype(self) -> Any:
        """PyTorch's type of the format.

        Raises:
            SilicastError: models are not measured in it.
        """
        import torch

        if self.dtype not in _DTYPES:
            raise SilicastError(
                f"models are not measured in {self.dtype!r}",
                field="dtype",
                hint=f"one of {', '.join(_DTYPES)}",
            )
        return getattr(torch, _DTYPES[self.dtype])


Build = Callable[[Place, Sizes], ModelCall]


@final
@dataclass(frozen=True)
class ModelCase:
    """A model in one size.

    Attributes:
        name: of model and size ("decoder-decode-b1").
        build: makes the program from ``sizes``.
        scale: "small" or "large".
    """

    name: str
    build: Build
    sizes: Sizes
    scale: str

    def program(self, position: Place) -> ModelCall:
        """The program with random weights, the same each time."""
        import torch

        torch.manual_seed(0)
        with torch.device(position.device):
            program = self.build(position, self.sizes)
        program.module.eval()
        return program


_CASES: dict[str, ModelCase] = {}


def measured(
    model: str, small: Mapping[str, Sizes], large: Mapping[str, Sizes] | None = None
) -> Callable[[Build], Build]:
    """Registers a function that builds a model.

    Args:
        model: first part of the cases' names; small, large: name of each case -> its sizes.

    Raises:
        ValueError: a name is taken.
    """

    def register(build: Build) -> Build:
        for scale, cases in ((SMALL, small), (LARGE, large or {})):
            for label, sizes in cases.items():
                name = f"{model}-{label}"
                if name in _CASES:
                    raise ValueError(f"two models are called {name}")
                _CASES[name] = ModelCase(name, build, sizes, scale)
        return build

    return register


def model_cases() -> dict[str, ModelCase]:
    """All cases by name, in the order of the files; imports PyTorch."""
    import silicast.measurement.models.programs as package

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return dict(_CASES)
