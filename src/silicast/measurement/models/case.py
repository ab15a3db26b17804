"""What a measured model is: a program with random weights, and the sizes that it is measured in.

A model is one file of this package that registers a function::

    @measured("resnet50", {"b1": {"batch": 1}})
    def resnet50(torch, place, sizes):
        return Program(ResNet50(...), (images,))

Files hold PyTorch modules, so that they are imported only where PyTorch is needed.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from silicast.core.errors import SilicastError

Sizes = Mapping[str, int]
"""Name of a size -> its value."""

SMALL, LARGE = "small", "large"
"""Scales: what a CPU runs in some tenths of a second, and what fills a GPU."""


@final
@dataclass(frozen=True)
class Program:
    """A module and the arguments of one call, on the device that is measured.

    Attributes:
        module: a ``torch.nn.Module`` in ``eval`` mode.
        args: of its call.
        traced: a module of the same work whose path does not depend on values of tensors, for the
            trace; None = the module itself.
        compiles: "" or why a compiler is not measured on it.
        captures: "" or why it cannot be captured as a CUDA graph.
    """

    module: Any
    args: tuple[Any, ...]
    traced: Any = None
    compiles: str = ""
    captures: str = ""


@final
@dataclass(frozen=True)
class Place:
    """Where a program is built: PyTorch's name of the device, and the format of its numbers.

    Attributes:
        device: "cpu", "cuda", or "meta" for tensors without data.
        dtype: a name of :data:`silicast.core.dtypes.BITS` ("fp32", "bf16").
    """

    device: str
    dtype: str

    def torch_dtype(self) -> Any:
        """PyTorch's own name of the format.

        Raises:
            SilicastError: it has none.
        """
        import torch

        names = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}
        if self.dtype not in names:
            raise SilicastError(
                f"models are not measured in {self.dtype!r}",
                field="dtype",
                hint=f"one of {', '.join(names)}",
            )
        return getattr(torch, names[self.dtype])


Build = Callable[[Place, Sizes], Program]


@final
@dataclass(frozen=True)
class Case:
    """One program to measure.

    Attributes:
        name: of model and sizes ("decoder-decode-b1").
        build: makes it.
        sizes: what it is built with.
        scale: "small" or "large".
    """

    name: str
    build: Build
    sizes: Sizes
    scale: str

    def program(self, place: Place) -> Program:
        """The program, its weights random; the same numbers each time."""
        import torch

        torch.manual_seed(0)
        with torch.device(place.device):
            found = self.build(place, self.sizes)
        found.module.eval()
        return found


_CASES: dict[str, Case] = {}


def measured(
    model: str, small: Mapping[str, Sizes], large: Mapping[str, Sizes] | None = None
) -> Callable[[Build], Build]:
    """Registers a function that builds a model.

    Args:
        model: first part of the cases' names; small, large: name of each case -> its sizes.

    Raises:
        ValueError: a case of that name is there.
    """

    def register(build: Build) -> Build:
        for scale, cases in ((SMALL, small), (LARGE, large or {})):
            for label, sizes in cases.items():
                name = f"{model}-{label}"
                if name in _CASES:
                    raise ValueError(f"two models are called {name}")
                _CASES[name] = Case(name, build, sizes, scale)
        return build

    return register


def cases() -> dict[str, Case]:
    """All cases by name, the models in their files' order; imports PyTorch."""
    import silicast.measurement.models.programs as package

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return dict(_CASES)
