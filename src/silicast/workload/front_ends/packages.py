"""Models of installed packages by name (``timm:resnet50``), without weights and without network.

Each package is one file that subclasses :class:`ModelPackage`; it is imported where a name of it is
asked for. What a model takes is stated by names of sizes ("batch", "image"), so that a size can be
set, or left open, by its name.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar, final

from silicast.core.errors import SilicastError, errors_at, unknown_name, unsupported
from silicast.core.naming import near
from silicast.workload.front_ends.failures import import_failure, line_of
from silicast.workload.front_ends.programs import graph_of, require_torch
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op_graph import GraphFile

Made = TypeVar("Made")

PACKAGES = {
    "timm": "silicast.workload.front_ends.packages_vision:Timm",
    "torchvision": "silicast.workload.front_ends.packages_vision:Torchvision",
    "transformers": "silicast.workload.front_ends.packages_transformers:Transformers",
    "diffusers": "silicast.workload.front_ends.packages_diffusers:Diffusers",
}
"""Package -> where its models are read."""
NEAREST = 4
"""Names that are offered in place of an unknown one."""
FACTORY = "write a function that returns (module, args), and trace FILE.py:FUNCTION"


@final
@dataclass(frozen=True)
class Input:
    """A tensor that a model takes.

    Attributes:
        shape: sizes, or names of sizes.
        dtype: "float" (as the weights), "int64" or "bool".
    """

    shape: tuple[int | str, ...]
    dtype: str = "float"


@final
@dataclass(frozen=True)
class PackagedModel:
    """A model of a package and what its forward pass takes.

    Attributes:
        module: a ``torch.nn.Module`` whose parameters hold no data.
        args, kwargs: of the call; leaves are :class:`Input` or plain values.
        sizes: usual values of the sizes that inputs name.
        said: what was assumed, for the user; "" = nothing.
    """

    module: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    sizes: Mapping[str, int]
    said: str = ""

    def call(self, sizes: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments on the "meta" device.

        Args:
            sizes: in place of the usual ones.

        Raises:
            SilicastError: no input has a size of that name.
        """
        values = self.sizes_in(sizes)
        return tuple(_filled(x, values) for x in self.args), _filled(dict(self.kwargs), values)

    def sizes_in(self, sizes: Mapping[str, int], names: Sequence[str] = ()) -> dict[str, int]:
        """All sizes, some in place of usual ones; raises as :meth:`call`, for ``names`` too."""
        for name in (*sizes, *names):
            if name not in self.sizes:
                raise unknown_name(
                    f"its inputs have no size {name!r}",
                    name,
                    f"they have: {', '.join(f'{k}={v}' for k, v in self.sizes.items())}",
                )
        return {**self.sizes, **sizes}


class ModelPackage(ABC):
    """A package that makes models by name.

    Attributes:
        package: its name, as it is imported and installed.
    """

    package: ClassVar[str]

    @abstractmethod
    def names(self) -> Sequence[str]:
        """All names that :meth:`model` takes."""

    @abstractmethod
    def model(self, name: str) -> PackagedModel | None:
        """A model; None = the package has none of that name.

        Raises:
            SilicastError: it has one, but not what can be called with example inputs.
        """


def is_packaged(name: str) -> bool:
    """Whether a name is of the form ``package:name`` of a package that is known here.

    >>> is_packaged("timm:resnet50"), is_packaged("mine.py:make"), is_packaged("gpt2")
    (True, False, False)
    """
    package, colon, _ = name.partition(":")
    return bool(colon) and package in PACKAGES and not Path(name).exists()


def packaged_model(name: str) -> PackagedModel:
    """The model that a name such as ``timm:resnet50`` stands for.

    Raises:
        SilicastError: PyTorch or the package is not installed, was built for another PyTorch, or
            has no such model: then the nearest names are offered.
    """
    package, _, model_name = name.partition(":")
    reader = _package(package)
    try:
        with offline():
            model = made_without_data(lambda: reader.model(model_name))
    except SilicastError as error:
        raise error.located(error.field or name) from None
    except Exception as error:
        message = (str(error).strip().splitlines() or [""])[0][:200]
        raise import_failure(error) or unsupported(
            f"{package} does not make it: {type(error).__name__}: {message}",
            name,
            FACTORY,
            file=line_of(error),
        ) from error
    if model is None:
        raise unknown_name(
            f"{package} has no model {model_name!r:.60}", name, nearest(model_name, reader.names())
        )
    return model


