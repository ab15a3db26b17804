"""`silicast trace`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import show
from silicast.app.flags import key_values
from silicast.core.errors import SilicastError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from silicast.workload.graphs.graph import Graph
    from silicast.workload.graphs.op_graph import GraphFile, NodeEntry

RETURNS = "a factory returns (module, args) or (module, args, kwargs)"


def trace(
    program: str,
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    training: Annotated[bool, Parameter(negative=())] = False,
    dtype: str | None = None,
    autocast: str | None = None,
    shape: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    dynamic: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    weights: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Write what a PyTorch program or an ONNX file runs as an op-graph file.

    Args:
        program: MODULE:FACTORY, a function of yours that returns (module, args) or
            (module, args, kwargs), in an importable module or a Python file; a model of an
            installed package (timm:resnet50, torchvision:, transformers:, diffusers:), without
            weights; or a .onnx or .pt2 file.
        output: the op-graph file to write; a scenario's workload.graph takes it.
        training: forward and backward instead of forward alone.
        dtype: cast weights and inputs: fp32, tf32, bf16 or fp16; left out, as the program says.
        autocast: automatic mixed precision in fp16 or bf16, with the lists of operators of CUDA.
        shape: sizes as name=value: given to the factory by keyword, to the inputs of a package's
            model, or to a file's dynamic dimensions.
        dynamic: names of sizes that stay open, as batch or image: a function's parameters, sizes of
            a package's model, or a file's dynamic dimensions. `silicast graph FILE --set batch=64`
            sets them.
        weights: let the factory make real weights; left out, it makes sizes without numbers.
    """
    sizes = key_values(shape or [], "--shape", "batch=8 seq_len=1024")
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise SilicastError(f"{name} = {value!r} is not a whole number", field="--shape")
    from silicast.workload.graphs.op_graph import file_of, write_graph_file

    requested = _TraceRequest(
        program, sizes, tuple(dict.fromkeys(dynamic or ())), training, dtype, autocast, weights
    )
    if requested.dynamic:
        file, remark = requested.open_graph()
    else:
        graph, remark = requested.graph()
        file = file_of(graph)
    if not any(_blocks(file)):
        raise SilicastError(
            f"{program} launches no kernel: it computes nothing, or tensors without elements",
            field="program",
            hint="give arguments of the sizes that count",
        )
    write_graph_file(file, output)
    for line in (*_lines(file, output), *([remark] if remark else [])):
        show(line)
    return status.ANSWERED


