"""Timeloop's problem -> an einsum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.core.errors import SilicastError
from silicast.formats.fields import Fields

_SHAPE = ("name", "dimensions", "coefficients", "data_spaces", "version")
_SPACE = ("name", "projection", "read_write")


def read_problem(problem: Fields) -> Einsum:
    """The section ``problem``.

    Raises:
        SilicastError: something is missing or has no meaning; the field is named.
    """
    shape = problem.table("shape", needed=True).spelled(_SHAPE)
    instance = problem.table("instance", needed=True)
    defaults = {}
    for entry in shape.tables("coefficients"):
        default = entry.get("default")
        defaults[entry.text("name", default=None)] = 1 if default is None else default
    dims = [str(dim) for dim in shape.rows("dimensions")]
    bounds = {dim: instance.count(dim) for dim in dims}
    stated = {name: value for name, value in instance.values.items() if name in defaults}
    coefficients = Fields({**defaults, **stated}, instance.path, instance.file)
    tensors = [_tensor(space, bounds, coefficients) for space in shape.tables("data_spaces")]
    outputs = [tensor.name for tensor in tensors if tensor.is_output]
    if len(outputs) != 1:
        raise shape.error(
            f"expected one with read_write: true, found {', '.join(outputs) or 'none'}",
            "data_spaces",
        )
    try:
        return Einsum(str(shape.values.get("name", "problem")), bounds, tuple(tensors))
    except SilicastError as error:
        raise error.located(shape.path, shape.file) from None


def _tensor(given: Fields, bounds: Mapping[str, int], coefficients: Fields) -> EinsumTensor:
    space = given.spelled(_SPACE)
    name = space.text("name", default=None)
    if "projection" not in space.values:
        raise space.error(f"{name} has none", "projection")
    ranks = tuple(
        tuple(_term(term, space, bounds, coefficients) for term in _list(rank, space))
        for rank in space.rows("projection")
    )
    return EinsumTensor(name, ranks, is_output=bool(space.get("read_write")))


def _list(value: Any, space: Fields) -> list[Any]:
    if not isinstance(value, list):
        raise space.error(f"expected a list, found {value!r:.40}", "projection")
    return value


def _term(
    term: Any, space: Fields, bounds: Mapping[str, int], coefficients: Fields
) -> tuple[str, int]:
    """A dimension of an index, and the step that it is taken with."""
    dim, *step = [str(part) for part in _list(term, space)] or [""]
    if len(step) > 1 or dim not in bounds:
        raise space.error(
            f"expected a dimension, and maybe a coefficient, found {term!r}",
            "projection",
            f"there are {', '.join(bounds)}",
        )
    if not step:
        return dim, 1
    if step[0] not in coefficients.values:
        raise space.error(f"no coefficient {step[0]!r}", "projection")
    return dim, int(coefficients.number(step[0], least=-math.inf))
