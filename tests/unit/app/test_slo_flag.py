"""The flag that states an objective."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.app.slo_flag import slo_of
from silicast.core.errors import SilicastError
from silicast.scenario.reading.numbers import MILLISECONDS, milliseconds
from silicast.scenario.workloads import SloTable

STATISTICS = [name for name in SloTable.__struct_fields__ if name.endswith("_ms")]


@given(
    st.dictionaries(
        st.sampled_from(STATISTICS),
        st.tuples(st.integers(1, 10**6), st.sampled_from(sorted(MILLISECONDS))),
        min_size=1,
    )
)
def test_every_statistic_of_a_scenario_can_be_stated(wanted: dict[str, tuple[int, str]]) -> None:
    """What the flag says is what the table holds."""
    words = (f"{name.removesuffix('_ms')}={n}{unit}" for name, (n, unit) in wanted.items())
    slo = slo_of(",".join(words))
    assert slo == {name: n * MILLISECONDS[unit] for name, (n, unit) in wanted.items()}
    msgspec.convert(slo, SloTable)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no statistic"),
        ("quantile=0.9", "names no statistic"),
        ("ttft_p99", "expected statistic=duration"),
        ("ttft_p42=1s", "unknown statistic"),
        ("latency=1s", "unknown statistic"),
        ("ttft_p99=1", "has no unit"),
        ("ttft_p99=1min", "unit 'min'"),
        ("ttft_p99=0ms", "not above zero"),
        ("ttft_p99=-1ms", "expected a duration"),
        ("ttft_p99=fast", "expected a duration"),
        ("ttft_p99=1e999s", "not above zero"),
        ("ttft_p99=1s,ttft_p99_ms=2s", "given twice"),
        ("ttft=1s,quantile=2", "at most 1"),
        ("ttft=1s,quantile=nan", "at most 1"),
    ],
)
def test_what_is_no_objective_is_said_so(text: str, said: str) -> None:
    """Each error names the flag and what to do."""
    with pytest.raises(SilicastError, match=said) as caught:
        slo_of(text)
    assert caught.value.field == "--slo"
    assert caught.value.hint


def test_units_may_be_written_with_a_space_or_a_mu() -> None:
    """As people write them."""
    assert milliseconds("50 µs", "--slo") == milliseconds("50us", "--slo") == 0.05


@pytest.mark.parametrize("slo", [{"ttft_p99_ms": 1000}, ["ttft_p99=1s"], 5])
def test_what_is_no_text_is_refused_from_python_too(slo: object) -> None:
    with pytest.raises(SilicastError, match="expected a text") as refused:
        slo_of(slo)
    assert refused.value.field == "--slo"
