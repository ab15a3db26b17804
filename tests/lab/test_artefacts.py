"""The chain of shipped numbers: what is stale is found, named, and made again the same."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import artefacts, chain, source_code
from lab.reads import table_hash
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from tests.architecture.source_tree import ROOT

A = """
import json, sys
from pathlib import Path
folder = Path({folder!r})
rows = (Path({data!r}) / "rows.csv").read_text().split()
card = {{"date": "2000-01-01"}}
made = {{"card": card, "default": {{"x": float(len(rows))}}}}
(folder / "a.json").write_text(json.dumps(made))
"""
B = """
import json
from pathlib import Path
folder = Path({folder!r})
x = json.loads((folder / "a.json").read_text())["default"]["x"]
made = {{"card": {{"date": "2000-01-01"}}, "default": {{"y": 2.0 * x}}}}
(folder / "b.json").write_text(json.dumps(made))
"""
CHAIN = """
[first]
commands = ["lab_a"]
makes = ["physics/a"]

[second]
commands = ["lab_b"]
makes = ["physics/b"]
after = ["first"]
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A chain of two stages on one table, run in this process."""
    folder, data = tmp_path / "physics", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    (data / "rows.csv").write_text("1\n2\n3\n")
    declared = tmp_path / "chain.toml"
    declared.write_text(CHAIN)
    for name, code in (("lab_a", A), ("lab_b", B)):
        (tmp_path / f"{name}.py").write_text(code.format(folder=str(folder), data=str(data)))
    monkeypatch.setenv("SILICAST_DATA", str(data))
    monkeypatch.setattr(chain, "CHAIN", declared)
    monkeypatch.setattr(chain, "FOLDERS", {"physics": folder})
    monkeypatch.setattr(artefacts, "CARDS_OF_HELD_OUT", tmp_path / "held_out.json")
    monkeypatch.setattr(artefacts, "code_hash", lambda names: _text(tmp_path, names))
    monkeypatch.setattr(artefacts, "_traced", lambda _, command: _run(tmp_path, command))
    chain.stages.cache_clear()
    table_hash.cache_clear()
    yield tmp_path
    chain.stages.cache_clear()


def _text(folder: Path, names: list[str]) -> str:
    return content_hash([(folder / f"{name}.py").read_text() for name in names])


def _run(folder: Path, command: str) -> dict[str, list[str]]:
    subprocess.run([sys.executable, str(folder / f"{command}.py")], check=True)
    rests_on_first: tuple[list[str], list[str]] = (["physics/a"], [])
    read = {"lab_a": ([], ["rows.csv"])}.get(command, rests_on_first)
    return {"constants": read[0], "data": read[1]}


def made(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "physics").iterdir())}


def test_all_is_made_in_order_and_nothing_twice(small: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    everything = set(chain.stages())
    assert artefacts.make(everything, 2) == []
    first = made(small)
    assert json.loads(first["b.json"])["default"] == {"y": 6.0}
    assert artefacts.stale(small / "data") == {}
    capsys.readouterr()
    artefacts.make(everything, 2)
    assert capsys.readouterr().out == ""
    artefacts.remove_all()
    assert made(small) == {}
    artefacts.make(everything, 1)
    assert made(small) == first


def test_a_table_that_changed_makes_what_rests_on_it_stale(small: Path) -> None:
    artefacts.make(set(chain.stages()), 1)
    (small / "data" / "rows.csv").write_text("1\n2\n3\n4\n")
    table_hash.cache_clear()
    stale = artefacts.stale(small / "data")
    assert list(stale) == ["first"]
    assert "rows.csv that physics/a rests on changed" in stale["first"]
    assert artefacts.stale(None) == {}, "without tables they cannot be compared"
    artefacts.make({"second"}, 1)
    assert json.loads(made(small)["b.json"])["default"] == {"y": 8.0}


def test_the_same_numbers_make_nothing_else_stale(small: Path) -> None:
    artefacts.make(set(chain.stages()), 1)
    before = made(small)["b.json"]
    with (small / "lab_a.py").open("a") as file:
        file.write("pass\n")
    assert list(artefacts.stale(None)) == ["first"]
    artefacts.make(set(chain.stages()), 1)
    assert made(small)["b.json"] == before
    assert artefacts.stale(None) == {}


def test_a_number_that_was_changed_by_hand_is_named(small: Path) -> None:
    artefacts.make(set(chain.stages()), 1)
    path = small / "physics" / "a.json"
    path.write_text(path.read_text().replace("3.0", "3.5"))
    stale = artefacts.stale(None)
    assert stale["first"] == ["physics/a was changed by hand"]
    assert stale["second"] == ["physics/a that physics/b rests on changed"]


def test_a_date_moves_only_with_the_numbers(small: Path) -> None:
    artefacts.make(set(chain.stages()), 1)
    path = small / "physics" / "a.json"
    card = json.loads(path.read_text())
    card["card"]["date"] = "1999-12-31"
    path.write_text(json.dumps(card))
    with (small / "lab_a.py").open("a") as file:
        file.write("pass\n")
    artefacts.make(set(chain.stages()), 1)
    assert json.loads(path.read_text())["card"]["date"] == "1999-12-31"


def test_code_that_moves_no_number_is_accepted_by_a_sample(small: Path) -> None:
    artefacts.make(set(chain.stages()), 1)
    before = made(small)
    for name in ("lab_a.py", "lab_b.py"):
        with (small / name).open("a") as file:
            file.write("pass\n")
    assert list(artefacts.stale(None)) == ["first", "second"]
    artefacts.accept({"first"})
    assert artefacts.stale(None) == {}
    first, second = (artefacts.provenance_of(f"physics/{name}") for name in "ab")
    assert first is not None
    assert second is not None
    assert (first.accepted, second.accepted != "") == ("", True)
    assert second.accepted != second.code
    artefacts.accept({"second"})
    assert json.loads(made(small)["b.json"])["default"] == json.loads(before["b.json"])["default"]


def test_constants_that_move_no_number_are_accepted_by_a_sample(small: Path) -> None:
    """A third and a fourth stage rest on the first artefact without taking its number."""
    for name in "cd":
        code = B.replace("2.0 * x", "1.0").replace("b.json", f"{name}.json")
        (small / f"lab_{name}.py").write_text(code.format(folder=str(small / "physics")))
    more = "".join(
        f'\n[{name}]\ncommands = ["lab_{name}"]\nmakes = ["physics/{name}"]\nafter = ["first"]\n'
        for name in "cd"
    )
    chain.CHAIN.write_text(CHAIN + more)
    chain.stages.cache_clear()
    artefacts.make(set(chain.stages()), 1)
    with (small / "lab_a.py").open("a") as file:
        file.write(
            "made['default']['x'] += 1.0\n(folder / 'a.json').write_text(json.dumps(made))\n"
        )
    artefacts.run_stage("first")
    assert sorted(artefacts.stale(None)) == ["c", "d", "second"]
    artefacts.accept({"c"})
    assert sorted(artefacts.stale(None)) == ["d", "second"]
    with pytest.raises(SilicastError, match="stage second makes other numbers"):
        artefacts.accept({"second"}, ["physics/a"])
    artefacts.run_stage("second")
    artefacts.accept({"c"}, ["physics/a"])
    assert artefacts.stale(None) == {}


def test_code_that_moves_a_number_is_not_accepted(small: Path) -> None:
    artefacts.make(set(chain.stages()), 1)
    with (small / "lab_a.py").open("a") as file:
        file.write(
            "made['default']['x'] += 1.0\n(folder / 'a.json').write_text(json.dumps(made))\n"
        )
    with pytest.raises(SilicastError, match="stage first makes other numbers: physics/a"):
        artefacts.accept({"first"})
    with pytest.raises(SilicastError, match="names no stage"):
        artefacts.accept(set())


def test_an_order_that_was_not_declared_is_said(small: Path) -> None:
    chain.CHAIN.write_text(CHAIN.replace('after = ["first"]\n', ""))
    chain.stages.cache_clear()
    lacking = artefacts.make(set(chain.stages()), 1)
    assert lacking == ["second reads physics/a: add 'first' to `after`"]


def test_a_stage_does_not_see_what_is_made_after_it(small: Path) -> None:
    assert chain.made_later("first") == {"physics/b"}
    assert chain.made_later("second") == set()
    loop = CHAIN.replace("[second]", 'also_reads = ["physics/b"]\n\n[second]')
    chain.CHAIN.write_text(loop)
    chain.stages.cache_clear()
    assert chain.made_later("first") == set()


def test_whole_models_are_predicted_with_the_constants_of_every_kernel() -> None:
    behind = [s for name, s in chain.stages().items() if "whole_models" in chain.before(name)]
    rests_on_them = {artefact for stage in behind for artefact in stage.makes}
    hidden = chain.made_later("whole_models") - rests_on_them
    assert [artefact for artefact in hidden if artefact.startswith("physics/")] == []
    rests_on_programs = {"physics/chains", "physics/attention_backward"}
    assert not rests_on_programs & (
        chain.made_later("calibration") | chain.made_later("uncertainty")
    )


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('after = ["first"]', 'after = ["third"]', "third"),
        ('makes = ["physics/b"]', 'makes = ["physics/a"]', "made by first and by second"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(small: Path, old: str, new: str, named: str) -> None:
    chain.CHAIN.write_text(CHAIN.replace(old, new))
    chain.stages.cache_clear()
    with pytest.raises(SilicastError, match=named):
        chain.stages()


def test_a_stage_that_fails_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefacts, "ROOT", tmp_path)
    with pytest.raises(SilicastError, match="ended with status 1"):
        artefacts._traced("judged", "lab_that_is_not_there")
    assert "No module named" in (tmp_path / "build/artefacts/judged.log").read_text()


LOCALS = (
    (
        "def f(n):\n    a = n\n    b = 2\n    return a - b\n",
        "def f(n):\n    b = n\n    a = 2\n    return b - a\n",
        "def f(n):\n    a = n\n    b = 2\n    return b - a\n",
    ),
    (  # each scope has its own
        "def f(n):\n    x = [x for x in n]\n    return [y + len(x) for y in x]\n",
        "def f(n):\n    z = [x for x in n]\n    return [x + len(z) for x in z]\n",
        "def f(n):\n    z = [x for x in n]\n    return [x + len(n) for x in z]\n",
    ),
    (  # a global is no local of an inner function's name
        "foo = 1\ndef f(n):\n    def g():\n        foo = n\n        return foo\n    return foo\n",
        "foo = 1\ndef f(n):\n    def g():\n        bar = n\n        return bar\n    return foo\n",
        "foo = 1\ndef f(n):\n    def g():\n        bar = n\n        return bar\n    return bar\n",
    ),
    (
        "def f(n):\n    try:\n        return n()\n    except OSError as x:\n        return x\n",
        "def f(n):\n    try:\n        return n()\n    except OSError as e:\n        return e\n",
        "def f(n):\n    try:\n        return n()\n    except OSError as e:\n        return n\n",
    ),
)
"""A function, the same with other names of locals, and another one."""


def test_code_counts_without_comments_docstrings_layout_and_names_of_locals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    path = tmp_path / "lab" / "one.py"
    monkeypatch.setattr(source_code, "ROOT", tmp_path)

    def hashed(code: str) -> str:
        path.write_text(textwrap.dedent(code))
        for cached in (source_code._path, source_code._tree, source_code._imports):
            cached.cache_clear()
        source_code._normalised.cache_clear()
        return source_code.code_hash(["lab.one"])

    plain = hashed("def f(x):\n    return x + 1\n")
    assert plain == hashed(
        '"""Words."""\ndef f(x):\n    """More."""\n    # why\n    return (x + 1)\n'
    )
    assert plain != hashed("def f(x):\n    return x + 2\n")
    assert plain != hashed("def f(y):\n    return y + 1\n")  # a caller may name it
    for code, same, other in LOCALS:
        assert hashed(code) == hashed(same)
        assert hashed(code) != hashed(other)
    for cached in (source_code._path, source_code._tree, source_code._imports):
        cached.cache_clear()
    source_code._normalised.cache_clear()


def test_a_changed_table_of_the_catalog_changes_the_hash_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for where it is from."""
    monkeypatch.setattr(source_code, "CATALOG", tmp_path)
    monkeypatch.setattr(source_code, "READ_BY", {"lab.source_code": ("tiles.toml",)})

    def hashed(text: str) -> str:
        (tmp_path / "tiles.toml").write_text(text)
        source_code._content.cache_clear()
        return source_code.code_hash(["lab.source_code"])

    plain = hashed('[one]\nsource = "there"\ntiles = [[16, 64, 4]]\n')
    assert plain == hashed('[one]\ntiles = [[16, 64, 4]]  # why\nsource = "here"\n')
    assert plain != hashed('[one]\nsource = "there"\ntiles = [[16, 64, 3]]\n')
    source_code._content.cache_clear()


def test_every_command_is_a_script_and_every_artefact_has_a_stage() -> None:
    for name, stage in chain.stages().items():
        for command in stage.commands:
            module = command.split()[0].removeprefix("lab.")
            assert (ROOT / "lab" / f"{module}.py").is_file(), name
    assert [one for one in chain.shipped() if not chain.maker_of(one)] == []


@pytest.mark.parametrize("name", chain.stages())
def test_no_shipped_number_is_stale(name: str) -> None:
    """Fails after a change of code or constants: run `make artefacts` with the measured tables."""
    assert artefacts.reasons(name, None) == []
