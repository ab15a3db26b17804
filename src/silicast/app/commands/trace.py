"""`silicast trace`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import show
from silicast.app.flags import key_values
from silicast.core.errors import SilicastError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from silicast.workload.graph import Graph

RETURNS = "a factory returns (module, args) or (module, args, kwargs)"


def trace(
    program: str,
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    training: Annotated[bool, Parameter(negative=())] = False,
    dtype: str | None = None,
    shape: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    weights: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Write what a PyTorch program or an ONNX file runs as an op-graph file.

    Args:
        program: MODULE:FACTORY, a function of yours that returns (module, args) or
            (module, args, kwargs), in an importable module or a Python file; or a .onnx or .pt2
            file.
        output: the op-graph file to write; a scenario's workload.graph takes it.
        training: forward and backward instead of forward alone.
        dtype: cast weights and inputs: fp32, tf32, bf16 or fp16; left out, as the program says.
        shape: sizes as name=value: given to the factory by keyword, or to a file's dynamic
            dimensions.
        weights: let the factory make real weights; left out, it makes sizes without numbers.
    """
    sizes = key_values(shape or [], "--shape", "batch=8 seq_len=1024")
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise SilicastError(f"{name} = {value!r} is not a whole number", field="--shape")
    if ":" in program and not Path(program).exists():
        graph = _of_factory(program, sizes, training=training, dtype=dtype, weights=weights)
    else:
        graph = _of_file(Path(program), sizes, training=training, dtype=dtype)

    from silicast.workload.op_graph import write_op_graph

    write_op_graph(graph, output)
    for line in _lines(graph, output):
        show(line)
    return status.ANSWERED


def _of_file(path: Path, sizes: Mapping[str, int], *, training: bool, dtype: str | None) -> Graph:
    from silicast.workload.backward import Training, training_graph
    from silicast.workload.front_ends import read_program

    if dtype is not None:
        raise SilicastError(
            "a file's formats are its own", field="--dtype", hint="export it in that format"
        )
    graph = read_program(path, sizes, training=training)
    if training and graph.phase != "training":
        return training_graph(graph, Training(loss=False, dropout=False))
    return graph


def _of_factory(
    program: str, sizes: Mapping[str, int], *, training: bool, dtype: str | None, weights: bool
) -> Graph:
    from silicast.workload.front_ends import graph_of
    from silicast.workload.front_ends.programs import require_torch

    place, _, name = program.rpartition(":")
    torch = require_torch()
    factory = _factory(place, name)
    try:
        if weights:
            made = factory(**sizes)
        else:
            with torch.device("meta"):
                made = factory(**sizes)
    except Exception as error:
        raise _failed(f"{place}:{name}", error) from error
    if not isinstance(made, tuple | list) or len(made) not in (2, 3):
        raise SilicastError(f"returned {type(made).__name__}", field=program, hint=RETURNS)
    module, args, kwargs = (*made, {}) if len(made) == 2 else made
    args = args if isinstance(args, tuple | list) else (args,)
    return graph_of(module, args, kwargs, training=training, dtype=dtype)


def _factory(place: str, name: str) -> Callable[..., Any]:
    """The function that a user named; its module is imported, as asked for."""
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            if spec is None or spec.loader is None or not Path(place).is_file():
                raise SilicastError("does not exist", kind="io", field="program", file=place)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, str(Path.cwd()))
            module = importlib.import_module(place)
    except SilicastError:
        raise
    except ModuleNotFoundError as error:
        raise unknown_name(
            f"no module {error.name!r}", "program", "expected MODULE:FACTORY, or FILE.py:FACTORY"
        ) from None
    except Exception as error:
        raise _failed(place, error) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise unknown_name(f"{place} has no function {name!r}", "program", RETURNS)
    return factory  # type: ignore[no-any-return]


def _failed(what: str, error: Exception) -> SilicastError:
    """An error of the user's code, with its last line there."""
    others = ("/silicast/", "site-packages", "<frozen", "/importlib/")
    frames = traceback.extract_tb(error.__traceback__)
    own = [x for x in frames if not any(part in x.filename for part in others)]
    where = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
    said = (str(error).strip().splitlines() or [""])[0][:200]
    return SilicastError(
        f"{what} raised {type(error).__name__}: {said}", field="program", file=where,
        hint=f"{RETURNS}; --weights makes real tensors where it needs their values",
    )  # fmt: skip


def _lines(graph: Graph, output: Path) -> Iterator[str]:
    """What was written, and what is only known by its bytes."""
    nodes = [node for _, node in graph.nodes()]
    yield f"{output}: {len(nodes)} operations"
    unknown = sorted({node.source for node in nodes if node.op.variant.flag("unmodelled")})
    if unknown:
        yield f"known by their bytes only: {', '.join(unknown)}"
