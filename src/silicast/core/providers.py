"""Who models an execution model: modules above those that ask, declared in data.

``catalog/execution_models.toml`` names, for each model, the module that registers its kernels and
the function that reads its device files. A layer that asks imports nothing above itself by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, final

import msgspec

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict

FILE = CATALOG / "execution_models.toml"


@final
class Provider(Strict, frozen=True):
    """What one execution model declares.

    Attributes:
        kernels: module whose import registers models of op families.
        reader: "module:function" of its own device files, "" = they are read as all others.
        check: "module:function" that lists what is wrong with such a file, decoded, as errors.
        key: a field that only such files have.
        folder: of the catalog, that holds such files by name.
    """

    kernels: str
    reader: str = ""
    check: str = ""
    key: str = ""
    folder: str = ""

    def read(self) -> Callable[..., Any]:
        """The function that :attr:`reader` names."""
        return _named(self.reader)

    def checker(self) -> Callable[..., Any]:
        """The function that :attr:`check` names."""
        return _named(self.check)


def _named(location: str) -> Callable[..., Any]:
    module, _, function = location.partition(":")
    result: Callable[..., Any] = getattr(import_module(module), function)
    return result


@cache
def providers() -> Mapping[str, Provider]:
    """Execution model -> what it declares.

    >>> providers()["systolic"].kernels
    'silicast.kernels.execution_models.systolic'
    """
    import tomllib

    table = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {name: msgspec.convert(provider, Provider) for name, provider in table.items()}


def reader_of(table: Mapping[str, Any]) -> Provider | None:
    """The provider whose device files have a field that ``table`` has; None = there is none."""
    return next((p for p in providers().values() if p.key and p.key in table), None)


@cache
def provided_files() -> Mapping[str, tuple[Provider, str]]:
    """Name -> provider and path, for the files of the catalog that providers read."""
    return {
        path.stem: (provider, str(path))
        for provider in providers().values()
        if provider.folder
        for path in sorted((CATALOG / provider.folder).glob("*.toml"))
    }