@final
@dataclass(frozen=True)
class _TraceRequest:
    """What is to be traced, with the flags' values."""

    program: str
    sizes: Mapping[str, int]
    dynamic: tuple[str, ...]
    training: bool
    dtype: str | None
    autocast: str | None
    weights: bool

    @property
    def location(self) -> str:
        """What of a program's name tells where its factory is; "" = it is a file."""
        file = ":" not in self.program or Path(self.program).exists()
        return "" if file else self.program.rpartition(":")[0]

    def graph(self) -> tuple[Graph, str]:
        """At fixed sizes, and what was assumed."""
        from silicast.workload.front_ends import graph_of, read_program
        from silicast.workload.front_ends.packages import is_packaged, packaged_graph
        from silicast.workload.training.backward import Training, training_graph

        if is_packaged(self.program):
            return packaged_graph(self.program, self.sizes, **self._formats)
        if self.location:
            module, args, kwargs = self._called(self._own_factory(), self.sizes)
            return graph_of(module, args, kwargs, **self._formats), ""
        graph = read_program(self._path(), self.sizes, training=self.training)
        if self.training and graph.phase != "training":
            return training_graph(graph, Training(loss=False, dropout=False)), ""
        return graph, ""

    def open_graph(self) -> tuple[GraphFile, str]:
        """With sizes that stay open, and what was assumed."""
        from silicast.workload.front_ends.open_graph import OpenFile, open_graph
        from silicast.workload.front_ends.packages import is_packaged, packaged_open_graph

        if is_packaged(self.program):
            return packaged_open_graph(self.program, self.dynamic, self.sizes, **self._formats)
        if self.location:
            return self._open_factory(), ""
        fixed = {name: size for name, size in self.sizes.items() if name not in self.dynamic}
        program = OpenFile(self._path(), self.dynamic, fixed, training=self.training)
        return open_graph(program, self._usual({})), ""

    @property
    def _formats(self) -> dict[str, Any]:
        return {"training": self.training, "dtype": self.dtype, "autocast": self.autocast or ""}

    def _path(self) -> Path:
        for value, flag in ((self.dtype, "--dtype"), (self.autocast, "--autocast")):
            if value is not None:
                raise SilicastError(
                    "a file's formats are its own", field=flag, hint="export it in that format"
                )
        return Path(self.program)

    def _open_factory(self) -> GraphFile:
        factory = self._own_factory()
        from silicast.workload.front_ends.dynamic_export import open_graph_of

        takes = inspect.signature(factory).parameters
        every = any(each.kind is each.VAR_KEYWORD for each in takes.values())
        defaults = {
            name: each.default for name, each in takes.items() if isinstance(each.default, int)
        }

        def make(sizes: Mapping[str, int]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
            all_sizes = {**self.sizes, **sizes}
            return self._called(
                factory, all_sizes if every else {k: v for k, v in all_sizes.items() if k in takes}
            )

        name = self.program.rpartition(":")[2]
        return open_graph_of(
            name,
            make,
            self._usual(defaults),
            named=lambda each: every or each in takes,
            **self._formats,
        )

    def _usual(self, defaults: Mapping[str, int]) -> dict[str, int]:
        """Usual values of open sizes: as given, else the function's own."""
        table = {**defaults, **self.sizes}
        for name in self.dynamic:
            if name not in table:
                raise SilicastError(
                    f"{name!r} has no usual value", field="--dynamic", hint=f"--shape {name}=8"
                )
        return {name: table[name] for name in self.dynamic}

    def _own_factory(self) -> Callable[..., Any]:
        from silicast.workload.front_ends.programs import require_torch

        require_torch()
        factory = _factory(self.location, self.program.rpartition(":")[2])
        _check_sizes(self.program, factory, (*self.dynamic, *self.sizes))
        return factory

    def _called(
        self, factory: Callable[..., Any], sizes: Mapping[str, int]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """What a factory returns for some sizes."""
        from silicast.workload.front_ends.programs import require_torch

        torch = require_torch()
        try:
            with nullcontext() if self.weights else torch.device("meta"):
                made = factory(**sizes)
        except Exception as error:
            raise _failed(self.program, error) from error
        if not isinstance(made, tuple | list) or len(made) not in (2, 3):
            raise SilicastError(f"returned {type(made).__name__}", field=self.program, hint=RETURNS)
        module, args, kwargs = (*made, {}) if len(made) == 2 else made
        return module, tuple(args) if isinstance(args, tuple | list) else (args,), dict(kwargs)


def _check_sizes(program: str, factory: Callable[..., Any], names: Sequence[str]) -> None:
    """Refuses sizes that a function does not take."""
    try:
        takes = inspect.signature(factory).parameters
    except ValueError:  # one that is not written in Python
        return
    if any(each.kind is each.VAR_KEYWORD for each in takes.values()):
        return
    for name in names:
        if name not in takes:
            accepted = ", ".join(takes) or "none"
            raise unknown_name(f"{program} takes no size {name!r}", "program", f"takes: {accepted}")


def _factory(location: str, name: str) -> Callable[..., Any]:
    """The function that a user named; its module is imported, as asked for."""
    try:
        if location.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(location).stem, location)
            if spec is None or spec.loader is None or not Path(location).is_file():
                raise SilicastError("does not exist", kind="io", field="program", file=location)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, str(Path.cwd()))
            module = importlib.import_module(location)
    except SilicastError:
        raise
    except ModuleNotFoundError as error:
        if error.name not in (location, location.partition(".")[0]):  # one that the program imports
            raise _failed(location, error) from error
        raise unknown_name(
            f"no module {error.name!r}", "program", "expected MODULE:FACTORY, or FILE.py:FACTORY"
        ) from None
    except Exception as error:
        raise _failed(location, error) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise unknown_name(f"{location} has no function {name!r}", "program", RETURNS)
    return factory  # type: ignore[no-any-return]


def _failed(program: str, error: Exception) -> SilicastError:
    """An error of the user's code, with its last line there."""
    from silicast.workload.front_ends.failures import import_failure, line_of

    where = line_of(error, not_in=("/silicast/", "site-packages", "<frozen", "/importlib/"))
    if failure := import_failure(error):
        return failure.located(failure.field, where or failure.file)
    message = (str(error).strip().splitlines() or [""])[0][:200]
    return SilicastError(
        f"{program} raised {type(error).__name__}: {message}",
        field="program",
        file=where,
        hint=f"{RETURNS}; --weights makes real tensors where it needs their values",
    )


def _blocks(file: GraphFile) -> list[list[NodeEntry]]:
    """The nodes of each block."""
    return [file.nodes or []] if file.blocks is None else [each.nodes for each in file.blocks]


def _lines(file: GraphFile, output: Path) -> Iterator[str]:
    """What was written, which sizes are open, and what is only known by its bytes."""
    nodes = [node for block in _blocks(file) for node in block]
    yield f"{output}: {len(nodes)} operations"
    yield from (f"open: {name}, {each.words}" for name, each in file.open_sizes.items())
    unknown = sorted({node.source for node in nodes if node.flags.get("unmodelled")})
    if unknown:
        yield f"known by their bytes only: {', '.join(unknown)}"
