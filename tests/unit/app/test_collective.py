"""`silicast collective` as its users meet it: one screen, sweeps, drawings, ASTRA-sim beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silicast.app.cli import main
from tests.architecture.source_tree import ROOT

FOLDER = ROOT / "examples" / "astra_sim"
ASTRA = f"--astra-network {FOLDER / 'network.yml'} --astra-system {FOLDER / 'system.json'}"

Capture = pytest.CaptureFixture[str]


def run(command: str, capsys: Capture) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of ``silicast collective``."""
    status = main(["collective", *command.split()])
    out, err = capsys.readouterr()
    return status, out, err


def test_one_screen(capsys: Capture) -> None:
    status, out, err = run("all_reduce --bytes 256MB --device h100 --gpus 64", capsys)
    assert (status, err) == (0, "")
    for words in (
        "all_reduce of 256 MB on 64 x h100", "latency", "bus bandwidth", "algorithm bandwidth",
        "made of", "wire, at the full rate", "start and latency of steps", "expected algorithm",
    ):  # fmt: skip
        assert words in out, words
    assert len(out.splitlines()) < 30


def test_a_short_one_is_bound_by_its_steps(capsys: Capture) -> None:
    _, out, _ = run("all_reduce --bytes 8KiB --device h100", capsys)
    assert "bound by the latency of its steps: at 0.1 % of what links between devices" in out
    assert "short kernels" not in out


def test_the_answer_is_that_of_the_scenario_file(tmp_path: Path, capsys: Capture) -> None:
    workload = {"op": "all_gather", "bytes": 1 << 20, "gpus": 8, "launch": "eager"}
    scenario = {"format": 1, "task": "collective", "device": "h100", "workload": workload}
    file = tmp_path / "s.json"
    file.write_text(json.dumps({**scenario, "why": "full"}), encoding="utf-8")
    status, out, _ = run("all_gather --bytes 1MiB --device h100 --launch eager --json", capsys)
    assert status == 0
    assert main(["run", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(out)


@pytest.mark.parametrize("launch", ["graph", "eager", "torch"])
@pytest.mark.parametrize("size", ["1KiB", "1MiB", "1GiB"])
def test_parts_sum_to_the_time(launch: str, size: str) -> None:
    from silicast.app.predict import predicted
    from silicast.report.tasks.collective import made_of
    from silicast.scenario.answers.collective.collective_sizes import size_of, without_launch

    workload = {"op": "all_reduce", "bytes": size_of(size), "gpus": 8, "launch": launch}
    scenario = {
        "format": 1, "task": "collective", "device": "h100", "why": "full", "workload": workload,
    }  # fmt: skip
    answer, other = predicted(scenario), without_launch(scenario)
    assert (other is None) == (launch == "graph")
    parts = made_of(answer, predicted(other) if other else None)
    assert all(seconds >= 0.0 for _, seconds in parts)
    total = answer["metrics"]["latency_us"]["estimate"] * 1e-6
    assert sum(seconds for _, seconds in parts) == pytest.approx(total, rel=1e-6, abs=1e-11)


def test_a_sweep_is_a_table_and_a_picture(tmp_path: Path, capsys: Capture) -> None:
    plot = tmp_path / "curve.svg"
    command = f"all_reduce --bytes 1KiB..1MiB --device h100 --plot {plot}"
    status, out, err = run(command, capsys)
    assert status == 0
    assert err == f"{plot}: the curve\n"
    assert out.count("µs") == 11
    assert "bus bandwidth, GB/s, over the size" in out
    first = plot.read_bytes()
    assert first.startswith(b"<?xml")
    run(command, capsys)
    assert plot.read_bytes() == first
    points = json.loads(run(f"{command} --json", capsys)[1])["points"]
    assert [point["bytes"] for point in points] == [1024 << k for k in range(11)]


def test_astra_sim_has_its_own_numbers(capsys: Capture) -> None:
    status, out, _ = run(f"all_reduce --bytes 1MiB {ASTRA}", capsys)
    assert status == 0
    assert "57,426 ns" in out
    assert "55,222 ns" in out
    status, out, _ = run(f"all_gather --bytes 1MiB --device h100 {ASTRA} --json", capsys)
    load = json.loads(out)["points"][0]
    assert (load["aware_ns"], load["whole_size"]) == (44_058, 8 << 20)
    alone = json.loads(run("all_gather --bytes 8MiB --device h100 --json", capsys)[1])
    assert load["answer"] == alone


def test_astra_sim_counts_no_contention_in_two_dimensions(tmp_path: Path, capsys: Capture) -> None:
    network, system = tmp_path / "network.yml", tmp_path / "system.json"
    network.write_text(
        "topology: [ Ring, Switch ]\nnpus_count: [ 2, 4 ]\nbandwidth: [ 50, 25 ]\n"
        "latency: [ 500, 1000 ]\n"
    )
    layer = (FOLDER / "system.json").read_text(encoding="utf-8")
    system.write_text(layer.replace('["ring"]', '["ring", "ring"]'), encoding="utf-8")
    requested = f"reduce_scatter --bytes 1MiB --astra-network {network} --astra-system {system}"
    status, out, _ = run(requested, capsys)
    assert status == 0
    assert "reduce_scatter of 8 NPUs" in out
    assert "without contention" in out
    point = json.loads(run(f"{requested} --json", capsys)[1])["points"][0]
    assert point["aware_ns"] is None
    assert f"{point['unaware_ns']:,} ns" in out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("all_reduce --bytes 1MiB", "--device: says on what"),
        ("all_reduce --bytes much --device h100", "--bytes: 'much' is not a size"),
        ("all_reduce --bytes 0.5B --device h100", "is not a whole number of bytes"),
        ("all_reduce --bytes 4KiB..1KiB --device h100", "does not grow"),
        ("all_reduce --bytes 4KiB,1KiB --device h100", "sizes must grow"),
        ("all_reduce --bytes 1KiB,1100..1GiB --device h100", "at most 64 are swept"),
        ("all_reduce --bytes 1KiB --device h100 --gpus 0", "workload.gpus"),
        ("all_reduce --bytes 1KiB --device h100 --plot a.svg", "--plot: draws a sweep"),
        ("all_reduced --bytes 1KiB --device h100", "did you mean all_reduce?"),
        ("all_reduce --bytes 1KiB --device h1000", "unknown device 'h1000'"),
        (
            "all_reduce --bytes 1KiB --device h100 --launch never",
            "workload.launch: expected one of graph",
        ),
        ("all_reduce --bytes 1KiB --astra-system x.json", "--astra-network: goes with"),
        (f"all_reduce --bytes 1KiB --gpus 4 {ASTRA}", "--gpus: 4, and the network file has 8"),
        (f"send_recv --bytes 1KiB {ASTRA}", "ASTRA-sim has no 'send_recv'"),
        (f"all_reduce --bytes 1KiB --plot a.svg {ASTRA}", "--plot: draws no times of ASTRA-sim"),
    ],
)
def test_what_is_wrong_is_named(command: str, said: str, capsys: Capture) -> None:
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert said in err
