"""Arguments in shell scripts."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.measurement.training_configs.shell_words import Script, integer_of, options


def words(text: str) -> list[str]:
    return Script.of(text).command()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nA=2\npython t.py --x $A", ["python", "t.py", "--x", "2"]),
        ("A='a b'\npython t.py --x \"$A\"", ["python", "t.py", "--x", "a b"]),
        ('O="--x 1"\nO="$O --y 2"\npython t.py $O', ["python", "t.py", "--x", "1", "--y", "2"]),
        ("O=(--x 1)\nO+=(--y)\npython t.py ${O[@]}", ["python", "t.py", "--x", "1", "--y"]),
        ("N=4\npython t.py --x $((N * 2 + 1))", ["python", "t.py", "--x", "9"]),
        ("python t.py --x ${N:-7} --y $N", ["python", "t.py", "--x", "7", "--y", "$N"]),
        ("export A=3; python t.py --x $A > log", ["python", "t.py", "--x", "3"]),
        ("python t.py \\\n  --x 1 \\\n  # no\n", ["python", "t.py", "--x", "1"]),
        ("echo --y\npython pretrain.py --x 1\n", ["python", "pretrain.py", "--x", "1"]),
        ("--x 1\n--y 2", ["--x", "1", "--y", "2"]),
    ],
)
def test_what_a_shell_would_give(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_variables_of_branches_are_named() -> None:
    script = Script.of('A=1\nif [ "$B" = 1 ]; then\n  C=2\nfi\nD=3')
    assert script.branched == ("C",)
    assert dict(script.variables) == {"A": "1", "C": "2", "D": "3"}


def test_a_script_cannot_grow_without_end() -> None:
    bomb = "A=xxxxxxxx\n" + 'A="$A$A"\n' * 40 + "python t.py $A"
    with pytest.raises(SilicastError) as caught:
        words(bomb)
    assert caught.value.kind == "limit"


@given(st.text(alphabet="AB=$(){}[]@\"'\\;#-+* \n1.py", max_size=120))
def test_any_text_is_read(text: str) -> None:
    with contextlib.suppress(SilicastError):
        options(words(text))


@given(st.integers(0, 99), st.integers(1, 99), st.integers(0, 99))
def test_sums_follow_the_usual_order(a: int, b: int, c: int) -> None:
    assert integer_of(f"{a} + {b} * {c}") == a + b * c
    assert integer_of(f"({a} + {b}) * {c} / {b} % 7") == (a + b) * c // b % 7
    assert integer_of(f"{a} ** {b}") is None
