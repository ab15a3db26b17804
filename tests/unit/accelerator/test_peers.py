"""Peers that are not installed say how to get them; ZigZag's layers are written in its form."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.accelerator.einsum import conv2d
from silicast.accelerator.foreign.reader import read_workload
from silicast.accelerator.peers import zigzag
from silicast.accelerator.peers.peer import PEERS, beside
from silicast.core.errors import SilicastError
from tests.unit.accelerator.foreign.test_readers import ZIGZAG


def test_a_peer_that_is_not_there_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chip = tmp_path / "chip.yaml"
    chip.write_text(ZIGZAG)
    monkeypatch.setattr(zigzag.ZigZag, "is_installed", lambda _self: False)
    with pytest.raises(SilicastError, match="pip install zigzag-dse six"):
        beside("zigzag", chip, "matmul", ("m=4", "n=4", "k=4"))
    with pytest.raises(SilicastError, match="unknown engine 'gem5'"):
        beside("gem5", chip, "matmul", ("m=4", "n=4", "k=4"))
    assert set(PEERS.all()) == {"timeloop", "zigzag"}


def test_a_layer_for_zigzag_is_read_back_as_it_was(tmp_path: Path) -> None:
    for einsum in (conv2d(c=4, m=8, p=6, q=5, r=3, s=2, stride=2),
                   conv2d(c=2, m=1, p=6, q=6, r=3, s=3, groups=4)):  # fmt: skip
        layer = zigzag.layer_of(einsum)
        text = "\n".join(f"  {key}: {_yaml(value)}" for key, value in layer.items())
        path = tmp_path / "layers.yaml"
        path.write_text(f"-{text[1:]}\n")
        again = read_workload(path).layers[0].einsum
        assert dict(again.bounds) == dict(einsum.bounds)
        for tensor in einsum.tensors:
            other = again.tensor(tensor.name)
            assert other.dims == tensor.dims
            assert other.size(again.bounds) == tensor.size(einsum.bounds)


def _yaml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {v}" for k, v in value.items()) + "}"
    return str(value)
