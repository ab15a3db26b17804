"""Training configurations of other tools, with one field changed to anything."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.formats.training_configs import read_training_config
from tests.unit.formats.training_configs import samples as s

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
@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_argument_is_read_or_refused(data: st.DataObject) -> None:
    words = s.SCRIPT.split(" ")
    position = data.draw(st.integers(0, len(words) - 1))
    words[position] = data.draw(st.one_of(
        st.text(alphabet="-$(){}\"'ab19\\\n;", max_size=6), st.integers(-2, 9).map(str)
    ))  # fmt: skip
    reads = _reads(run_sh=" ".join(words))
    assert reads is None or reads["workload"]["seq_len"] >= 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_job_is_read_or_refused(data: st.DataObject) -> None:
    lines = s.JOB.splitlines()
    position = data.draw(st.integers(0, len(lines) - 1))
    values = ("0", "-1", "true", '"x"', "[1]", "1.5", "{}", "99999999999999999999", "nan", "=")
    lines[position] = f"{lines[position].partition('=')[0]}= {data.draw(st.sampled_from(values))}"
    _reads(job_toml="\n".join(lines))
