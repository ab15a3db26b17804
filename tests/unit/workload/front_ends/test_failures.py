"""Errors of programs: what they say, and where. None of it needs PyTorch."""

from __future__ import annotations

import copy

import pytest

from silicast.workload.front_ends.failures import (
    FAKE,
    LAZY,
    NESTED,
    NUMPY,
    OWN,
    QUANTIZED,
    SCRIPTED,
    SIZES,
    SPARSE,
    TRANSFORMED,
    VALUES,
    export_failure,
    import_failure,
    operator_failure,
)

CONSTRAINTS = """Constraints violated (batch)! For more information, run with TORCH_LOGS="+dynamic".
  - Not all values of batch = L['args'][0].size()[0] in the specified range satisfy batch % 8 == 0.
Suggested fixes:
  batch = 8*_batch
"""


def raised(error: Exception) -> Exception:
    """The error with a traceback that ends in this file."""
    try:
        raise error
    except type(error) as found:
        return found


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (RuntimeError("Could not guard on data-dependent expression u0 > 0"), VALUES),
        (RuntimeError(".numpy() is not supported for tensor subclasses."), NUMPY),
        (NameError("name 'x' is not defined"), OWN),
        (RuntimeError("a and b must have same reduction dim, but got [4, 5] X [4, 4]."), OWN),
        (ValueError(CONSTRAINTS), SIZES),
        (RuntimeError("Could not extract specialized integer from data-dependent u0"), VALUES),
        (RuntimeError("There was no fake impl registered for <CustomOpDef(mine::cube)>"), FAKE),
        (NotImplementedError("Cannot access storage of SparseTensorImpl"), SPARSE),
        (RuntimeError("aten._nested_tensor_from_tensor_list.default"), NESTED),
        (ValueError("Attempted to use an uninitialized parameter in <method 'stride'"), LAZY),
        (NotImplementedError("Could not run 'aten::_empty_affine_quantized'"), QUANTIZED),
        (RuntimeError("attempted to apply meta conversion to view functorch tensor"), TRANSFORMED),
        (RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype"), OWN),
        (RuntimeError("anything else"), VALUES),
    ],
)
def test_the_hint_fits_what_failed(error: Exception, hint: str) -> None:
    result = export_failure("Net", raised(error))
    assert (result.field, result.hint, result.kind) == ("Net", hint, "unsupported")
    name, _, line = result.file.rpartition(":")
    assert name == __file__
    assert int(line) > 0


def test_a_scripted_module_is_known_by_its_class() -> None:
    assert export_failure("RecursiveScriptModule", RuntimeError("any")).hint == SCRIPTED


def test_the_line_is_the_users_not_that_of_the_standard_library() -> None:
    class Stubborn:
        def __deepcopy__(self, _: object) -> Stubborn:
            raise RuntimeError("no")

    try:
        copy.deepcopy([Stubborn()])
    except RuntimeError as error:
        result = export_failure("Net", error)
    assert result.file.rpartition(":")[0] == __file__


def test_a_dynamic_size_that_is_forbidden_is_named() -> None:
    result = export_failure("Net", raised(ValueError(CONSTRAINTS)))
    assert "batch % 8 == 0" in result.message


@pytest.mark.parametrize(
    ("module", "field", "hint"),
    [
        ("timm.models", "timm", "pip install timm"),
        ("onnx", "onnx", "pip install 'silicast[onnx]'"),
        ("PIL", "PIL", "pip install pillow"),
    ],
)
def test_a_package_that_is_not_installed_is_named(module: str, field: str, hint: str) -> None:
    result = import_failure(raised(ModuleNotFoundError(f"No module named {module!r}", name=module)))
    assert result is not None
    assert (result.field, result.hint) == (field, hint)
    assert module in result.message


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("operator torchvision::nms does not exist"),
        ImportError("/x/torchvision/_C.so: undefined symbol: _ZN5torch3jitE"),
        RuntimeError("Couldn't load custom C++ ops. Recompile torchvision against torch."),
    ],
)
def test_torchvision_of_another_torch_is_told(error: Exception) -> None:
    result = import_failure(raised(error))
    assert result is not None
    assert result.field == "torchvision"
    assert "was built for another PyTorch" in result.message
    assert result.hint.endswith("pip install -U torch torchvision")


def test_other_errors_are_not_about_packages() -> None:
    assert import_failure(raised(RuntimeError("torchvision is fine"))) is None
    assert import_failure(raised(ValueError("undefined symbol"))) is None


def test_an_operator_is_placed_in_the_users_code() -> None:
    stack = 'File "net/blocks.py", line 7, in forward\n  y = x[x > 0]\n'
    stack += 'File "/venv/torch/nn/functional.py", line 9, in f\n  pass'
    result = operator_failure("index at blocks.0", "index", stack, RuntimeError("aten.nonzero"))
    assert (result.file, result.hint) == ("net/blocks.py:7", VALUES)
    other = operator_failure("mine.op at the top", "op", "", RuntimeError("no kernel"))
    assert (other.file, "register_fake" in other.hint) == ("", True)
