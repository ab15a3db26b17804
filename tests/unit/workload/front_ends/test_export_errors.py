"""Modules that cannot be exported: the line of their code, and what to change there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from silicast.core.errors import SilicastError  # noqa: E402
from silicast.workload.front_ends import graph_of  # noqa: E402
from silicast.workload.front_ends.failures import FAKE, OWN, SPARSE, VALUES  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
nn: Any = torch.nn


@torch.library.custom_op("silicast_tests::cube", mutates_args=(), schema="(Tensor x) -> Tensor")
def cube(x: Any) -> Any:
    """Without a fake implementation."""
    return x**3


class Loops(nn.Module):
    def forward(self, x: Any) -> Any:
        while x.abs().max() > 1:  # the line
            x = x / 2
        return x


class Picks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return self.experts[int(x.argmax()) % 4](x)  # the line


class Selects(nn.Module):
    def forward(self, x: Any) -> Any:
        rows = x[x.sum(-1) > 0]
        return x if rows.shape[0] == 0 else rows  # the line


class Unique(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.unique(x) + 1  # the line


class Sparse(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.sparse.mm(x.to_sparse(), x.t())  # the line


class Custom(nn.Module):
    def forward(self, x: Any) -> Any:
        return cube(x) + 1  # the line


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def line_in(kind: type) -> int:
    """Where the comment stands in a class of this file."""
    lines = Path(__file__).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"class {kind.__name__}("))
    return next(i for i, line in enumerate(lines[start:], start + 1) if "# the line" in line)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [(Loops, VALUES), (Picks, VALUES), (Selects, VALUES), (Unique, VALUES), (Sparse, SPARSE),
     (Custom, FAKE)],
)  # fmt: skip
def test_the_line_and_what_to_change(kind: Any, hint: str) -> None:
    with pytest.raises(SilicastError) as caught:
        graph_of(kind(), (torch.randn(4, 16),))
    assert (caught.value.kind, caught.value.hint) == ("unsupported", hint)
    assert caught.value.file == f"{__file__}:{line_in(kind)}"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((torch.randn(4, 15),), "same reduction dim"),
        ((torch.zeros(4, 16, dtype=torch.int64),), "same dtype, found torch.int64 and torch.float"),
        ((torch.randn(4, 16), torch.randn(4)), "takes 2 positional arguments but 3 were given"),
        ((), "missing 1 required positional argument"),
        ((None,), "must be Tensor, not NoneType"),
    ],
)
def test_a_wrong_input_is_the_callers(args: tuple[Any, ...], said: str) -> None:
    with pytest.raises(SilicastError) as caught:
        graph_of(Linear(), args)
    assert said in caught.value.message
    assert caught.value.hint == OWN
    assert "<string>" not in caught.value.file
