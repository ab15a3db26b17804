"""The optional package ``silicast-core``: modules of this package, compiled.

The extension modules are made from the same files (``core/`` of the repository, ``make core``).
They stand in for those files while every one of them is what the core was made from, byte for byte;
else the files run, and a warning says why. ``SILICAST_CORE`` is ``off`` (never), ``require`` (an
error where the files would run) or ``auto``.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from types import ModuleType
from typing import Any, final

from silicast.core.errors import SilicastError, unsupported

SWITCH = "SILICAST_CORE"
MODES = ("auto", "off", "require")
HELD = ("silicast.composition.prices.step_prices", "silicast.serving.simulation.event_loop")
"""Modules that every core holds."""
STATED = ("VERSION", "SUFFIX", "SOURCES_HASH", "FIRST", "MODULES")
"""What every core says of itself."""
HINT = "`make core` in the repository of this version builds one"
SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - pathlib would take longer than all of this


@final
class CoreFinder:
    """Finds the compiled modules; the first that is asked for decides about all of them.

    Args:
        core: the imported package; None = there is none.
        mode: one of :data:`MODES`.
        version: of this package.
        sources: folder of the files that the core has to be made from.
    """

    def __init__(self, core: Any, mode: str, version: str, sources: str = SOURCES) -> None:
        self._core, self._mode, self._version = core, mode, version
        self._sources = sources
        self.modules = frozenset[str](getattr(core, "MODULES", HELD))
        self._refusal: str | None = None

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - what importlib hands over
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Where a compiled module is; None = Python runs the file.

        Raises:
            SilicastError: the file would run, and the mode is ``require``; there is no such mode.
        """
        if name not in self.modules:
            return None
        if self._mode not in MODES:
            message = f"expected {', '.join(MODES)}, found {self._mode!r:.40}"
            raise SilicastError(message, field=SWITCH)
        if (refusal := self.refusal()) and self._mode == "require":
            raise unsupported(refusal, SWITCH, HINT)
        return None if refusal else self._spec(name)

    def refusal(self) -> str:
        """Why the files run; "" = the compiled modules do. A warning says so at the first call."""
        if self._refusal is None:
            self._refusal = self._refused()
            if self._refusal and self._core is not None and self._mode == "auto":
                message = f"{self._refusal}: Python answers ({HINT}; {SWITCH}=off is silent)"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
        return self._refusal

    @property
    def description(self) -> str:
        """What runs, for people."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            refusal = self.refusal()
        if self._core is None:
            return "pure Python"
        return f"pure Python: {refusal}" if refusal else "compiled core"

    def _spec(self, name: str) -> ModuleSpec:
        file = self._file(name)
        return ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)

    def _file(self, name: str) -> str:
        folder = os.path.dirname(self._core.__file__)  # noqa: PTH120
        return os.path.join(folder, *name.split(".")) + str(self._core.SUFFIX)  # noqa: PTH118

    def _refused(self) -> str:
        core = self._core
        if self._mode == "off":
            return f"{SWITCH} is off"
        if core is None:
            return "silicast-core is not installed"
        if lacking := [name for name in STATED if not hasattr(core, name)]:
            return f"silicast-core is damaged (it states no {lacking[0]})"
        if self._version != core.VERSION:
            return f"silicast-core is of version {core.VERSION}, silicast of {self._version}"
        if core.SUFFIX not in EXTENSION_SUFFIXES:
            return "silicast-core is made for another Python or processor"
        if sources_hash(self.modules, self._sources) != core.SOURCES_HASH:
            return "silicast-core is made from other files than these"
        if damaged := self._damaged():
            return f"silicast-core is damaged ({damaged})"
        try:  # one that needs no other of them
            spec = self._spec(core.FIRST)
            assert spec.loader is not None
            spec.loader.create_module(spec)
        except ImportError as error:
            return f"silicast-core cannot be loaded ({error})"
        return ""

    def _damaged(self) -> str:
        """The first module whose file is not there, or not whole; a system that maps one which is
        cut off ends the process.
        """
        core = self._core
        sizes: Sequence[int] = getattr(core, "SIZES", None) or [0] * len(core.MODULES)
        for name, size in zip(core.MODULES, sizes, strict=True):
            try:
                length = os.stat(self._file(name)).st_size  # noqa: PTH116
            except OSError:
                return f"{name} is missing"
            if size and length != size:
                return f"{name} has {length} bytes of {size}"
        return ""


def sources_hash(modules: Iterable[str], folder: str) -> str:
    """A hash of the files of some modules; "" where one cannot be read."""
    from pathlib import Path

    from silicast.core.hashing import files_hash

    try:
        return files_hash(Path(folder, f"{n.replace('.', '/')}.py") for n in sorted(modules))
    except SilicastError:
        return ""


_IN_PLACE: list[CoreFinder] = []


def runs() -> bool:
    """Whether the compiled modules run."""
    return bool(_IN_PLACE) and not _IN_PLACE[0].refusal()


def put_in_place(version: str) -> CoreFinder:
    """From now on the compiled modules are imported, where they may be."""
    mode = os.environ.get(SWITCH, "").strip().lower() or "auto"
    try:
        core: Any = None if mode == "off" else import_module("silicast_core")
    except ImportError:
        core = None
    except Exception:
        core = ModuleType("silicast_core")
    finder = CoreFinder(core, mode, version)
    _IN_PLACE[:] = [finder]
    if core is not None or mode not in {"auto", "off"}:
        sys.meta_path.insert(0, finder)
    return finder