def packaged_graph(
    name: str,
    sizes: Mapping[str, int] | None = None,
    *,
    training: bool = False,
    dtype: str | None = None,
    autocast: str = "",
) -> tuple[Graph, str]:
    """The work of one call of a packaged model, and what was assumed of it ("" = nothing).

    Args:
        sizes: in place of usual ones.
        training, dtype, autocast: as of :func:`~silicast.workload.front_ends.graph_of`.

    Raises:
        SilicastError: as :func:`packaged_model`; an unknown size; or it cannot be exported.
    """
    model = packaged_model(name)
    with errors_at(name):
        args, kwargs = model.call(sizes or {})
        graph = graph_of(
            model.module, args, kwargs, training=training, dtype=dtype, autocast=autocast, name=name
        )
    return graph, model.said


def packaged_open_graph(
    name: str,
    opened: Sequence[str],
    sizes: Mapping[str, int] | None = None,
    *,
    training: bool = False,
    dtype: str | None = None,
    autocast: str = "",
) -> tuple[GraphFile, str]:
    """The work of a packaged model at any of its open sizes; see :func:`packaged_graph`.

    Args:
        opened: names of sizes.
        sizes: in place of usual ones.
    """
    model = packaged_model(name)
    try:
        usual = model.sizes_in(sizes or {}, opened)
        from silicast.workload.front_ends.dynamic_export import open_graph_of

        def make(values: Mapping[str, int]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
            return (model.module, *model.call({**(sizes or {}), **values}))

        graph = open_graph_of(
            name,
            make,
            {size_name: usual[size_name] for size_name in opened},
            named=usual.__contains__,
            training=training,
            dtype=dtype,
            autocast=autocast,
        )
    except SilicastError as error:
        raise error.at(name) if name not in error.field else error from None
    return graph, model.said


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint that offers the nearest of known names.

    >>> nearest("resnet5O", ["resnet18", "resnet50", "vit_b_16"])
    'did you mean resnet50 or resnet18?'
    """
    hint = near(name, known, NEAREST)
    if not hint.startswith("known"):
        return hint
    return f"it has {len(known):,}, for instance {', '.join(known[:NEAREST])}"


@contextmanager
def offline() -> Iterator[None]:
    """Without the model hub: some classes load the weights of a part of them, asked or not."""
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def made_without_data(make: Callable[[], Made]) -> Made:
    """What ``make`` returns, its parameters without data.

    A constructor that runs a network of its own (timm's hybrids) mixes such parameters with real
    tensors; then all that it makes is on the "meta" device.
    """
    import torch

    try:
        with without_data():
            return make()
    except RuntimeError:
        with torch.device("meta"):
            return make()


@contextmanager
def without_data() -> Iterator[None]:
    """Modules made inside register their parameters on the "meta" device.

    Other tensors are real: constructors of models compute with them (rates of dropped layers,
    tables of positions), which tensors without data do not allow.
    """
    import torch

    register_parameter = torch.nn.Module.register_parameter

    def register(module: Any, name: str, parameter: Any) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = torch.nn.Parameter(
                parameter.detach().to("meta"), requires_grad=parameter.requires_grad
            )
        register_parameter(module, name, parameter)

    torch.nn.Module.register_parameter = register
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register_parameter


def _package(name: str) -> ModelPackage:
    """What reads a package; the package itself can be imported."""
    require_torch()
    position, _, kind = PACKAGES[name].partition(":")
    try:
        importlib.import_module(name)
    except Exception as error:
        message = (str(error).strip().splitlines() or [""])[0][:200]
        raise import_failure(error) or unsupported(
            f"{name} is installed, but cannot be imported: {type(error).__name__}: {message}",
            name,
            f"install it again: pip install -U {name}",
        ) from error
    model_package: ModelPackage = getattr(importlib.import_module(position), kind)()
    return model_package


def _filled(tree: Any, values: Mapping[str, int]) -> Any:
    """A tree of inputs as tensors without data."""
    import torch

    if isinstance(tree, Input):
        shape = [values[size] if isinstance(size, str) else size for size in tree.shape]
        kind = torch.get_default_dtype() if tree.dtype == "float" else getattr(torch, tree.dtype)
        return torch.empty(shape, dtype=kind, device="meta")
    if isinstance(tree, Mapping):
        return {name: _filled(item, values) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_filled(item, values) for item in tree)
    return tree
