"""Names of number formats."""

from __future__ import annotations

import pytest

from silicast.core.dtypes import recipe_for
from silicast.core.errors import SilicastError


def test_an_unknown_name_points_to_the_page_that_lists_them() -> None:
    with pytest.raises(SilicastError) as caught:
        recipe_for("qqqqqqqq")
    assert caught.value.hint == "see docs/reference/dtypes.md"
