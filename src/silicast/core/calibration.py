"""What a user's own measurements change: kernels by family and dtype, host constants, collectives
and whole models, by how much and how sure.

A calibration is a small JSON file that can be read by eye. It holds no measurements, only what
they came to, on which device, host and stack, and from how many rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated, final

import msgspec
from msgspec import Meta

from silicast.core.calibrated import (
    Blended,
    CollectiveCurve,
    FittedCases,
    HeldOutRows,
    HostConstant,
    InModels,
)
from silicast.core.decode import Strict, decode_json
from silicast.core.files import read_bounded, write_atomically
from silicast.core.hashing import content_hash
from silicast.core.naming import normalise
from silicast.core.plain_data import check_keys

FORMAT = 6
"""Layout of the file; those before it hold less and are read too."""
KERNELS_ALONE = 3
"""The last layout that speaks of kernels alone."""
OLDEST = 1
MAX_FILE_BYTES = 16 << 20
PAGE = "docs/explanation/calibration.md"
AGAIN = "make it again with silicast calibrate"

_LogOffset = Annotated[float, Meta(ge=-5, le=5)]
_LogSd = Annotated[float, Meta(ge=0, le=5)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Weight = Annotated[float, Meta(ge=-10_000, le=10_000)]
_Code = Annotated[int, Meta(ge=0, le=65_535)]
_Leaf = Annotated[int, Meta(ge=-32_768, le=32_767)]
_Question = Annotated[int, Meta(ge=0, le=255)]


@final
class TreeCorrection(Strict, frozen=True):
    """A sum of small trees over dimensionless features, as
    :class:`~silicast.learning.forest.Trees` holds it.

    Attributes:
        edges: per feature, the first code of each bin but the first.
        questions: per tree, a (feature, bin) pair a level; leaves: per tree, its values.
    """

    edges: list[list[_Code]]
    questions: list[list[tuple[Annotated[int, Meta(ge=0)], _Question]]]
    leaves: list[list[_Leaf]]

    def __post_init__(self) -> None:
        depths = {len(tree) for tree in self.questions}
        leaves = {len(tree) for tree in self.leaves}
        largest_feature = max((f for tree in self.questions for f, _ in tree), default=0)
        whole = len(depths) == 1 and leaves == {1 << depth for depth in depths}
        if not whole or max(depths) > 8 or len(self.questions) != len(self.leaves):
            raise ValueError(f"trees of depths {sorted(depths)} with {sorted(leaves)} leaves")
        if largest_feature >= len(self.edges) or any(len(row) > 255 for row in self.edges):
            raise ValueError(
                f"a tree asks for feature {largest_feature}, there are {len(self.edges)}"
            )


@final
class Interpolation(Strict, frozen=True):
    """What measured kernels say of those between them: see
    :mod:`silicast.learning.interpolation`.

    Attributes:
        coordinates: features that kernels are neighbours by, and "time".
        scales: one over the length of each; anchors: scaled coordinates of measured kernels, and
            weights, how much each adds to the kernels near it.
        trend: "constant", "share:<resource>" or "wave" -> by how much it is slower, in logs.
        field_log_sd, noise_log_sd: of what the trend leaves, and of what the anchors leave.
    """

    coordinates: list[str]
    scales: list[Annotated[float, Meta(ge=0, le=1e6)]]
    anchors: list[list[Annotated[float, Meta(ge=-1e9, le=1e9)]]]
    weights: list[_Weight]
    trend: dict[str, _LogOffset]
    field_log_sd: _LogSd
    noise_log_sd: _LogSd

    def __post_init__(self) -> None:
        width = len(self.coordinates)
        if len(self.scales) != width or any(len(row) != width for row in self.anchors):
            raise ValueError(f"anchors or scales not of the {width} coordinates")
        if len(self.weights) != len(self.anchors):
            raise ValueError(f"{len(self.weights)} weights for {len(self.anchors)} anchors")


@final
class Repeat(Strict, frozen=True):
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
class Offset(Strict, frozen=True):
    """How far measured times lie from predicted ones.

    Attributes:
        family: op family ("gemm").
        dtype: canonical dtype; "" = every dtype that has no offset of its own.
        log_offset: mean of log(measured / predicted).
        log_sd: standard deviation of what is left after the offset.
        rows: measurements behind it.
        features: names of dimensionless features; ranges: per feature, the first and last code that
            was measured. Outside them the offset and the correction fade. [] = they hold anywhere.
        interpolation, correction: two views of what differs from op to op beyond the offset, None =
            too few rows to say; they are mixed, interpolated_share of the first.
        repeats: ops that were measured themselves.
    """

    family: str
    log_offset: _LogOffset
    log_sd: _LogSd
    rows: Annotated[int, Meta(ge=1)]
    dtype: str = ""
    features: list[str] = []
    ranges: list[tuple[int, int]] = []
    correction: TreeCorrection | None = None
    repeats: list[Repeat] = []
    interpolation: Interpolation | None = None
    interpolated_share: _Share = 0.0

    def __post_init__(self) -> None:
        if len(self.ranges) not in (0, len(self.features)):
            raise ValueError(f"{len(self.ranges)} ranges for {len(self.features)} features")
        if self.correction is not None and len(self.correction.edges) != len(self.features):
            raise ValueError(
                f"a correction of {len(self.correction.edges)} features, there are "
                f"{len(self.features)}"
            )


@final
class Scope(Strict, frozen=True):
    """What was measured: the device, its host and the software; "" = not recorded."""

    device: str
    host: str = ""
    stack: dict[str, str] = {}


@final
class Calibration(Strict, frozen=True):
    """What was measured on one device.

    Attributes:
        format: version of this layout.
        scope: where it holds.
        offsets: of kernels, at most one per family and dtype.
        created: ISO date.
        source: how they were obtained.
        version: of the program that fitted it.
        upstream: hash of the shipped constants and corrections whose predictions it corrects; "" =
            not recorded (layouts before 5).
        blends: of whole networks from a few samples, at most one a space (layouts from 6).
        checksum: hash of all else, "" = written by hand; a file that was changed is refused.
        constants: of the host, at most one a name and engine.
        collectives: at most one per op, implementation, launch, number of devices and of nodes.
        models: at most one an engine.
        left_out: how good it is, by rows that were not fitted.
        fitted: what ran among its rows.

    >>> c = Calibration(1, Scope("H100-SXM-80GB"), [Offset("gemm", 0.1, 0.05, 40)])
    >>> c.offset_for("gemm", "bf16").rows, c.offset_for("rmsnorm", "bf16")
    (40, None)
    """

    format: int
    scope: Scope
    offsets: list[Offset]
    created: str = ""
    source: str = ""
    version: str = ""
    checksum: str = ""
    constants: list[HostConstant] = []
    collectives: list[CollectiveCurve] = []
    models: list[InModels] = []
    left_out: list[HeldOutRows] = []
    fitted: FittedCases = FittedCases()
    upstream: str = ""
    blends: list[Blended] = []

    def __post_init__(self) -> None:
        if not OLDEST <= self.format <= FORMAT:
            raise ValueError(
                f"calibration format {self.format}; this version reads {OLDEST} to {FORMAT}"
            )
        if self.checksum and self.checksum != self._hashed():
            raise ValueError("was changed after it was written: its checksum is another")
        _alone([(o.family, o.dtype) for o in self.offsets], "offsets for the same family and dtype")
        _alone([(c.constant, c.engine) for c in self.constants], "values of a constant")
        _alone(
            [(c.op, c.implementation, c.launch, c.gpus, c.nodes) for c in self.collectives],
            "curves of a collective",
        )
        _alone([model.engine for model in self.models], "factors of whole models of an engine")
        _alone([blend.space for blend in self.blends], "blends of a space")

    @property
    def hash(self) -> str:
        """Hash of the content, without the checksum."""
        return self.checksum or self._hashed()

    def _hashed(self) -> str:
        content = msgspec.structs.asdict(self) | {"checksum": ""}
        if self.format <= KERNELS_ALONE:
            content = {name: value for name, value in content.items() if name not in _SINCE_4}
        for since, name in ((5, "upstream"), (6, "blends")):
            if self.format < since:
                del content[name]
        return content_hash(content)

    @property
    def signed(self) -> Calibration:
        """With the checksum of its content."""
        return msgspec.structs.replace(self, checksum=self.hash)

    def offset_for(self, family: str, dtype: str) -> Offset | None:
        """The offset of a family in a dtype, else of the family in any, else None."""
        result: Offset | None = None
        for offset in self.offsets:
            if offset.family == family and offset.dtype in (dtype, ""):
                result = offset if offset.dtype or result is None else result
        return result

    def is_of(self, device: str) -> bool:
        """Whether it was measured on the device of that name; spelling does not count."""
        return normalise(device) == normalise(self.scope.device)


_SINCE_4 = ("constants", "collectives", "models", "left_out", "fitted")


def _alone(keys: Sequence[Hashable], what: str) -> None:
    """Raises ValueError if one of ``keys`` is there twice."""
    if len(set(keys)) != len(keys):
        raise ValueError(f"two {what}")


def load_calibration(path: Path) -> Calibration:
    """The calibration in a JSON file.

    Raises:
        SilicastError: unreadable, too large or not a calibration; names file and field.
    """
    content = read_bounded(path, MAX_FILE_BYTES, "a calibration")
    check_keys(content, str(path))
    return decode_json(content, Calibration, file=str(path), page=PAGE, hint=AGAIN)


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Writes the file in one step: a reader sees the old or the new one, never half of it.

    Raises:
        SilicastError: cannot write there.
    """
    text = msgspec.json.format(msgspec.json.encode(calibration, order="sorted"), indent=2)
    write_atomically(path, text + b"\n")
