"""Files of ``torch.export.save``, read without running anything that they hold.

``torch.export.load`` unpickles example inputs and some weights, and loads compiled libraries. Here
only the archive's graph is read, which is JSON: weights are sizes of that graph. What PyTorch's
reader of the graph would evaluate or look up by name (expressions of sizes, names of operators) is
checked first against what an exported program holds.
"""

from __future__ import annotations

import json
import logging
import operator
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import sympy
import torch
from torch._export.serde import schema, serialize
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from silicast.core.errors import SilicastError, over_limit, unsupported
from silicast.core.files import opened_file, size_text

NAME = re.compile(r"[A-Za-z_][\w.]*\Z")
TARGET = re.compile(
    r"(torch\.ops\.\w+\.\w+\.\w+|torch\.ops\.higher_order\.\w+|_operator\.\w+|math\.\w+"
    r"|torch\.sym_\w+|torch\._sym_\w+)\Z"
)
BITWISE = re.compile(r"torch\.ops\.aten\.__i?(and|or|xor|lshift|rshift)__\.\w+\Z")
"""The only operators with two underscores in their names that are called."""
MOST_BYTES = 1 << 40
"""Of a program with its weights, which are not read."""
MOST_MEMBER_BYTES = 256 << 20
"""Of a member of its archive, unpacked."""
MODULES = re.compile(r"[\w.,;@\[\]']*\Z")
"""A chain of modules that is only names: ``key,path,type;...``."""
SYMBOL = re.compile(r"[suz]+\d+\Z")
WORDS = (
    "Symbol Integer Rational Add Mul Pow Max Min Mod FloorDiv ModularIndexing Where PythonMod "
    "CleanDiv CeilToInt FloorToInt CeilDiv LShift RShift PowByNatural FloatPow FloatTrueDiv "
    "IntTrueDiv TruncToFloat TruncToInt RoundToInt RoundDecimal ToFloat Identity Eq Ne Lt Le Gt Ge "
    "And Or Not Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan floor "
    "ceiling positive integer nonnegative zero nonzero true false True False evaluate"
)
_WORD = rf"(?:{'|'.join(WORDS.split())}|[suz]+\d+)(?!\w)"
EXPRESSION = re.compile(rf"(?:\s|\d|'{_WORD}'|{_WORD}|[-+*/%(),=<>&|~])*\Z")
"""What expressions of sizes are made of: words, symbols, numbers and signs."""
PLAIN = frozenset(getattr(operator, name) for name in (
    "getitem", "add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow", "eq", "ne", "lt",
    "le", "gt", "ge", "and_", "or_", "not_", "pos", "abs",
)) | {
    torch.sym_max, torch.sym_min, torch.sym_int, torch.sym_float, torch.sym_not, torch.sym_ite,
    torch.sym_sum,
}  # fmt: skip
"""Functions of sizes that are called, beside those of ``math``."""


@final
@dataclass(frozen=True)
class SavedProgram:
    """The graph of an exported program; the attributes are named as PyTorch names them.

    Attributes:
        aliases: weight -> what it shares with others in the same memory.
    """

    graph_module: Any
    graph_signature: Any
    range_constraints: Mapping[Any, Any]
    aliases: Mapping[str, object]


