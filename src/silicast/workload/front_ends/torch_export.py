"""PyTorch modules as exported programs, by way of copies whose tensors hold no data."""

from __future__ import annotations

import copy
import io
import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, final

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from silicast.core.errors import SilicastError, unsupported

CPU = torch.device("cpu")
"""Where tensors without data stand: what an operator launches is read from its name and sizes."""
CASTS = {
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64,
    "tf32": None,
}  # fmt: skip
"""Format that floating-point tensors may be cast to -> PyTorch's; tf32 keeps them."""
EXPORTABLE = (
    "torch.export needs code whose path does not depend on values of tensors: use torch.cond, "
    "torch.where or a fixed size in its place, or give the part that can be exported"
)


def export(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, training: bool, dtype: str | None
) -> Any:
    """An exported program of a copy of the module without data.

    Raises:
        SilicastError: no module, or it cannot be exported: names the line of its code.
    """
    if not isinstance(module, torch.nn.Module):
        raise SilicastError(
            f"expected a torch.nn.Module, found {type(module).__name__}", field="module",
            hint="wrap a function in a Module whose forward calls it",
        )  # fmt: skip
    try:
        with quiet(), FakeTensorMode(allow_non_fake_inputs=True):
            bare, args, kwargs = _Copies(CASTS[dtype or "tf32"]).tree((module, args, kwargs))
            if not training:
                bare.eval()
            return torch.export.export(_TensorsOf(bare), args, kwargs, strict=False)
    except SilicastError:
        raise
    except Exception as error:
        raise _failed(module, error) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without PyTorch's messages: what stops an export is in the error."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        printed = io.StringIO()
        with warnings.catch_warnings(), redirect_stderr(printed), redirect_stdout(printed):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _failed(module: Any, error: Exception) -> SilicastError:
    """Why a module cannot be exported: the line of the user's code, and what to give instead."""
    message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not any(part in frame.filename for part in ("/torch/", "/silicast/", "<eval_with_key")):
            where = f"{frame.filename}:{frame.lineno}"
    return unsupported(
        f"cannot be exported: {type(error).__name__}: {message[:300]}",
        type(module).__name__,
        EXPORTABLE,
        file=where,
    )


@final
class _TensorsOf(torch.nn.Module):
    """A module whose results are the tensors among its own; caches and other objects are left out,
    which ``torch.export`` does not return.
    """

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        found = self.inner(*args, **kwargs)
        return [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]


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
