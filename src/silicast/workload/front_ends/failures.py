"""What to say where a user's program fails: the line of its code, and what to change there."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from silicast.core.errors import SilicastError, unsupported
from silicast.core.packages import missing_package

BUILT_FOR_TORCH = ("torchvision", "torchaudio")
_MISSING_OPERATOR = re.compile(r"operator (torchvision|torchaudio)::\w+ does not exist")
_BROKEN = ("undefined symbol", "couldn't load custom c++ ops", "cannot open shared object")
_NOT_USERS = ("/torch/", "/silicast/", "<eval_with_key", "<frozen", "<string>", "/importlib/")
_PYTHON = str(Path(traceback.__file__).parent)
"""Folder of the standard library; packages may lie in it."""
_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_FORBIDS = re.compile(r"^\s*-\s*((?:Not all values of|The following dimension).*)", re.MULTILINE)

VALUES = (
    "torch.export needs code whose path does not depend on values of tensors: use torch.cond, "
    "torch.where or a fixed size in its place, or give the part that can be exported"
)
NUMPY = "compute it with operators of torch, or outside of forward"
SIZES = "that size must stay fixed: leave it out, or change the line that fixes it"
FAKE = (
    "give it a fake implementation: @OPERATOR.register_fake on a function of the same arguments "
    "that returns an empty tensor of the result's size"
)
SPARSE = "sparse tensors have sizes that values decide: give dense ones, or the part around them"
SCRIPTED = "give the module that was scripted: torch.jit is another exporter"
NESTED = "nested tensors have sizes that values decide: give padded ones"
LAZY = "call the module once on arguments of its usual sizes, which gives lazy parameters theirs"
QUANTIZED = (
    "PyTorch's quantised modules have no sizes without data: give the module before quantisation; "
    "an op-graph file takes int8 products"
)
TRANSFORMED = (
    "torch.func inside of forward is not exported: give the function as it is; training takes "
    "gradients by itself (--training)"
)
OWN = "the module itself fails on these arguments: call module(*args) and correct it"
_HINTS = (
    (r"fake impl|register_fake|no meta function|does not have a meta", FAKE),
    (
        r"datadependent|data-dependent|_local_scalar_dense|unbacked|nonzero|dynamicoutputshape",
        VALUES,
    ),
    (r"constraints violated|inferred to be a constant|specialized|mark_dynamic", SIZES),
    (r"nested_tensor|jagged", NESTED),
    (r"uninitialized parameter", LAZY),
    (r"scriptmodule|torch\.jit", SCRIPTED),
    (r"quantized", QUANTIZED),
    (r"functorch", TRANSFORMED),
    (r"sparse", SPARSE),
    (r"numpy", NUMPY),
    (r"nameerror|attributeerror|typeerror|keyerror|indexerror", OWN),
    (r"same dtype|to be equal to \w+\.dtype|same reduction dim|shape|size", OWN),
)
"""What an error says, in lower case -> what to change; the first that fits."""


def line_of(error: BaseException, *, not_in: tuple[str, ...] = _NOT_USERS) -> str:
    """The innermost line of the user's code in the traceback, as file:line; "" = none."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [x for x in frames if not any(part in x.filename for part in not_in)]
    user_frames = [x for x in user_frames if str(Path(x.filename).parent) != _PYTHON]
    return f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else ""


def export_failure(name: str, error: Exception) -> SilicastError:
    """Why a module cannot be exported.

    Args:
        name: of the module's class.
        error: what PyTorch raised.
    """
    text = str(error)
    message = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if forbidden := _FORBIDS.search(text):
        message = forbidden[1].strip()
    hint = _hint(error, f"{name}: {text}", VALUES)
    return import_failure(error) or unsupported(
        f"cannot be exported: {type(error).__name__}: {message[:300]}",
        name,
        hint,
        file=line_of(error),
    )


def _hint(error: Exception, text: str, otherwise: str) -> str:
    """What to change, by what an error says."""
    message = f"{type(error).__name__}: {text}".casefold()
    return next((hint for pattern, hint in _HINTS if re.search(pattern, message)), otherwise)


def operator_failure(what: str, node: str, stack: str, error: Exception) -> SilicastError:
    """Why an operator of an exported program does not run on tensors without data.

    Args:
        what: the operator and its module.
        node: its name in the program.
        stack: the traceback of the user's code that the program holds; "" = none.
        error: what PyTorch raised.
    """
    message = str(error).strip() or type(error).__name__
    lines = [x for x in _LINE.findall(stack) if not any(part in x[0] for part in _NOT_USERS)]
    return unsupported(
        f"{what} does not run on tensors without data: {message.splitlines()[0][:200]}",
        node,
        _hint(error, message, FAKE),
        file=f"{lines[-1][0]}:{lines[-1][1]}" if lines else "",
    )


def import_failure(error: BaseException) -> SilicastError | None:
    """What to install where an error means that a package is missing or was built for another
    PyTorch; None where it means something else.

    >>> print(import_failure(ModuleNotFoundError("No module named 'timm'", name="timm")))
    timm: timm is not installed (pip install timm)
    >>> print(import_failure(ModuleNotFoundError("No module named 'onnx'", name="onnx")))
    onnx: onnx is not installed (pip install 'silicast[onnx]')
    >>> import_failure(ValueError("no")) is None
    True
    """
    where, text = line_of(error), str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return missing_package(error.name, field=error.name.partition(".")[0], file=where)
    lowered = text.casefold()
    built = _MISSING_OPERATOR.search(text)
    broken = isinstance(error, ImportError | OSError) or "custom c++ ops" in lowered
    named = next((name for name in BUILT_FOR_TORCH if name in lowered), "")
    if built or (broken and named and any(sign in lowered for sign in _BROKEN)):
        name = built[1] if built else named
        return unsupported(
            f"{name}{_release(name)} was built for another PyTorch than the installed torch"
            f"{_release('torch')}",
            name,
            f"install both from one index in one command: pip install -U torch {name}",
            file=where,
        )
    return None


def _release(package: str) -> str:
    """Its installed release after a space, "" if it has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f" {version(package)}"
    except PackageNotFoundError:
        return ""
