"""What a user's own measurements change: per kernel family and dtype, by how much and how sure.

A calibration is a small JSON file that can be read by eye. It holds no measurements, only what
they came to, on which device, host and stack, and from how many rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, final

import msgspec
from msgspec import Meta

from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically
from silicast.core.hashing import content_hash
from silicast.core.naming import normalise

FORMAT = 2
"""Layout of the file; the one before it, without corrections and repeats, is read too."""
MAX_FILE_BYTES = 4 << 20

_LogOffset = Annotated[float, Meta(ge=-5, le=5)]
_LogSd = Annotated[float, Meta(ge=0, le=5)]


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unknown keys are errors."""


@final
class Correction(_Strict, frozen=True):
    """A sum of small trees over dimensionless features, as
    :class:`~silicast.learning.oblivious.Trees` holds it.

    Attributes:
        edges: per feature, the first code of each bin but the first.
        questions: per tree, a (feature, bin) pair a level; leaves: per tree, its values.
    """

    edges: list[list[int]]
    questions: list[list[tuple[int, int]]]
    leaves: list[list[int]]


@final
class Repeat(_Strict, frozen=True):
    """One op that was measured itself.

    Attributes:
        op: its content hash, see :func:`silicast.learning.calibration.op_hash`.
        log_ratio: mean log of measured over predicted time, offset and correction included.
        log_sd: how far its repeats lie apart; rows: how many there were.
    """

    op: str
    log_ratio: _LogOffset
    log_sd: _LogSd
    rows: Annotated[int, Meta(ge=1)]


@final
class Offset(_Strict, frozen=True):
    """How far measured times lie from predicted ones.

    Attributes:
        family: op family ("gemm").
        dtype: canonical dtype; "" = every dtype that has no offset of its own.
        log_offset: mean of log(measured / predicted).
        log_sd: standard deviation of what is left after the offset.
        rows: measurements behind it.
        features: names of dimensionless features; ranges: per feature, the first and last code that
            was measured. Outside them the offset and the correction fade. [] = they hold anywhere.
        correction: what differs from op to op beyond the offset, None = too few rows to say.
        repeats: ops that were measured themselves.
    """

    family: str
    log_offset: _LogOffset
    log_sd: _LogSd
    rows: Annotated[int, Meta(ge=1)]
    dtype: str = ""
    features: list[str] = []
    ranges: list[tuple[int, int]] = []
    correction: Correction | None = None
    repeats: list[Repeat] = []


@final
class Scope(_Strict, frozen=True):
    """What was measured: the device, its host and the software; "" = not recorded."""

    device: str
    host: str = ""
    stack: dict[str, str] = {}


@final
class Calibration(_Strict, frozen=True):
    """Offsets for one device.

    Attributes:
        format: version of this layout.
        scope: where they hold.
        offsets: at most one per family and dtype.
        created: ISO date.
        source: how they were obtained.

    >>> c = Calibration(1, Scope("H100-SXM-80GB"), [Offset("gemm", 0.1, 0.05, 40)])
    >>> c.offset_for("gemm", "bf16").rows, c.offset_for("rmsnorm", "bf16")
    (40, None)
    """

    format: int
    scope: Scope
    offsets: list[Offset]
    created: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if self.format not in (FORMAT, FORMAT - 1):
            raise ValueError(f"calibration format {self.format}; this version reads {FORMAT}")
        keys = [(offset.family, offset.dtype) for offset in self.offsets]
        if len(set(keys)) != len(keys):
            raise ValueError("two offsets for the same family and dtype")

    @property
    def hash(self) -> str:
        """Content hash."""
        return content_hash(self)

    def offset_for(self, family: str, dtype: str) -> Offset | None:
        """The offset of a family in a dtype, else of the family in any, else None."""
        found: Offset | None = None
        for offset in self.offsets:
            if offset.family == family and offset.dtype in (dtype, ""):
                found = offset if offset.dtype or found is None else found
        return found

    def require_device(self, device: str) -> None:
        """Refuses another device than the one that was measured.

        Raises:
            SilicastError: names both.
        """
        if normalise(device) != normalise(self.scope.device):
            raise SilicastError(
                f"measured on {self.scope.device}, used for {device}",
                field="calibration",
                hint="calibrate on the device itself, or leave the calibration out",
            )


def load_calibration(path: Path) -> Calibration:
    """The calibration in a JSON file.

    Raises:
        SilicastError: unreadable, too large or not a calibration; names file and field.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SilicastError(
                "larger than 4 MiB: not a calibration", kind="limit", file=str(path)
            )
        return msgspec.json.decode(path.read_bytes(), type=Calibration)
    except OSError as error:
        raise SilicastError(f"cannot read: {error.strerror}", kind="io", file=str(path)) from None
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$").removeprefix(".")
        raise SilicastError(message, field=field, file=str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SilicastError(f"not valid JSON: {error}", file=str(path)) from None


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Writes the file in one step: a reader sees the old or the new one, never half of it.

    Raises:
        SilicastError: cannot write there.
    """
    text = msgspec.json.format(msgspec.json.encode(calibration, order="sorted"), indent=2)
    write_atomically(path, text + b"\n")
