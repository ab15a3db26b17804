"""Answers as pages: whole, alone, and with everything that was answered."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from silicast.app.cli import main
from silicast.report.drawing.drawings import Bar, BarPiece, Point, bars, interval, scatter

VOID = {"meta", "br"}

COMMANDS = {
    "infer": "infer --model Llama-3.1-8B --device h100 --batch 8",
    "too large": "infer --model Llama-3.1-70B --device h100",
    "serve": "serve --model Llama-3.1-8B --device h100 --concurrency 4 --requests 8",
    "train": "train --model Llama-3-8B --device h100 --gpus 8 --seq-len 2048 --tp 8",
    "compare": "compare --model Llama-3.1-8B --device h100,l4,h1000 --price h100=2.5",
}


class Checked(HTMLParser):
    """Every element that begins ends; what is named from elsewhere is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.outside += [str(value) for name, value in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_is_whole_and_needs_nothing_else(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    main([*COMMANDS[name].split(), "--html", str(path)])
    assert "page.html" in capsys.readouterr().err
    text = path.read_text(encoding="utf-8")
    checked = Checked()
    checked.feed(text)
    checked.close()
    assert checked.open == []
    assert checked.outside == []
    assert "url(" not in text
    assert "<script" not in text
    assert "90 %" in text
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)
    if name == "too large":
        assert 'class="verdict no"' in text
    if name == "compare":
        assert "h1000: unknown device" in text


def test_a_page_of_a_sweep_has_its_loads_and_its_curve(tmp_path: Path) -> None:
    requested = "serve --model Llama-3.2-1B --device h100 --sweep concurrency=1,2,4 --html"
    lengths = ["--input-len", "64", "--output-len", "4"]
    assert main([*requested.split(), str(tmp_path / "x.html"), *lengths]) == 0
    text = (tmp_path / "x.html").read_text()
    assert "TTFT p99 over load" in text
    assert text.count("<circle") >= 9


def test_a_page_of_a_server_leads_with_p99_and_has_its_distribution(tmp_path: Path) -> None:
    requested = "serve --model Llama-3.2-1B --device h100 --rate 2 --requests 40 --html"
    lengths = ["--input-len", "64", "--output-len", "4"]
    assert main([*requested.split(), str(tmp_path / "x.html"), *lengths]) == 0
    text = (tmp_path / "x.html").read_text()
    assert "<b>ttft p99</b>" in text.split('<p class="verdict">')[1].split("</p>")[0]
    assert text.count("distribution of") == 4


def test_what_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMANDS["infer"].split(), "--html", "/nowhere/page.html"]) == 2
    assert "/nowhere/page.html" in capsys.readouterr().err


SIZES = st.floats(0.0, 1e9, allow_nan=False)
NAMES = st.text(max_size=12)


@given(
    st.lists(
        st.tuples(NAMES, st.lists(st.tuples(NAMES, SIZES), max_size=4)), min_size=1, max_size=4
    )
)
def test_every_drawing_is_well_formed(rows: list[tuple[str, list[tuple[str, float]]]]) -> None:
    drawn = [Bar(label, [BarPiece(name, size) for name, size in each]) for label, each in rows]
    clean = bars(drawn, "ms", "<title>")
    if clean.isprintable():
        ElementTree.fromstring(clean)


@given(SIZES, SIZES, SIZES)
@example(0.0, 0.0, 5e-324)
def test_points_and_intervals_are_well_formed(a: float, b: float, c: float) -> None:
    low, middle, high = sorted((a, b, c))
    ElementTree.fromstring(interval(middle, low, high, high))
    belief = (middle, low, high)
    ElementTree.fromstring(scatter([Point("a & b", belief, belief)], "x", "y"))


def test_a_page_says_all_that_was_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    main([*COMMANDS["serve"].split(), "--price", "2.5", "--slo", "e2e=9s", "--html", str(path)])
    served = path.read_text(encoding="utf-8")
    for words in (">TTFT<", ">90 % of p99<", "a device is 2.5 USD", "objective kept", "knee near"):
        assert words in served, words
    assert served.count("<tr>") < 30
    main([*COMMANDS["train"].split(), "--tokens", "15T", "--price", "2.5", "--html", str(path)])
    trained = path.read_text(encoding="utf-8")
    for words in ("15T tokens take", "at 2.5 USD an hour", ">update<", "tp 8"):
        assert words in trained, words
    assert "e2e" not in trained
    capsys.readouterr()


def test_labels_of_near_points_do_not_cover_each_other() -> None:
    near = [Point(f"device {n}", (100.0 + n, 90.0, 110.0), (50.0, 49.0, 51.0)) for n in range(6)]
    drawn = re.findall(r'<text x="([\d.]+)" y="([\d.-]+)"[^>]*>device', scatter(near, "x", "y"))
    lines = sorted(float(y) for _, y in drawn)
    assert len(lines) == len(near)
    assert all(after - before >= 12.0 for before, after in itertools.pairwise(lines))
