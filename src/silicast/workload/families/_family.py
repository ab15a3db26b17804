"""The interface of one architecture, and the fields of a configuration that it may read."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError
from silicast.workload.model import ModelConfig, check_size, divided
from silicast.workload.precision import Precision

_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu", "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu", "gelu_python": "gelu", "relu": "relu", "relu2": "relu2",
}  # fmt: skip


@final
class Fields:
    """Typed access to a configuration; each wrong value is an error that names its field.

    Args:
        data: the decoded configuration.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        self._asked: set[str] = set()

    def _get(self, name: str) -> Any:
        self._asked.add(name)
        return self._data.get(name)

    def asked(self) -> frozenset[str]:
        """Names of the fields of this table that were looked at."""
        return frozenset(self._asked)

    def names(self) -> tuple[str, ...]:
        """Names of all fields."""
        return tuple(self._data)

    def integer(self, *names: str, default: int | None = None) -> int:
        """The first of ``names`` that is present, as a whole number.

        Raises:
            SilicastError: missing without a default, or not a whole number.
        """
        for name in names:
            value = self._get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise SilicastError(
                    f"expected a whole number, found {str(value)[:40]!r}", field=name
                )
            return value
        if default is None:
            raise SilicastError("missing", field=names[0], hint="expected a whole number")
        return default

    def number(self, name: str, *, default: float) -> float:
        """A number, within what any size can be."""
        value = self._get(name)
        if value is None:
            return default
        sensible = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not sensible or not 0 <= value <= 1 << 40:
            raise SilicastError(f"expected a number, found {str(value)[:40]!r}", field=name)
        return float(value)

    def layers(self, *names: str) -> int:
        """The number of layers, within sensible limits: what is held per layer depends on it."""
        found = self.integer(*names)
        check_size("layers", found)
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        """A yes/no field."""
        value = self._get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise SilicastError(f"expected true or false, found {str(value)[:40]!r}", field=name)
        return value

    def text(self, name: str, *, default: str) -> str:
        """A text field."""
        value = self._get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise SilicastError(f"expected text, found {str(value)[:40]!r}", field=name)
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; empty where it is missing."""
        value = self._get(name)
        if value is None:
            return ()
        whole = isinstance(value, list) and all(
            isinstance(item, int) and not isinstance(item, bool) for item in value
        )
        if not whole:
            raise SilicastError(
                f"expected a list of whole numbers, found {str(value)[:40]!r}", field=name
            )
        return tuple(value)

    def words(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty where it is missing."""
        value = self._get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise SilicastError(f"expected a list of names, found {str(value)[:40]!r}", field=name)
        return tuple(value)

    def layer_types(
        self,
        layers: int,
        usual: tuple[str, ...],
        known: tuple[str, ...] = ("full_attention", "sliding_attention"),
        name: str = "layer_types",
    ) -> tuple[str, ...]:
        """``layer_types``: which of ``known`` each layer has; ``usual`` where it is missing.

        Raises:
            SilicastError: not a name for each of ``layers``, or a kind that is not modelled.
        """
        value = self._get(name)
        if value is None:
            return usual
        if not isinstance(value, list) or len(value) != layers:
            raise SilicastError(f"expected one name for each of {layers} layers", field=name)
        for kind in value:
            if kind not in known:
                raise SilicastError(
                    f"{str(kind)[:40]!r} is not modelled yet",
                    kind="not_yet",
                    field=name,
                    hint=f"modelled: {', '.join(known)}",
                )
        return tuple(value)

    def texts(self, name: str, count: int, known: tuple[str, ...]) -> tuple[str, ...]:
        """A list of ``count`` names out of ``known``; empty where it is missing.

        Raises:
            SilicastError: another length, or a name that is not known.
        """
        value = self._get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) != count:
            raise SilicastError(f"expected one name for each of {count} layers", field=name)
        for item in value:
            if item not in known:
                raise SilicastError(
                    f"{str(item)[:40]!r} is not modelled yet",
                    kind="not_yet",
                    field=name,
                    hint=f"modelled: {', '.join(known)}",
                )
        return tuple(value)

    def activation(self, name: str, *, default: str) -> str:
        """An activation function by one of its names."""
        value = self.text(name, default=default)
        if value not in _ACTIVATIONS:
            raise SilicastError(
                f"the activation {value[:40]!r} is not known",
                kind="not_yet",
                field=name,
                hint=f"one of {', '.join(_ACTIVATIONS)}",
            )
        return _ACTIVATIONS[value]

    def head_dim(self, hidden: int, heads: int) -> int:
        """``head_dim`` where stated, else hidden / heads."""
        stated = self.integer("head_dim", default=0)
        return stated or divided(hidden, heads)

    def table(self, name: str) -> Fields:
        """A nested object; empty where it is missing."""
        value = self._get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise SilicastError(f"expected an object, found {str(value)[:40]!r}", field=name)
        return Fields(value)

    def tables(self, name: str, count: int) -> list[Fields]:
        """A list of ``count`` objects."""
        value = self._get(name)
        listed = isinstance(value, list) and all(isinstance(item, dict) for item in value)
        if not listed or len(value) != count:
            raise SilicastError(f"expected one object for each of {count} layers", field=name)
        return [Fields(item) for item in value]

    def refuse(self, name: str, missing: str) -> None:
        """Stops at a structure that is not modelled, if the field is set to anything but none.

        Raises:
            SilicastError: kind "not_yet"; ``missing`` says what is not modelled.
        """
        if self._get(name) not in (None, False, 0, [], {}, ""):
            raise SilicastError(f"{missing} is not modelled yet", kind="not_yet", field=name)


class Family(ABC):
    """How the configurations of some architectures are read.

    Class attributes:
        architectures: entries of ``architectures`` that it reads.
        model_types: values of ``model_type`` that it reads where ``architectures`` is missing.
        structures: what it has beyond a dense decoder ("experts", "latent", "vision"); fields of
            other structures in its configurations are refused.
        text_part: its fields may lie in ``text_config``.
    """

    architectures: ClassVar[tuple[str, ...]]
    model_types: ClassVar[tuple[str, ...]] = ()
    structures: ClassVar[tuple[str, ...]] = ()
    text_part: ClassVar[bool] = False

    @abstractmethod
    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """The model of a configuration.

        Raises:
            SilicastError: a field is missing, of the wrong type or contradicts another.
        """


_REGISTRY: dict[str, Family] = {}


def register(cls: type[Family]) -> type[Family]:
    """Class decorator: makes a family known under its architectures and model types."""
    family = cls()
    for key in (*cls.architectures, *cls.model_types):
        if _REGISTRY.setdefault(key, family) is not family:
            raise ValueError(f"two families read {key}")
    return cls


def families() -> dict[str, Family]:
    """Architecture or model type -> its family; imports every file of this package once."""
    package = __name__.rpartition(".")[0]
    module = importlib.import_module(package)
    for found in pkgutil.iter_modules(module.__path__):
        if not found.name.startswith("_"):
            importlib.import_module(f"{package}.{found.name}")
    return _REGISTRY
