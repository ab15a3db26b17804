"""Designs none of whose actions costs energy, and mappings that need the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.accelerator.design.architecture_file import all_wrong, checked
from silicast.accelerator.mapper.task import Task, einsum_of, mapped, task_on
from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.hardware.check import check_device
from silicast.report.designs.design_layers import busiest

NET = "Layer, IFMAP Height, IFMAP Width, Filter Height, Width, Channels, Filters, Strides,\n"


def systolic(rows: int, columns: int, energy: Any, mac: float | None) -> dict[str, Any]:
    """A weight-stationary array under one buffer, as SCALE-Sim describes one."""
    stated = {} if energy is None else {"energy_pj": energy}
    return {
        "name": "array",
        "level": [
            {"name": "dram", **stated},
            {"name": "sram", "capacity_words": 65536, "buffers": 2, **stated},
            {"name": "pes", "mesh": [rows, columns], "systolic": "Weights"},
            {"name": "register", "capacity_words": 1, "keeps": ["Weights"], **stated},
        ],
        "compute": {"name": "mac"} if mac is None else {"name": "mac", "energy_pj": mac},
        "constraint": [
            {"level": "pes", "axis": 0, "indexing": ["Weights", "Inputs"]},
            {"level": "pes", "axis": 1, "indexing": ["Weights", "Outputs"]},
        ],
    }


def task(table: dict[str, Any], op: str, sizes: str) -> Task:
    return task_on(checked(table), einsum_of(op, sizes.split()))


ZEROS = {"read": 0.0, "fill": 0.0, "update": 0.0}


@pytest.mark.parametrize(("energy", "mac"), [(None, None), (0, 0.0), (ZEROS, 0.0)])
def test_without_energy_the_least_time_is_the_answer(energy: Any, mac: float | None) -> None:
    # A fold of an 8 x 4 array takes 2 x 8 + 4 + T - 2 cycles; K = 16 and N = 8 make 2 x 2 folds.
    answer = mapped(task(systolic(8, 4, energy, mac), "matmul", "m=100 n=8 k=16"))
    assert answer.objective == "latency"
    assert answer.value == answer.cost.cycles[0] == 4 * (2 * 8 + 4 + 100 - 2)
    assert "least time" in answer.remark


@pytest.mark.parametrize("objective", ["energy", "edp"])
def test_an_objective_that_is_constant_is_refused(objective: str) -> None:
    wanted = task(systolic(8, 4, 0, 0.0), "matmul", "m=4 n=4 k=4")
    with pytest.raises(SilicastError, match=f"all mappings are equal by {objective}") as error:
        mapped(wanted, objective)
    assert "--objective latency" in error.value.hint


def test_windows_are_unrolled_over_a_systolic_array() -> None:
    # 3 x 11 x 11 words of a window are 363 rows: 12 folds of 32, and 96 filters 3 of 32 columns;
    # 55 x 55 windows: 36 (2 x 32 + 32 + 3025 - 2) (SCALE-Sim's golden trace says 112,283).
    sizes = "c=3 m=96 p=55 q=55 r=11 s=11 stride=4"
    answer = mapped(task(systolic(32, 32, 0, 0.0), "conv2d", sizes))
    assert answer.value == pytest.approx(36 * (2 * 32 + 32 + 3025 - 2), rel=0.01)
    assert not answer.divides  # 384 rows of 363 words


def test_steps_of_a_window_of_one_word_leave_no_gaps_in_a_systolic_array() -> None:
    """Every second word of 14 x 14 outputs: as the product of 196 rows, which fills 8 of 8 rows."""
    table = systolic(8, 4, 1.0, 1.0)
    strided = mapped(task(table, "conv2d", "c=16 m=8 p=14 q=14 r=1 s=1 stride=2"), "latency")
    product = mapped(task(table, "matmul", "m=196 n=8 k=16"), "latency")
    assert strided.value == product.value == 4 * (2 * 8 + 4 + 196 - 2)
    least = mapped(task(table, "conv2d", "c=16 m=8 p=14 q=14 r=1 s=1 stride=2"), "energy")
    assert least.cost.traffic.reads[0, 1, 0] == 16 * 196


def test_of_equal_energies_the_faster_is_taken() -> None:
    # Only main memory costs energy: each word crosses once in mappings of one step and of many.
    table = systolic(8, 4, 0, 0.0)
    table["level"][0]["energy_pj"] = 100.0
    wanted = task(table, "matmul", "m=64 n=8 k=16")
    least, fast = mapped(wanted), mapped(wanted, "latency")
    words = 64 * 8 + 64 * 16 + 8 * 16
    assert least.value == 100.0 * words
    assert least.cost.cycles[0] == fast.value == 4 * (2 * 8 + 4 + 64 - 2)
    assert not least.remark


def test_time_needs_no_energy() -> None:
    table = systolic(8, 4, 0, None)
    table["level"][0]["energy_pj"] = 100.0
    wanted = task(table, "matmul", "m=64 n=8 k=16")
    assert mapped(wanted, "latency").remark.startswith("mac.energy_pj has no energy")
    with pytest.raises(SilicastError, match="has no energy"):
        mapped(wanted)


def test_a_word_too_narrow_for_every_format_is_a_problem_of_the_file() -> None:
    table = systolic(8, 4, 0, 0.0)
    assert all_wrong(table) == []  # nothing is said of main memory: layers are mapped onto it
    table["system"] = {"memory_gb": 8.0, "memory_gb_per_s": 100.0}
    assert check_device(table) == []  # a register of weights alone holds them as wide as int8
    table["level"][3]["word_bits"] = 4
    (problem,) = check_device(table)
    assert problem.field == "register.capacity_words"
    assert "room for a word of Weights in int8" in problem.found
    assert "4 bits" in problem.found


def test_an_imported_array_is_mapped_as_its_note_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    presets = "ArrayHeight: 8\nArrayWidth: 4\nIfmapSramSzkB: 64\nFilterSramSzkB: 64\n"
    presets += "OfmapSramSzkB: 64\nDataflow: os\nBandwidth: 10\n"
    config = f"[general]\nrun_name = s\n[architecture_presets]\n{presets}"
    config += "[run_presets]\nInterfaceBandwidth: CALC\n"
    (tmp_path / "c.cfg").write_text(config)
    (tmp_path / "net.csv").write_text(NET + "conv, 10, 10, 3, 3, 4, 8, 1,\n")
    chip = tmp_path / "c.toml"
    assert main(["design", "import", str(tmp_path / "c.cfg"), "-o", str(chip)]) == 0
    assert "energy_pj = 0" in capsys.readouterr().err
    zeros = [
        f"{part}\nenergy_pj = 0" if part.startswith(("[[level]]", "[compute]")) else part
        for part in chip.read_text().split("\n\n")
        if "mesh" not in part
    ]
    array = next(part for part in chip.read_text().split("\n\n") if "mesh" in part)
    zeros.insert(5, array)
    (tmp_path / "zeros.toml").write_text("\n\n".join(zeros))
    for name in ("c.toml", "zeros.toml"):
        assert main(["validate", str(tmp_path / name)]) == 0
        assert main(["design", "map", str(tmp_path / name), str(tmp_path / "net.csv")]) == 0
        shown = capsys.readouterr()
        # 64 windows in 8 folds of rows, 8 filters in 2 of columns, 36 words of a window each.
        assert f"{16 * (2 * 8 + 4 + 36 - 2):,} cycles" in shown.out
        assert "least time" in shown.err


@pytest.mark.filterwarnings("error")
def test_what_moves_is_explained_without_energies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chip = tmp_path / "chip.toml"
    levels = '[[level]]\nname = "dram"\n[[level]]\nname = "buffer"\ncapacity_kib = 4\n'
    chip.write_text(f'name = "chip"\n{levels}[compute]\nname = "mac"\n')
    for command in ("map", "explain"):
        assert main(["design", command, str(chip), "matmul", "m=4", "n=4", "k=4"]) == 0
        assert "none: no action of the design costs energy" in capsys.readouterr().out


def test_of_an_array_that_is_filled_for_longer_than_it_works_this_binds() -> None:
    # A fold works for T = 4 of 2 x 8 + 4 + 4 - 2 cycles; for 100 of 118 with 100 rows.
    table = systolic(8, 4, 0, 0.0)
    for rows, binds in ((4, "array fill"), (100, "units")):
        answer = mapped(task(table, "matmul", f"m={rows} n=4 k=8"))
        assert answer.value == 2 * 8 + 4 + rows - 2
        assert busiest(answer.cost) == binds
    table["level"][0]["port"] = [{"words_per_cycle": 1.0}]
    assert busiest(mapped(task(table, "matmul", "m=4 n=4 k=8")).cost).startswith("dram ")
