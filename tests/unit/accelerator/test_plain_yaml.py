"""The plain part of YAML, and what is refused of the rest."""

from __future__ import annotations

import pytest

from silicast.accelerator.timeloop.plain_yaml import parse_plain_yaml
from silicast.core.errors import SilicastError


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
    assert parse_plain_yaml(text) == {
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


def test_tags_are_plain_words() -> None:
    text = "a: !Component\n  b: !!python/object:os.system x\n"
    assert parse_plain_yaml(text) == {"a": {"b": "x"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {{ width }}", "template"),
        ("a: &anchor 1", "'&'"),
        ("a: *anchor", "'\\*'"),
        ("a: |\n  text", "'\\|'"),
        ("a: 1\na: 2", "second time"),
        ("a: [1, 2", "has a list without its"),
        ("a: 'open", "quote"),
        ("a:\n  b: 1\n c: 2", "line 3"),
        ("a:\n\tb: 1", "tab"),
    ],
)
def test_what_is_not_plain_is_refused_by_line(text: str, said: str) -> None:
    with pytest.raises(SilicastError, match=said) as caught:
        parse_plain_yaml(text, "x.yaml")
    assert caught.value.file == "x.yaml"
    assert caught.value.field.startswith("line ")
