"""What shipped numbers were made from, as content hashes: a change of any makes them stale."""

from __future__ import annotations

from typing import final

from silicast.core.decode import Strict


@final
class Provenance(Strict, frozen=True):
    """Written into a card by ``make artefacts``, which makes again what no longer agrees.

    Attributes:
        content: hash of the numbers that the card describes.
        code: hash of the code that made them, without comments and docstrings.
        data: measured table, relative to the data folder -> hash of its bytes.
        constants: artefact that was read (``physics/gemm``) -> hash of its numbers.
        accepted: hash of later code that was found to make the same numbers; "" = none.
    """

    content: str
    code: str
    data: dict[str, str]
    constants: dict[str, str]
    accepted: str = ""
