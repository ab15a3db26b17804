"""Symbols, stages and blocks."""

import numpy as np
import pytest

from silicast.workload.graphs.op import Affine, Op, resolve
from silicast.workload.transformers.plan import stage_bounds


def test_symbols_bind_to_integers() -> None:
    op = Op.make("all_reduce", bytes=Affine("tokens", 8, 3), gpus=2, n="tokens")
    assert op.bind({"tokens": 5}).dims == (("bytes", 43), ("gpus", 2), ("n", 5))
    with pytest.raises(KeyError):
        op.bind({})
    with pytest.raises(ValueError, match="tokens"):
        op.bind({"tokens": (1, 2)})


def test_symbols_resolve_to_arrays() -> None:
    states = {"tokens": np.array([1, 5], dtype=np.int64)}
    result = resolve(Affine("tokens", 10), states)
    assert isinstance(result, np.ndarray)
    assert result.tolist() == [10, 50]
    assert result.dtype == np.int64
    assert resolve(7, states) == 7
    assert resolve("tokens", states) is states["tokens"]
    with pytest.raises(ValueError, match="ragged"):
        resolve((1, 2), states)


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [(80, 4, [20] * 4), (126, 4, [31, 32, 32, 31]), (5, 5, [1] * 5), (7, 4, [2, 2, 2, 1])],
)
def test_what_is_left_over_goes_before_the_last_stage(
    layers: int, stages: int, sizes: list[int]
) -> None:
    assert [last - first for first, last in stage_bounds(layers, stages)] == sizes


@pytest.mark.parametrize(("layers", "stages"), [(3, 4), (3, 0)])
def test_stages_that_cannot_be(layers: int, stages: int) -> None:
    with pytest.raises(ValueError, match="stages"):
        stage_bounds(layers, stages)
