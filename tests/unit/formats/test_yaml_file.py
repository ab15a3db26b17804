"""YAML as plain data: what is read, and what is refused before it grows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.yaml_file import parse_yaml, read_yaml


def test_blocks_lists_and_words() -> None:
    text = """
# a comment
top:
    version: '0.4'   # another
    rate: 1e-9
    note: "a # b"
    empty:
    items:
      - name: x[1..4]
        sizes: [1, 2, {a: b}]
      -   -   - C
          -   - R
              - stride
    aligned:
    - one
    - true
    long: max(1, ceil(x)) if d else
        1
"""
    assert parse_yaml(text) == {
        "top": {
            "version": "0.4",
            "rate": 1e-9,
            "note": "a # b",
            "empty": None,
            "items": [{"name": "x[1..4]", "sizes": [1, 2, {"a": "b"}]}, [["C"], ["R", "stride"]]],
            "aligned": ["one", True],
            "long": "max(1, ceil(x)) if d else 1",
        }
    }


@pytest.mark.parametrize(
    ("word", "value"),
    [("on", "on"), ("010", 10), ("1:30", "1:30"), ("2026-01-02", "2026-01-02"), ("1e3", 1000.0),
     (".5", 0.5), ("~", None), ("-.inf", -float("inf")), ("!!str 12", "12"), ("'12'", "12"),
     ("|\n  two\n  lines", "two\nlines")],
)  # fmt: skip
def test_words_are_those_of_the_core_schema(word: str, value: object) -> None:
    assert parse_yaml(f"a: {word}") == {"a": value}


def test_tags_are_plain_words() -> None:
    text = "a: !Component\n  b: !!python/object/apply:os.system [x]\n"
    assert parse_yaml(text) == {"a": {"b": ["x"]}}


def test_aliases_and_merges_repeat_what_they_name() -> None:
    text = "base: &b {x: 1, y: 2}\nchip:\n  <<: *b\n  y: 3\nsame: *b\n"
    assert parse_yaml(text) == {
        "base": {"x": 1, "y": 2}, "chip": {"x": 1, "y": 3}, "same": {"x": 1, "y": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("a: {{ width }}", "template", 1),
        ("a: *nowhere", "not there", 1),
        ("a: &x [*x]", "holds it", 1),
        ("a: 1\na: 2", "second time", 2),
        ("a:\n  [1, 2", "no YAML", 3),
        ("a: 'open", "no YAML", 1),
        ("a:\n  b: 1\n c: 2", "no YAML", 3),
        ("a:\n\tb: 1", "no YAML", 2),
        ("a: 1\n---\nb: 2", "second document", 2),
        ("? [1]\n: 2", "no word", 1),
    ],
)
def test_what_has_no_meaning_is_refused_by_line(text: str, said: str, line: int) -> None:
    with pytest.raises(SilicastError, match=said) as caught:
        parse_yaml(text, "x.yaml")
    assert caught.value.file == "x.yaml"
    assert caught.value.field == f"line {line}"


def nested(levels: int) -> dict[str, str]:
    """Ways of nesting so deep: brackets, blocks, and a chain of aliases."""
    return {
        "brackets": "[" * levels + "]" * levels,
        "blocks": "".join(f"{' ' * n}a:\n" for n in range(levels)),
        "aliases": "- &a0 []\n" + "".join(f"- &a{n + 1} [*a{n}]\n" for n in range(levels)),
    }


@pytest.mark.parametrize("way", nested(1))
def test_three_thousand_levels_are_an_error_and_sixty_are_none(way: str) -> None:
    parse_yaml(nested(60)[way])
    with pytest.raises(SilicastError, match="nested deeper than 64 levels") as caught:
        parse_yaml(nested(3000)[way])
    assert caught.value.kind == "limit"


@pytest.mark.parametrize("link", ["[{0}]", "{{<<: [{0}]}}"])
def test_an_alias_bomb_is_refused_at_once(link: str) -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    for n in range(40):
        nine = ", ".join([f"*a{n}"] * 9)
        lines.append(f"a{n + 1}: &a{n + 1} " + link.format(nine))
    start = time.process_time()
    with pytest.raises(SilicastError, match="more than 1000000 values") as caught:
        parse_yaml("\n".join(lines))
    assert caught.value.kind == "limit"
    assert time.process_time() - start < 5


def test_what_is_no_regular_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    for path in (Path("/dev/zero"), tmp_path / "fifo.yaml"):
        with pytest.raises(SilicastError, match="no regular file"):
            read_yaml(path)


def test_without_the_library_the_error_says_what_to_install() -> None:
    code = (
        "import sys\nsys.modules['yaml'] = None\n"
        "from silicast.formats.yaml_file import parse_yaml\n"
        "try: parse_yaml('a: 1')\nexcept Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'silicast[yaml]'" in done.stdout


def test_a_template_of_defaults_alone_is_read() -> None:
    text = """{% set Size = Size | default(64) %}
{%- set Rate=Rate | default('inf') -%}
a: {size: {{Size}}, rate: {{ Rate }}}
"""
    assert parse_yaml(text) == {"a": {"size": 64, "rate": "inf"}}
    for more in ("b: {{Other}}", "{% for x in y %}"):
        with pytest.raises(SilicastError, match="is a template"):
            parse_yaml(text + more)
