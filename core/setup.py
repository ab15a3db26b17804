"""Builds the wheel of ``silicast-core``: modules of ``src/silicast`` compiled by Cython.

The .py files are the only source. Beside them stand declarations of C types (``types/``, augmenting
.pxd files), which say how attributes and numbers are kept and change no result. ``typing.final``,
which does nothing where a program runs, is left out of the copies that are compiled, since Cython
takes no decorators of such classes.

    SILICAST_CORE_OPTIMIZE=-O2    another level of optimisation than -O1
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sysconfig
from pathlib import Path

from Cython.Compiler.Main import CompilationOptions
from Cython.Compiler.Main import compile as compile_to_c
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src"
STAGE = HERE / "build" / "stage"
FIRST = "silicast.composition.prices.decode_lengths"
"""A module that needs no other of them."""
MODULES = tuple(
    line for line in (HERE / "modules.txt").read_text().splitlines() if line and line[0] != "#"
)
PLAIN = ("-O1", "-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off", "-w", "-g0")
"""No fused multiply and add: every operation rounds as Python's does."""
DIRECTIVES = {
    "annotation_typing": False,  # annotations say what a reader should know, not how C keeps it
    "auto_pickle": False,
    "binding": True,
    "overflowcheck": True,
}
LEFT_OUT = r"^@final$|^from numpy import .*# in C, of math.h$"
"""Lines that only Python needs."""
LOOPS = {
    "silicast.core.tape": {
        "boundscheck": False,
        "cdivision": True,
        "initializedcheck": False,
        "overflowcheck": False,
        "wraparound": False,
    }
}
"""Loops over columns whose places are right by construction; a division by zero is an infinity."""
OPTIMISED = ("-O3", "-fno-math-errno")
CLONED = """#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define CLONED __attribute__((target_clones("avx2", "default")))
#else
#define CLONED
#endif
"""
"""Loops are compiled twice, for processors with AVX2 (no products and sums in one) and others."""


def version() -> str:
    """Of silicast."""
    text = (SOURCES / "silicast" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, flags=re.MULTILINE)
    assert found
    return found.group(1)


def path_of(module: str) -> Path:
    """Of a module, in a folder of sources."""
    return Path(f"{module.replace('.', '/')}.py")


def sources_hash() -> str:
    """As ``silicast.core.compiled_core.sources_hash``."""
    digest = hashlib.blake2b(digest_size=8)
    for module in sorted(MODULES):
        digest.update((SOURCES / path_of(module)).read_bytes())
    return digest.hexdigest()


def staged() -> None:
    """Copies of the files with their types beside them, in folders that are packages."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(HERE / "types", STAGE)
    for module in MODULES:
        target = STAGE / path_of(module)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (SOURCES / path_of(module)).read_text(encoding="utf-8")
        target.write_text(re.sub(LEFT_OUT, "", text, flags=re.MULTILINE), encoding="utf-8")
    for folder in (STAGE, *STAGE.rglob("*")):
        if folder.is_dir() and folder != STAGE:
            (folder / "__init__.py").touch()


def write_in_c(module: str) -> None:
    """Writes the C file of a staged module."""
    source = STAGE / path_of(module)
    target = source.with_suffix(".c")
    directives = DIRECTIVES | LOOPS.get(module, {})
    options = CompilationOptions(
        language_level=3, compiler_directives=directives, output_file=str(target)
    )
    if compile_to_c(str(source), options, full_module_name=module).num_errors:
        raise SystemExit(f"silicast-core: Cython refuses {module}")
    if module in LOOPS:
        text = target.read_text(encoding="utf-8")
        loops = re.sub(r"^(static void __pyx_f_)", r"CLONED \1", text, flags=re.MULTILINE)
        target.write_text(CLONED + loops, encoding="utf-8")


class Together(build_ext):
    """Compiles on all processors, and writes what the core is made from into its package."""

    def build_extensions(self) -> None:
        made_from = sources_hash()  # before they are read: who changes one meanwhile gets no core
        staged()
        for module in MODULES:
            write_in_c(module)
        self.parallel = os.cpu_count()
        if self.compiler.compiler_type == "unix":
            level = os.environ.get("SILICAST_CORE_OPTIMIZE", PLAIN[0])
            for extension in self.extensions:
                loops = extension.name.removeprefix("silicast_core.") in LOOPS
                extension.extra_compile_args = [*(OPTIMISED if loops else (level,)), *PLAIN[1:]]
        super().build_extensions()
        package = Path(self.build_lib) / "silicast_core"
        lines = (
            '"""Compiled modules of silicast, see silicast.core.compiled_core."""',
            f"VERSION = {version()!r}",
            f"SUFFIX = {sysconfig.get_config_var('EXT_SUFFIX')!r}",
            f"SOURCES_HASH = {made_from!r}",
            f"FIRST = {FIRST!r}",
            f"MODULES = {MODULES!r}",
            f"SIZES = {self.sizes()!r}",
        )
        (package / "__init__.py").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def sizes(self) -> tuple[int, ...]:
        """Bytes of each module's file, by which one that is cut off is known."""
        files = (self.get_ext_fullpath(f"silicast_core.{module}") for module in MODULES)
        return tuple(Path(file).stat().st_size for file in files)


os.chdir(HERE)
setup(
    version=version(),
    install_requires=[f"silicast=={version()}"],
    packages=[],
    ext_modules=[
        Extension(f"silicast_core.{module}", [f"build/stage/{path_of(module).with_suffix('.c')}"])
        for module in MODULES
    ],
    cmdclass={"build_ext": Together},
)
