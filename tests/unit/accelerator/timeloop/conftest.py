"""A small folder as Timeloop's front end writes it, with parts that a test replaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

ARCHITECTURE = """architecture:
  version: '0.4'
  subtree:
    - name: system
      attributes: {technology: 45nm, global_cycle_seconds: 1e-9}
      local:
        - name: DRAM[1..1]
          class: DRAM
          attributes: {width: 64, datawidth: 16, meshX: 1, meshY: 1}
        - name: Buf[1..1]
          class: SRAM
          attributes: {depth: 64, width: 16, datawidth: 16, read_bandwidth: 2, write_bandwidth: 2}
        - name: grid[1..1]
          class: dummy_storage
          attributes: {width: 1, depth: 1, datawidth: 1}
        - name: Reg[1..4]
          class: regfile
          attributes: {depth: 2, width: 16, datawidth: 16, meshX: 4, meshY: 1}
        - name: mac[1..4]
          class: intmac
          attributes: {meshX: 4, meshY: 1}
"""
PROBLEM = """problem:
  version: '0.4'
  instance: {M: 8, N: 6, K: 4, densities: {}}
  shape:
    name: gemm
    dimensions: [M, N, K]
    coefficients: []
    data_spaces:
      - {name: A, projection: [[[M]], [[K]]], read_write: false}
      - {name: B, projection: [[[K]], [[N]]], read_write: false}
      - {name: Z, projection: [[[M]], [[N]]], read_write: true}
"""
CONSTRAINTS = """architecture_constraints:
  targets:
    - {target: DRAM, type: bypass, keep: [A, B, Z]}
    - {target: Buf, type: bypass, keep: [A, B], bypass: [Z]}
    - {target: Reg, type: bypass, keep: [Z], bypass: [A, B]}
"""
MAPPING = """mapping:
  - {target: DRAM, type: temporal, factors: M2 N1 K1, permutation: MNK}
  - {target: Buf, type: temporal, factors: M1 N6 K4, permutation: KNM}
  - {target: grid, type: spatial, factors: M4 N1 K1, permutation: MNK, split: 3}
  - {target: Reg, type: temporal, factors: M1 N1 K1, permutation: MNK}
  - {target: DRAM, type: datatype, keep: [A, B, Z], bypass: []}
  - {target: Buf, type: datatype, keep: [A, B], bypass: [Z]}
  - {target: Reg, type: datatype, keep: [Z], bypass: [A, B]}
"""
ENERGIES = """ERT:
  version: '0.4'
  tables:
    - name: system.DRAM[1..1]
      actions:
        - {name: read, energy: 400.0}
        - {name: write, energy: 400.0}
        - {name: update, energy: 400.0}
    - name: system.Buf[1..1]
      actions:
        - {name: read, energy: 10.0}
        - {name: write, energy: 12.0}
        - {name: update, energy: 12.0}
    - name: system.Reg[1..4]
      actions:
        - {name: read, energy: 1.0}
        - {name: write, energy: 1.5}
        - {name: update, energy: 1.5}
    - name: system.mac[1..4]
      actions:
        - {name: compute, energy: 0.5}
"""

Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Writes the files, with (old, new) replaced in all of them: an old that is nowhere fails."""

    def written(
        *changes: tuple[str, str], constraints: str = CONSTRAINTS, sparse: str = ""
    ) -> Path:
        files = {
            "parsed-processed-input.yaml": ARCHITECTURE + constraints + PROBLEM + sparse,
            "map.yaml": MAPPING, "ERT.yaml": ENERGIES,
        }  # fmt: skip
        for old, new in changes:
            assert any(old in text for text in files.values()), old
            files = {name: text.replace(old, new) for name, text in files.items()}
        for name, text in files.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path

    return written
