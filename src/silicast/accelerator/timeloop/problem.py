"""Timeloop's problem -> an einsum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silicast.accelerator.counting.einsum import Einsum, Rank, Tensor
from silicast.accelerator.timeloop._fields import number, rows, spelled, table, whole, word
from silicast.core.errors import SilicastError

_SHAPE = ("name", "dimensions", "coefficients", "data_spaces", "version")
_SPACE = ("name", "projection", "read_write")


def read_problem(problem: Mapping[str, Any], file: str) -> Einsum:
    """The section ``problem``.

    Raises:
        SilicastError: something is missing or has no meaning; the field is named.
    """
    field = "problem.shape"
    shape = spelled(problem.get("shape"), _SHAPE, field, file)
    instance = table(problem.get("instance"), "problem.instance", file)
    defaults = {}
    for index, item in enumerate(rows(shape.get("coefficients"), f"{field}.coefficients", file)):
        where = f"{field}.coefficients[{index}]"
        entry = table(item, where, file)
        defaults[word(entry.get("name"), f"{where}.name", file)] = entry.get("default", 1)
    dims = [str(dim) for dim in rows(shape.get("dimensions"), f"{field}.dimensions", file)]
    bounds = {dim: whole(instance.get(dim), f"problem.instance.{dim}", file) for dim in dims}
    coefficients = {**defaults, **{k: v for k, v in instance.items() if k in defaults}}
    tensors = [
        _tensor(item, bounds, coefficients, f"{field}.data_spaces[{index}]", file)
        for index, item in enumerate(rows(shape.get("data_spaces"), f"{field}.data_spaces", file))
    ]
    outputs = [tensor.name for tensor in tensors if tensor.is_output]
    if len(outputs) != 1:
        raise SilicastError(
            f"expected one with read_write: true, found {', '.join(outputs) or 'none'}",
            field=f"{field}.data_spaces",
            file=file,
        )
    try:
        return Einsum(str(shape.get("name", "problem")), bounds, tuple(tensors))
    except SilicastError as error:
        raise error.located(field, file) from None


def _tensor(
    item: Any, bounds: Mapping[str, int], coefficients: Mapping[str, Any], where: str, file: str
) -> Tensor:
    space = spelled(item, _SPACE, where, file)
    name = word(space.get("name"), f"{where}.name", file)
    field = f"{where}.projection"
    if "projection" not in space:
        raise SilicastError(f"{name} has none", field=field, file=file)
    ranks: list[Rank] = []
    for rank in rows(space["projection"], field, file):
        terms = []
        for term in rows(rank, field, file):
            parts = [str(part) for part in rows(term, field, file)]
            if not 1 <= len(parts) <= 2 or parts[0] not in bounds:
                raise SilicastError(
                    f"expected a dimension, and maybe a coefficient, found {term!r}",
                    field=field,
                    file=file,
                    hint=f"there are {', '.join(bounds)}",
                )
            step = 1
            if len(parts) == 2:
                if parts[1] not in coefficients:
                    raise SilicastError(f"no coefficient {parts[1]!r}", field=field, file=file)
                step = int(number(coefficients[parts[1]], f"problem.instance.{parts[1]}", file))
            terms.append((parts[0], step))
        ranks.append(tuple(terms))
    return Tensor(name, tuple(ranks), is_output=bool(space.get("read_write")))
