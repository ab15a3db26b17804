"""What the modules of a package make known by a name when they are imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Generic, Protocol, TypeVar, final

from silicast.core.errors import unknown_name

_SHOWN = 40


class Named(Protocol):
    """A class with the name by which it is known."""

    name: ClassVar[str]


T = TypeVar("T", bound=Named)
S = TypeVar("S", bound=Named)


@final
class Registry(Generic[T]):
    """One instance of each class that a package registers; it serves all calls.

    Args:
        package: whose modules register their classes; those whose name starts with "_" are not
            looked at.
        kind: of the classes, for errors.
        field: that names one of them, for errors.
    """

    def __init__(self, package: str, kind: str, field: str) -> None:
        self._package, self._kind, self._field = package, kind, field
        self._known: dict[str, T] = {}
        self._whole = False

    def register(self, cls: type[S]) -> type[S]:
        """Class decorator: makes a class known.

        Raises:
            ValueError: there is one of that name.
        """
        if cls.name in self._known:
            raise ValueError(f"two of kind {self._kind} are named {cls.name!r}")
        self._known[cls.name] = cls()  # type: ignore[assignment]
        return cls

    def all(self) -> Mapping[str, T]:
        """All of them by name, sorted; imports every module of the package once."""
        if not self._whole:
            import importlib
            import pkgutil

            for module in pkgutil.iter_modules(importlib.import_module(self._package).__path__):
                if not module.name.startswith("_"):
                    importlib.import_module(f"{self._package}.{module.name}")
            self._whole = True
        return dict(sorted(self._known.items()))

    def named(self, name: str) -> T:
        """The one of a name; without an import where its module was imported already.

        Raises:
            SilicastError: there is none of that name.
        """
        value = self._known.get(name) or self.all().get(name)
        if value is None:
            hint = f"one of {', '.join(self.all())}"
            raise unknown_name(f"unknown {self._kind} {name[:_SHOWN]!r}", self._field, hint)
        return value
