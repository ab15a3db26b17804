"""Which kernels an engine runs: the ``[kernels]`` table of its file in ``catalog/engines``.

Measured tables name the engine where they mean its call, so that kernel models need these facts as
well as steps do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import final

import msgspec

from silicast.core.compiled import content_of, entries
from silicast.core.decode import Strict
from silicast.core.dtypes import RECIPES
from silicast.workload.libraries.catalog import library_names

USUAL = "default"
"""Key of the table for architectures without an entry for a family."""

CALLS = ("append", "rope", "quantize", "route", "project")
"""Work that an engine's call may do beside its kernel."""


@final
class Backend(Strict, frozen=True):
    """Kernels that a switch of an engine chooses instead of its usual ones.

    Attributes:
        by: switch -> its values that choose them.
        families: of the ops that they run.
        library: architecture -> kernel library; "default" stands for all others.
        kernel: its name in measured tables; "" = the library's usual one.
        formats: recipe of the checkpoint that they can run -> recipe that is run; {} = all, as they
            are.
        runs_on: places where they run; [] = wherever the library does.
        calls: work of the engine's call beside the kernel.
    """

    by: dict[str, list[str]]
    families: list[str]
    library: dict[str, str]
    kernel: str = ""
    formats: dict[str, str] = {}
    runs_on: list[str] = []
    calls: list[str] = []


@final
class EngineKernels(Strict, frozen=True):
    """Kernels of one engine.

    Attributes:
        libraries: architecture, else vendor or "cpu" -> op family -> kernel library; "default"
            stands for all others.
        formats: architecture -> op family -> recipe of the checkpoint -> recipe that is run.
        calls: op family -> work of the engine's call beside its kernel, in tables of single
            kernels: "append" (new keys and values into the cache), "rope", "quantize", "route" (the
            choice of experts), "project" (the products between heads and latent).
        calls_on: architecture -> op family -> further work of its call there.
        names: architecture -> op family -> recipe -> the kernel that runs where a rank holds the
            tokens of all others of its group, by the name of a measured table.
        chosen: op family -> what switches chose for it: of several, the first that can run a
            recipe; its usual kernels run the others.
        families: op family -> the one whose model describes the engine's kernels for it.

    >>> EngineKernels(libraries={"default": {"moe": "vllm"}}).library("moe", "hopper")
    'vllm'
    """

    libraries: dict[str, dict[str, str]] = {}
    formats: dict[str, dict[str, dict[str, str]]] = {}
    calls: dict[str, list[str]] = {}
    calls_on: dict[str, dict[str, list[str]]] = {}
    names: dict[str, dict[str, dict[str, str]]] = {}
    chosen: dict[str, list[Backend]] = {}
    families: dict[str, str] = {}

    def choice(self, family: str, recipe: str) -> Backend | None:
        """What a switch chose for a family that can run a checkpoint's recipe; None = nothing."""
        backends = self.chosen.get(family, ())
        return next(
            (backend for backend in backends if not backend.formats or recipe in backend.formats),
            None,
        )

    def library(self, family: str, architecture: str, recipe: str = "", maker: str = "") -> str:
        """The kernel library for a family on an architecture of a maker (a vendor of accelerators,
        or "cpu"); "" = the usual one there.
        """
        if (choice := self.choice(family, recipe)) is not None:
            return choice.library.get(architecture, choice.library.get(USUAL, ""))
        tables = (self.libraries.get(name, {}) for name in (architecture, maker, USUAL))
        return next((table[family] for table in tables if family in table), "")

    def recipe(self, family: str, architecture: str, recipe: str) -> str:
        """The recipe that runs for a checkpoint's."""
        if (choice := self.choice(family, recipe)) is not None:
            return choice.formats.get(recipe, recipe)
        for name in (architecture, USUAL):
            result = self.formats.get(name, {}).get(family, {}).get(recipe)
            if result:
                return result
        return recipe

    def kernel(self, family: str, architecture: str, recipe: str) -> str:
        """The name of the kernel that runs a checkpoint's recipe; "" = the library's usual one."""
        if (choice := self.choice(family, recipe)) is not None:
            return choice.kernel
        return self.names.get(architecture, {}).get(family, {}).get(recipe, "")

    def holds(self, family: str, what: str, architecture: str = "") -> bool:
        """Whether the engine's call of a family does ``what`` too, on an architecture."""
        calls: Sequence[str] = self.calls_on.get(architecture, {}).get(family, ())
        if family in self.chosen:
            calls = [call for choice in self.chosen[family] for call in choice.calls]
        return what in self.calls.get(family, ()) or what in calls

    def named(self, families: Iterable[str]) -> Iterator[tuple[str, str, str, Iterable[str]]]:
        """Every name in the tables: (path below ``kernels``, what it names, name, known ones)."""
        yield from (
            ("families", "op family", family, families)
            for family in (*self.families, *self.families.values())
        )
        for table, kinds in (("libraries", self.libraries), ("formats", self.formats)):
            for architecture, by_family in kinds.items():
                for family in by_family:
                    yield f"{table}.{architecture}.{family}", "op family", family, families
        for architecture, libraries in self.libraries.items():
            for family, library in libraries.items():
                path = f"libraries.{architecture}.{family}"
                yield path, "kernel library", library, library_names().names
        for architecture, formats in self.formats.items():
            for family, recipes in formats.items():
                for recipe, run in recipes.items():
                    path = f"formats.{architecture}.{family}.{recipe}"
                    yield path, "recipe", recipe, RECIPES
                    yield path, "recipe", run, RECIPES
        yield from self._named_kernels(families)
        yield from _named_calls("calls", self.calls, families)
        for architecture, calls in self.calls_on.items():
            yield from _named_calls(f"calls_on.{architecture}", calls, families)

    def _named_kernels(
        self, families: Iterable[str]
    ) -> Iterator[tuple[str, str, str, Iterable[str]]]:
        """The names in :attr:`names`, likewise."""
        for architecture, kernels in self.names.items():
            for family, by_recipe in kernels.items():
                path = f"names.{architecture}.{family}"
                yield path, "op family", family, families
                yield from ((f"{path}.{recipe}", "recipe", recipe, RECIPES) for recipe in by_recipe)


def _named_calls(
    path: str, table: Mapping[str, Sequence[str]], families: Iterable[str]
) -> Iterator[tuple[str, str, str, Iterable[str]]]:
    for family, calls in table.items():
        yield f"{path}.{family}", "op family", family, families
        yield from ((f"{path}.{family}", "part of a call", call, CALLS) for call in calls)


_NONE = EngineKernels()


class _Calls(msgspec.Struct, frozen=True):
    """The part of an engine's file that kernel models need."""

    kernels: EngineKernels = _NONE


@lru_cache(maxsize=256)
def kernels_of(library: str) -> EngineKernels:
    """Kernels of the engine that ``library`` names; none of its own where it is no engine.

    >>> kernels_of("vllm").library("attention_prefill", "hopper")
    'fa3'
    >>> kernels_of("cutlass").libraries
    {}
    """
    has_entry = library in entries("engines")
    return content_of("engines", library, _Calls).kernels if has_entry else _NONE
