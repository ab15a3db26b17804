"""Ten latencies of networks in a table: to a calibration, to an answer, to a search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silicast
from silicast.app.cli import main
from silicast.core.calibration import load_calibration
from silicast.core.errors import SilicastError
from silicast.learning.known_latencies import known_latencies
from silicast.measurement.calibrating.sampled_search import search_space
from silicast.workload.spaces import space_named

SPACE = space_named("nasbench201")
EVERY = SPACE.every(20_000, 0)
TWIN = known_latencies("nasbench201").devices[5]
TRUTH = SPACE.latencies(EVERY, np.array(TWIN.weights)) * TWIN.median_ms
PICKED = np.random.default_rng(4).choice(np.flatnonzero(0.5 * TWIN.median_ms < TRUTH), 12)
OTHER = int(PICKED[-1])


def name(index: int) -> str:
    return f"nasbench201:{SPACE.text(EVERY[index].tolist())}"


def table(path: Path, rows: list[tuple[str, float]], column: str = "latency_ms") -> Path:
    lines = [f"model,{column}", *(f"{model},{value}" for model, value in rows)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    rows = [(name(index), float(TRUTH[index])) for index in PICKED[:10]]
    return table(tmp_path / "samples.csv", rows)


def test_ten_samples_predict_a_network(
    samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "mine.json"
    assert main(["calibrate", str(samples), "--device", "my board", "-o", str(output)]) == 0
    assert "10 samples" in capsys.readouterr().out
    answer = silicast.predict(
        task="graph", device="My-Board", calibration=str(output), workload={"graph": name(OTHER)}
    )
    belief = answer["e2e_ms"]
    assert belief.p05 < TRUTH[OTHER] < belief.p95
    assert belief.estimate == pytest.approx(TRUTH[OTHER], rel=0.15)
    assert answer.tier == "calibrated"


def test_microseconds_are_read_by_their_column(samples: Path, tmp_path: Path) -> None:
    rows = [(name(index), 1e3 * float(TRUTH[index])) for index in PICKED[:10]]
    other = table(tmp_path / "us.csv", rows, "latency_us")
    one, two = (
        search_space("nasbench201", "d", [path], budget_ms=9.0) for path in (samples, other)
    )
    np.testing.assert_allclose(one.networks.latencies, two.networks.latencies, rtol=1e-6)


def test_a_search_keeps_its_budget_and_takes_an_accuracy(samples: Path) -> None:
    fast = search_space("nasbench201", "d", [samples], budget_ms=9.0, count=4)
    assert (fast.networks.latencies <= 9.0).all()
    short = search_space(
        "nasbench201",
        "d",
        [samples],
        budget_ms=9.0,
        accuracy=lambda names: [-float(len(each)) for each in names],
        count=4,
    )
    assert min(map(len, short.names)) <= min(map(len, fast.names))


def test_a_table_of_accuracies_is_what_is_ranked(
    samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = table(tmp_path / "a.csv", [(name(5), 71.0), (name(9000), 73.0)], "accuracy")
    given = ["--samples", str(samples), "--accuracy", str(ranks), "--json"]
    code = main(["nas", "nasbench201", "--device", "d", *given])
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["model"] for row in data["networks"]] == [name(9000), name(5)]


def test_advice_is_a_table_to_fill_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--advise", "nasbench201", "--top", "3"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == "model,latency_ms"
    assert len({SPACE.choices(row.rstrip(",").partition(":")[2]) for row in rows}) == 3


def test_microseconds_of_a_board_are_not_taken_for_milliseconds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("model,latency_ms\nresnet50,1300\nresnet101,1950\nmobilenet_v3_large,520\n")
    arguments = ["calibrate", str(path), "--device", "Galaxy S24", "-o", str(tmp_path / "o.json")]
    assert main(arguments) != 0
    assert "are they microseconds?" in capsys.readouterr().err


def test_advice_for_a_board_is_calibrated_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["calibrate", "--advise", "Galaxy S24", "--top", "4"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([head, *(f"{row}{4 + at}" for at, row in enumerate(rows))]))
    output = tmp_path / "s24.json"
    assert main(["calibrate", str(path), "--device", "Galaxy S24", "-o", str(output)]) == 0
    blend = load_calibration(output).blends[0]
    assert (blend.rows, blend.least_ms, blend.most_ms) == (4, 4.0, 7.0)


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([("resnet50", 3.0)], "row 1: model: expected a network of a space"),
        ([("fbnet:1 2", 3.0)], "row 1: model: expected 22 blocks"),
        ([(name(1), 5.0), (name(2), 0.0)], "row 2: a latency is a number above zero"),
        ([("fbnet:" + "3 " * 22, 20.0)], "are of fbnet, not of nasbench201"),
    ],
)
def test_rows_that_cannot_be_right_are_named(
    rows: list[tuple[str, float]], part: str, tmp_path: Path
) -> None:
    with pytest.raises(SilicastError) as caught:
        search_space("nasbench201", "d", [table(tmp_path / "bad.csv", rows)])
    assert part in str(caught.value)
    assert "bad.csv" in str(caught.value)


def test_samples_that_contradict_known_devices_widen(tmp_path: Path) -> None:
    rows = [(name(index), float(TWIN.median_ms**2 / TRUTH[index])) for index in PICKED[:10]]
    result = search_space("nasbench201", "d", [table(tmp_path / "turned.csv", rows)])
    assert any("same rows" in note for note in result.notes)
    assert result.blend is not None
    assert result.blend.log_sd > 0.25


def test_a_budget_without_samples_is_refused() -> None:
    with pytest.raises(SilicastError, match="are ranked, not timed"):
        search_space("fbnet", "d", budget_ms=20.0)


def test_a_device_of_the_spaces_table_needs_no_samples() -> None:
    result = search_space("nasbench201", TWIN.name.upper(), budget_ms=TWIN.median_ms, count=3)
    assert result.known
    assert result.blend is not None
    (latency,) = (
        SPACE.latencies(result.networks.choices[:1], np.array(TWIN.weights)) * TWIN.median_ms
    )
    quantity = result.latency_ms(0)
    assert quantity is not None
    assert quantity.estimate == pytest.approx(latency, rel=1e-9)
    assert quantity.estimate <= TWIN.median_ms
    known = known_latencies("nasbench201").card.scores["median_error_pct of rows fitted"]
    assert result.blend.log_sd == pytest.approx(1.5 * known[TWIN.name] / 67.45)


def test_samples_of_another_space_are_told(tmp_path: Path) -> None:
    rows = [(name(index), float(TRUTH[index])) for index in PICKED[:6]]
    other = ("fbnet:" + " ".join("3" * 22), 4.0)
    result = search_space("nasbench201", "d", [table(tmp_path / "both.csv", [*rows, other])])
    assert "1 samples of fbnet say nothing of nasbench201: left out" in result.notes
