"""How large an input may be, and the number types that the schema is made of."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MAX_SCENARIO_BYTES = 256 << 10
"""A scenario file (TOML); long lists belong into JSON Lines or into a trace file.

Python's TOML parser reads about 1 MB/s, and a bad file is to be refused in under a second.
"""
MAX_JSON_BYTES = 4 << 20
"""One line of a batch, or a scenario, model or calibration file in JSON."""
MAX_BATCH_BYTES = 512 << 20
"""A whole batch file."""
MAX_DEPTH = 64
MAX_ENTRIES = 1_000_000
"""Values in one scenario, lists and tables counted through."""
MAX_CONTAINERS = 200_000
"""Lists and tables in one scenario."""
MAX_TEXT = 4096
"""Characters of one string."""
MAX_INTEGER = (1 << 63) - 1

MAX_TOKENS = 100_000_000
MAX_BATCH = 1_000_000
MAX_STATIC_BATCH = 65_536
"""Sequences of one static batch: each decode step keeps a number of arrays of this length."""
MAX_SIZE = 2_147_483_647
MAX_BYTES = 1 << 50
MAX_DEGREE = 65_536
MAX_GPUS = 1_000_000

Tokens = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
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
