"""Releases of software in order, and ranges of them as data files state them."""

from __future__ import annotations

import re
from functools import lru_cache

Release = tuple[int, int, int, float]

FINAL = float("inf")
_NUMBERS = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})*)(?:\.?rc(\d{1,9}))?")
_UNTAGGED = re.compile(r"v?0\.1\.dev")
"""How setuptools-scm names a build of a checkout without tags."""


@lru_cache(maxsize=4096)
def release_of(version: str) -> Release | None:
    """Major, minor, patch and release candidate of a version; None where it names no release.

    >>> release_of("v0.15.1rc2"), release_of("1.3") == (1, 3, 0, FINAL)
    ((0, 15, 1, 2), True)
    >>> release_of("nightly"), release_of("0.1.dev19262")
    (None, None)
    """
    match = _NUMBERS.match(version.strip())
    if match is None or _UNTAGGED.match(version.strip()):
        return None
    major, minor, patch, *_ = (*map(int, match[1].split(".")), 0, 0)
    return major, minor, patch, int(match[2]) if match[2] else FINAL


def is_before(version: str, bound: str) -> bool:
    """Whether a version is earlier than a bound, in the numbers that the bound states.

    >>> is_before("0.15.0rc1", "0.15"), is_before("1.3.0rc17", "1.3.0rc18"), is_before("", "0.15")
    (False, True, False)
    """
    pair = _stated_numbers(version, bound)
    return pair is not None and pair[0] < pair[1]


def is_after(version: str, bound: str) -> bool:
    """Whether a version is later than a bound, in the numbers that the bound states.

    >>> is_after("0.33.2", "0.33"), is_after("0.34", "0.33"), is_after("19", "0.33")
    (False, True, True)
    """
    pair = _stated_numbers(version, bound)
    return pair is not None and pair[0] > pair[1]


@lru_cache(maxsize=4096)
def _stated_numbers(version: str, bound: str) -> tuple[tuple[float, ...], ...] | None:
    """Numbers of a version and of a bound, as many as the bound states; None where one of the two
    names no release.
    """
    release, limit = release_of(version), release_of(bound)
    if release is None or limit is None:
        return None
    count = min(bound.count(".") + 1, 3) if limit[3] == FINAL else 4
    return release[:count], limit[:count]


def is_within(version: str, first: str, until: str) -> bool:
    """Whether a version is in the range from ``first`` on and before ``until``; "" = no bound. A
    version that names no release is in no range that has a bound.

    >>> is_within("0.5.14.post1", "0.5.14", ""), is_within("", "", "0.15"), is_within("", "", "")
    (True, False, True)
    """
    if first and (release_of(version) is None or is_before(version, first)):
        return False
    return not until or is_before(version, until)
