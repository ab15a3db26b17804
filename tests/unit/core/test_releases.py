"""Releases compare as their users mean them."""

from __future__ import annotations

import pytest

from silicast.core.releases import is_before, is_within

IN_ORDER = ("0.5", "0.5.6.post2", "0.5.9", "v0.5.10", "0.5.14", "1.2.0rc5", "1.3.0rc10",
            "1.3.0rc17", "1.3.0rc20", "1.3.1")  # fmt: skip


def test_releases_are_in_order() -> None:
    for i, earlier in enumerate(IN_ORDER):
        for later in IN_ORDER[i + 1 :]:
            assert not is_before(later, earlier), (later, earlier)
            assert is_before(earlier, later), (earlier, later)


def test_a_candidate_counts_as_its_release_unless_the_bound_names_a_candidate() -> None:
    assert not is_before("1.3.0rc20", "1.3.0")
    assert is_before("1.3.0rc20", "1.3.0rc21")
    assert not is_before("1.3.0", "1.3.0rc21")


@pytest.mark.parametrize(
    ("version", "first", "until", "expected"),
    [
        ("0.15.0rc1", "", "0.15", False), ("0.15.0rc1", "0.15", "", True),
        ("1.3.0", "1.3.0rc18", "", True), ("1.3.0", "", "1.3.0rc18", False),
        ("0.14.9", "0.14", "0.15", True), ("0.15", "0.14", "0.15", False),
        ("", "0.1", "", False), ("", "", "9.9", False), ("nightly", "", "", True),
        ("0.1.dev19262", "", "0.20", False),
    ],
)  # fmt: skip
def test_a_range_holds_its_first_release_and_not_its_last(
    version: str, first: str, until: str, expected: bool
) -> None:
    assert is_within(version, first, until) is expected
