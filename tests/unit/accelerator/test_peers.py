"""Peers that are not installed say how to get them; ZigZag's layers are written in its form."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.accelerator.counting.einsum import conv2d
from silicast.accelerator.foreign.reader import read_workload
from silicast.accelerator.peers import accelforge, zigzag
from silicast.accelerator.peers.peer import PEERS, beside
from silicast.core.errors import SilicastError
from tests.unit.accelerator.foreign.test_readers import ZIGZAG


def test_a_peer_that_is_not_there_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chip = tmp_path / "chip.yaml"
    chip.write_text(ZIGZAG)
    monkeypatch.setattr(zigzag.ZigZagPeer, "is_installed", lambda _self: False)
    with pytest.raises(SilicastError, match="pip install zigzag-dse six"):
        beside("zigzag", chip, "matmul", ("m=4", "n=4", "k=4"))
    with pytest.raises(SilicastError, match="unknown engine 'gem5'"):
        beside("gem5", chip, "matmul", ("m=4", "n=4", "k=4"))
    assert set(PEERS.all()) == {"accelforge", "timeloop", "zigzag"}


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


CHIP = """
name = "small"
clock_mhz = 100
[[level]]
name = "dram"
energy_pj = { read = 100.0, fill = 100.0, update = 100.0 }
[[level.port]]
words_per_cycle = 4
[[level]]
name = "buffer"
capacity_words = 4096
energy_pj = { read = 1.0, fill = 1.0, update = 1.0 }
[[level]]
name = "array"
mesh = [4, 2]
[compute]
energy_pj = 0.2
"""


def test_a_design_is_written_as_accelforge_reads_it(tmp_path: Path) -> None:
    chip = tmp_path / "chip.toml"
    chip.write_text(CHIP)
    peer = accelforge.AccelForge()
    text = accelforge.architecture_text(peer.hardware(chip).architecture)
    assert "spatial: [{name: array0, fanout: 4}, {name: array1, fanout: 2}]" in text
    assert "size: 32768" in text  # bits
    assert "{name: read, energy: 1e-10, throughput: 400000000.0, bits_per_action: 8}" in text
    for change, remarks in (
        ("update = 1.0", "update = 2.0"),
        ("words_per_cycle = 4", 'words_per_cycle = 4\nactions = ["read"]'),
        ("capacity_words = 4096", "capacity_words = 4096\nbank_words = 64"),
    ):  # fmt: skip
        chip.write_text(CHIP.replace(change, remarks))
        with pytest.raises(SilicastError) as caught:
            peer.hardware(chip)
        assert caught.value.field == "chip"
    chip.write_text(CHIP)
    if not peer.is_installed():
        with pytest.raises(SilicastError, match="pip install accelforge"):
            beside("accelforge", chip, "matmul", ("m=4", "n=4", "k=4"))