def load_program(path: Path) -> SavedProgram:
    """The program of a ``.pt2`` file.

    Raises:
        SilicastError: not such a file, of another version of its format, or it holds something
            that no exported program does.
    """
    try:
        with (
            opened_file(path, MOST_BYTES, "an exported program") as stream,
            zipfile.ZipFile(stream) as archive,
        ):
            document = _member(archive, "/models/model.json")
            weights = _member(archive, "/data/weights/model_weights_config.json")
        with _quiet():
            return _program(document, weights)
    except SilicastError:
        raise
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _rejected(f"not a program of torch.export.save: {error}") from None
    except Exception as error:  # whatever PyTorch's reader raises for a damaged file
        message = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise _rejected(f"cannot be read by PyTorch {torch.__version__}: {message}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences PyTorch's loggers, which print tracebacks of what is raised anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _rejected(message: str, hint: str = "") -> SilicastError:
    return unsupported(
        message,
        "graph",
        hint or "save it anew with torch.export.save, or trace the module: `silicast trace`",
    )


def _member(archive: zipfile.ZipFile, end: str) -> Any:
    members = [name for name in archive.namelist() if f"/{name}".endswith(end)]
    if len(members) != 1:
        raise _rejected(f"the archive holds no {end.strip('/')}")
    with archive.open(members[0]) as member:
        content = member.read(MOST_MEMBER_BYTES + 1)  # what the archive's index says may be wrong
    if len(content) > MOST_MEMBER_BYTES:
        raise over_limit(
            f"{members[0][-60:]!r} is larger than {size_text(MOST_MEMBER_BYTES)}", "graph"
        )
    return json.loads(content)


def _program(document: dict[str, Any], weights: dict[str, Any]) -> SavedProgram:
    version, supported = document["schema_version"]["major"], serialize.SCHEMA_VERSION[0]
    if version != supported:
        raise _rejected(
            f"version {version} of the format; PyTorch {torch.__version__} reads {supported}"
        )
    held = document["graph_module"]
    for node in _nodes(held["graph"]):
        stack = node.get("metadata", {}).get("nn_module_stack", "")
        plain = isinstance(stack, str) and MODULES.match(stack)
        node["metadata"] = {"nn_module_stack": stack} if plain else {}
    held["module_call_graph"], held["metadata"] = [], {}
    _check(held)
    module = serialize._dict_to_dataclass(schema.GraphModule, held)  # noqa: SLF001
    ranges = {
        name: ValueRanges(_bound(bounds["min_val"], -int_oo), _bound(bounds["max_val"], int_oo))
        for name, bounds in document["range_constraints"].items()
        if SYMBOL.match(name)
    }
    read = serialize.GraphModuleDeserializer().deserialize(module, {}, {}, None, ranges)
    for part in read.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            _check_called(node)
    symbols = {
        symbol: ranges[name] for name, symbol in read.names_to_symbols.items() if name in ranges
    }
    aliases = {
        name: (weight["path_name"], json.dumps(weight.get("tensor_meta"), sort_keys=True))
        for name, weight in weights["config"].items()
    }
    return SavedProgram(read.graph_module, read.signature, symbols, aliases)


def _bound(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else sympy.Integer(int(value))


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a graph and of the graphs inside it."""
    if isinstance(tree, dict):
        if "target" in tree and "inputs" in tree:
            yield tree
        tree = list(tree.values())
    for item in tree if isinstance(tree, list) else ():
        yield from _nodes(item)


def _check(tree: Any) -> None:
    """Rejects names and expressions that are more than that."""
    if isinstance(tree, list):
        for item in tree:
            _check(item)
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if key == "expr_str":
            if not isinstance(value, str) or not EXPRESSION.match(value):
                raise _rejected(f"{str(value)[:80]!r} is not an expression of sizes")
        elif key == "target" and "inputs" in tree:
            _check_operator(value)
        elif key in ("name", "graph_name"):
            _check_names([value] if value else [])
        else:
            _check_names(value if key.endswith("_values") and isinstance(value, dict) else [])
            _check(value)


def _check_names(names: Iterable[Any]) -> None:
    for name in names:
        if not isinstance(name, str) or not NAME.match(name):
            raise _rejected(f"{str(name)[:60]!r} is not a name")


def _check_operator(target: Any) -> None:
    plain = isinstance(target, str) and TARGET.match(target)
    if not plain or (".__" in target and not BITWISE.match(target)):
        raise _rejected(f"{str(target)[:80]!r} is not an operator of an exported program")


def _check_called(node: Any) -> None:
    """Only operators are called: of PyTorch, and arithmetic on sizes."""
    if node.op in ("placeholder", "output", "get_attr"):
        return
    target = node.target
    is_known = isinstance(target, OpOverload | HigherOrderOperator) or target in PLAIN
    is_known = is_known or getattr(target, "__module__", "") == "math"
    if node.op != "call_function" or not is_known or "from_file" in str(target):
        raise _rejected(
            f"{node.name} calls {str(target)[:80]}, which this PyTorch does not know",
            hint="import the library that defines the operator, or trace the module",
        )
