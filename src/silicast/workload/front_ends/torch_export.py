"""PyTorch modules as exported programs, by way of copies whose tensors hold no data."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, final

import torch.cuda.amp.common
from torch._export.passes import replace_autocast_with_hop_pass
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map

from silicast.core.errors import SilicastError, unsupported
from silicast.workload.front_ends.cuda_autocast import FORMATS
from silicast.workload.front_ends.failures import export_failure

CPU = torch.device("cpu")
"""Where tensors without data stand: what an operator launches is read from its name and sizes."""
CASTS = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
    "tf32": None,
}
"""Format that floating-point tensors may be cast to -> PyTorch's; tf32 keeps them."""


def export(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    training: bool,
    dtype: str | None,
    autocast: str = "",
    opened: tuple[Any, ...] | None = None,
) -> Any:
    """An exported program of a copy of the module without data.

    Args:
        autocast: the format of automatic mixed precision, which its code then finds on; no cast is
            recorded. "" = none.
        opened: for args and then the values of kwargs, which axes are dynamic
            (``dynamic_shapes`` of ``torch.export``); None = all sizes are as they are.

    Raises:
        SilicastError: no module, or it cannot be exported: names the line of its code.
    """
    if not isinstance(module, torch.nn.Module):
        raise SilicastError(
            f"expected a torch.nn.Module, found {type(module).__name__}",
            field="module",
            hint="wrap a function in a Module whose forward calls it",
        )
    try:
        shapes = ShapeEnv(tracked_fakes=[]) if opened is not None else None
        tensors = FakeTensorMode(allow_non_fake_inputs=True, shape_env=shapes)
        with quiet(), tensors, _autocast(FORMATS.get(autocast)), _own_autocast():
            bare, args, kwargs = _Copies(CASTS[dtype or "tf32"]).tree((module, args, kwargs))
            if not training:
                bare.eval()
            if opened is not None:  # PyTorch 2.13 loses dynamic axes of **kwargs
                args, by_name = (*args, *kwargs.values()), tuple(kwargs)
                return torch.export.export(
                    _TensorsOf(bare, by_name), args, dynamic_shapes=(opened,), strict=False
                )
            return torch.export.export(_TensorsOf(bare), args, kwargs, strict=False)
    except SilicastError:
        raise
    except Exception as error:
        raise export_failure(type(module).__name__, error) from error


def check_autocast(autocast: str, dtype: str | None) -> None:
    """Raises SilicastError for a format that autocast does not take, or beside another cast."""
    if autocast not in FORMATS:
        raise SilicastError(
            f"unknown format {autocast!r}", field="autocast", hint=f"one of {', '.join(FORMATS)}"
        )
    if dtype not in (None, "fp32", "tf32"):
        raise SilicastError(
            f"autocast casts tensors in 32 bits, and dtype makes them {dtype}",
            field="autocast",
            hint="leave out one of the two",
        )


@contextmanager
def _autocast(dtype: torch.dtype | None) -> Iterator[None]:
    """Autocast on, for code that asks, whichever device it asks about: ``torch.export`` records
    operators above its casts, and tensors between them have the formats that casts give.
    """
    if dtype is None:
        yield
        return
    before = [
        (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in (CPU.type, "cuda")
    ]
    try:
        for device, _, _ in before:
            torch.set_autocast_enabled(device, True)
            torch.set_autocast_dtype(device, dtype)
        yield
    finally:
        for device, enabled, usual in before:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, usual)
        torch.clear_autocast_cache()


@contextmanager
def _own_autocast() -> Iterator[None]:
    """A program's own regions of autocast, as a GPU has them, as marks between its operators.

    Without a GPU ``torch.autocast("cuda")`` turns itself off. And ``torch.export`` makes a graph of
    each region, in a time that grows with the square of their number (timm has one a norm).
    """
    patches = (
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (
            replace_autocast_with_hop_pass,
            "replace_autocast_with_hop_pass",
            lambda module, signature: (module, signature),
        ),
    )
    before = [getattr(position, name) for position, name, _ in patches]
    try:
        for position, name, instead in patches:
            setattr(position, name, instead)
        yield
    finally:
        for (position, name, _), usual in zip(patches, before, strict=True):
            setattr(position, name, usual)


@contextmanager
def quiet() -> Iterator[None]:
    """Without PyTorch's messages: what stops an export is in the error."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        printed = io.StringIO()
        with warnings.catch_warnings(), redirect_stderr(printed), redirect_stdout(printed):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@final
class _TensorsOf(torch.nn.Module):
    """A module whose results are the tensors among its own; caches and other objects are left out,
    which ``torch.export`` does not return.

    Args:
        by_name: names of the last arguments, that the module takes by name.
    """

    def __init__(self, inner: torch.nn.Module, by_name: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.inner, self.by_name = inner, by_name

    def forward(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        if self.by_name:
            first = len(args) - len(self.by_name)
            args, kwargs = args[:first], dict(zip(self.by_name, args[first:], strict=True))
        inner = self.inner(*args, **kwargs)
        return [leaf for leaf in tree_leaves(inner) if isinstance(leaf, torch.Tensor)]


@final
class _Copies:
    """Copies of modules and arguments whose tensors have sizes and no data."""

    def __init__(self, cast: torch.dtype | None) -> None:
        self.cast = cast
        self.memo: dict[int, Any] = {}

    def tree(self, tree: Any) -> Any:
        """Parameters, buffers and tensors that are plain attributes are copied before modules."""
        modules = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.nn.Module)]
        for part in (part for module in modules for part in module.modules()):
            for leaf in tree_leaves(list(vars(part).values())):
                if isinstance(leaf, torch.Tensor):
                    self._tensor(leaf)
        return tree_map(self._leaf, tree)

    def _leaf(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return self._tensor(x)
        return copy.deepcopy(x, self.memo) if isinstance(x, torch.nn.Module) else x

    def _tensor(self, x: torch.Tensor) -> Any:
        if id(x) not in self.memo:
            if x.layout is not torch.strided:
                raise unsupported(f"a tensor of layout {x.layout}", "args", "give dense tensors")
            dtype = self.cast if self.cast is not None and x.is_floating_point() else x.dtype
            empty = torch.empty_strided(tuple(x.size()), tuple(x.stride()), dtype=dtype, device=CPU)
            self.memo[id(x)] = (
                torch.nn.Parameter(empty, requires_grad=x.requires_grad)
                if isinstance(x, torch.nn.Parameter)
                else empty.requires_grad_(x.requires_grad and x.is_leaf)
            )
        return self.memo[id(x)]
