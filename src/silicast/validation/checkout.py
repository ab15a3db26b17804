"""What an installed package lacks: the scorecard is part of the repository alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from silicast.core.errors import SilicastError

ONLY_IN_CHECKOUT = ("silicast.validation.scorecard", "silicast.report.scorecard")


@contextmanager
def needs_checkout() -> Iterator[None]:
    """Turns imports that fail inside into errors that say what to do.

    Raises:
        SilicastError: the scorecard, or pyarrow, is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.startswith(ONLY_IN_CHECKOUT):
            raise SilicastError(
                "the measured suites are not part of the installed package",
                kind="io",
                hint="run this in a checkout of the repository; FILE.toml and --measured FILE work",
            ) from None
        if missing.partition(".")[0] == "pyarrow":
            raise SilicastError(
                "reading measured tables needs pyarrow, which is not installed",
                kind="io",
                hint="pip install 'silicast[data]'",
            ) from None
        raise
