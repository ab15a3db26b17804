"""Training configurations of other tools, with one field changed to anything."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.formats.training_configs import read_training_config
from silicast.formats.yaml_file import parse_yaml
from tests.sampling import examples
from tests.unit.formats.training_configs import samples as s
from tests.unit.formats.training_configs.corpus import CORPUS

ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.integers()),
)  # fmt: skip


def _reads(**files: Any) -> dict[str, Any] | None:
    """The scenario, None where it is refused with a place."""
    with tempfile.TemporaryDirectory() as folder:
        paths = s.written(Path(folder), **files)
        try:
            reads, remarks = read_training_config(*paths)
        except SilicastError as error:
            refused = error
        else:
            assert all(isinstance(line, str) for line in remarks)
            return reads
    assert refused.kind != "internal"
    assert refused.file or refused.field
    return None


@pytest.mark.parametrize("kind", ["calculon", "simumax"])
@examples(60)
@given(st.data())
def test_a_changed_table_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    tables = {
        "calculon": {"a": s.APPLICATION, "e": s.EXECUTION, "h": s.SYSTEM},
        "simumax": {"m": s.MODEL, "s": s.STRATEGY, "x": s.SYSTEM_OF_SIMUMAX},
    }[kind]
    changed = {name: dict(table) for name, table in tables.items()}
    table = changed[data.draw(st.sampled_from(sorted(changed)))]
    table[data.draw(st.sampled_from(sorted(table)))] = data.draw(ANYTHING)
    reads = _reads(**{f"{name}_json": item for name, item in changed.items()})
    if reads is not None:
        json.dumps(reads, allow_nan=False)


@examples(60)
@given(st.data())
def test_a_changed_argument_is_read_or_refused(data: st.DataObject) -> None:
    words = s.SCRIPT.split(" ")
    position = data.draw(st.integers(0, len(words) - 1))
    words[position] = data.draw(st.one_of(
        st.text(alphabet="-$(){}\"'ab19\\\n;", max_size=6), st.integers(-2, 9).map(str)
    ))  # fmt: skip
    reads = _reads(run_sh=" ".join(words))
    assert reads is None or reads["workload"]["seq_len"] >= 1


@examples(60)
@given(st.data())
def test_a_changed_job_is_read_or_refused(data: st.DataObject) -> None:
    lines = s.JOB.splitlines()
    position = data.draw(st.integers(0, len(lines) - 1))
    values = ("0", "-1", "true", '"x"', "[1]", "1.5", "{}", "99999999999999999999", "nan", "=")
    lines[position] = f"{lines[position].partition('=')[0]}= {data.draw(st.sampled_from(values))}"
    _reads(job_toml="\n".join(lines))


TABLES = {
    name: item
    for name, item in CORPUS.items()
    if all(file.endswith((".yaml", ".yml", ".json")) for file in item.files)
}


@examples(150)
@given(st.data())
def test_a_changed_field_of_any_table_is_read_or_refused(data: st.DataObject) -> None:
    item = TABLES[data.draw(st.sampled_from(sorted(TABLES)))]
    file = data.draw(st.sampled_from(sorted(item.files)))
    table = parse_yaml(item.files[file])
    holder = table
    while inner := [name for name, each in holder.items() if isinstance(each, dict) and each]:
        if data.draw(st.booleans()):
            break
        holder = holder[data.draw(st.sampled_from(inner))]
    holder[data.draw(st.sampled_from(sorted(holder)))] = data.draw(ANYTHING)
    files = {name.replace(".", "_"): text for name, text in item.files.items()}
    files[file.replace(".", "_")] = json.dumps(table)
    _reads(**files)


PYTHON = {name: item for name, item in CORPUS.items() if any(".py" in file for file in item.files)}


@examples(60)
@given(st.data())
def test_a_changed_line_of_python_is_read_or_refused(data: st.DataObject) -> None:
    item = PYTHON[data.draw(st.sampled_from(sorted(PYTHON)))]
    (text,) = item.files.values()
    lines = text.splitlines()
    position = data.draw(st.integers(0, len(lines) - 1))
    indent = len(lines[position]) - len(lines[position].lstrip())
    word = data.draw(st.sampled_from(("return 1", "x = y", "cfg.model = 3", "if a: b.c = 1", "(")))
    lines[position] = " " * indent + word
    _reads(recipes_py="\n".join(lines))
