"""How large an input may be, and the number types that the schema is made of."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from silicast.core.plain_data import MAX_ENTRIES

MAX_BATCH_BYTES = 512 << 20
"""A whole batch file."""

MAX_TOKENS = 100_000_000
MAX_BATCH = 1_000_000
MAX_STATIC_BATCH = 65_536
"""Sequences of one static batch: each decode step keeps a number of arrays of this length."""
MAX_SIZE = 2_147_483_647
MAX_BYTES = 1 << 50
MAX_DEGREE = 65_536
MAX_GPUS = 1_000_000

Tokens = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
Past = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
Batch = Annotated[int, Meta(ge=1, le=MAX_BATCH)]
Size = Annotated[int, Meta(ge=1, le=MAX_SIZE)]
Count = Annotated[int, Meta(ge=1, le=MAX_BATCH)]
Degree = Annotated[int, Meta(ge=1, le=MAX_DEGREE)]
Gpus = Annotated[int, Meta(ge=1, le=MAX_GPUS)]
Bytes = Annotated[int, Meta(ge=1, le=MAX_BYTES)]
Positive = Annotated[float, Meta(gt=0, le=1e15)]
NonNegative = Annotated[float, Meta(ge=0, le=1e15)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
TokenList = Annotated[list[Tokens], Meta(min_length=1, max_length=MAX_ENTRIES)]
