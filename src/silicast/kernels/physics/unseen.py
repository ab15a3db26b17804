"""What is not known of kernels on a board that nobody measured.

Which boards were measured, and with what, is data (``catalog/physics/ranges.json``).

On a board whose architecture was measured but itself not (a sister), kernels of a family may all be
off together, the more the farther its rates are from those of the nearest measured board:

    device sd^2 = at^2 + (octave x distance)^2

with the distance in octaves of matrix rate, memory bandwidth and power cap; what each kernel errs
for itself is wider by a factor whose log grows with the same distance. Where nothing of the
architecture was measured, the log sd of a kernel's error is

    sd = c (1 - (1 - floor) bound / estimate)

one law for all families: a kernel that the bound explains leaves little to err about. ``floor`` is
the same for all; ``c`` is the family's and format's, drawn to that of all families. The numbers are
those of ``lab/fit_unseen.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.catalog import architecture_of, find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.power import as_built

BOARDS = "ranges"
SPREADS = "unseen"
Seen = Literal["board", "sister", "format", "nothing"]
"""What was measured: the board; another one of its architecture; the kernel's format on others;
nothing in the format.
"""


@lru_cache(maxsize=1024)
def measured_boards(family: str, dtype: str = "") -> frozenset[str]:
    """Boards that measured rows of a family were fitted on; in a format if one is given and the
    family tells formats apart.

    >>> [name in measured_boards("gemm", "bf16") for name in ("H100-SXM-80GB", "H20")]
    [True, False]
    """
    every = {
        board: {name for name in rows if name.partition(".")[0] == family}
        for board, rows in load_physics(BOARDS).architectures.items()
    }
    wanted = {family, f"{family}.{dtype}"}
    return frozenset(
        board for board, names in every.items() if names and (names & wanted or not dtype)
    )


def seen_of(family: str, dtype: str, device: Device, *, measured: bool) -> Seen:
    """What was measured of a kernel.

    Args:
        measured: constants of the architecture are from measured kernels of the family and format.
    """
    if not measured:
        family_measured = measured_boards(family, dtype) or not measured_boards(family)
        return "format" if family_measured else "nothing"
    twins = _of_architecture(family, dtype, device.architecture)
    return "board" if device.name in twins or not twins else "sister"


def was_measured(family: str, architecture: str) -> bool:
    """Whether rows of a family were measured on a board of an architecture.

    >>> was_measured("rmsnorm", "hopper"), was_measured("transpose", "hopper")
    (True, False)
    """
    return bool(_of_architecture(family, "", architecture))


def _of_architecture(family: str, dtype: str, architecture: str) -> list[str]:
    """Measured boards of an architecture: in the format, else in any."""
    for boards in (measured_boards(family, dtype), measured_boards(family)):
        same = [name for name in boards if architecture_of(name) == architecture]
        if same:
            return same
    return []


@lru_cache(maxsize=1024)
def octaves_to_measured(family: str, dtype: str, device: Device) -> float:
    """From a board to the nearest measured one of its architecture: Euclidean, in factors of two
    of matrix rate, bandwidth and power cap; 0 where it has none. A user's limits change no board.
    """
    twins = _of_architecture(family, dtype, device.architecture)
    board = device if device.base else as_built(device)
    return min((octaves_between(board, find_device(name)) for name in twins), default=0.0)


def octaves_between(one: Device, other: Device) -> float:
    """How far the rates of two boards are apart.

    >>> octaves_between(find_device("H100"), find_device("H100"))
    0.0
    """
    pairs = [(one.dram.bandwidth_bytes_per_s, other.dram.bandwidth_bytes_per_s)]
    for pipe, dtype in (("tensor", "fp16"), ("fma", "fp32")):
        rates = one.peak_per_s(pipe, dtype), other.peak_per_s(pipe, dtype)
        if min(rates) > 0.0:
            pairs.append(rates)
            break
    if one.power_cap_w and other.power_cap_w:
        pairs.append((one.power_cap_w, other.power_cap_w))
    return math.sqrt(math.fsum(math.log2(a / b) ** 2 for a, b in pairs))


@final
@dataclass(frozen=True, slots=True)
class Unseen:
    """How far kernels of a family and format are off where their board was not measured.

    Attributes:
        device_log_sd: all together; format_log_sd: where nothing in the format was measured.
        log_sd: each, far from its bound; floor: share of it that stays at the bound; 0 = as the
            family says, ``widening`` times.
    """

    device_log_sd: float = 0.0
    format_log_sd: float = 0.0
    log_sd: float = 0.0
    floor: float = 0.0
    widening: float = 1.0

    def shared(self, table: Mapping[str, float], family: str) -> dict[str, float]:
        """A family's errors by factor, with these of the board in place of its own: of a board of
        which nothing alike was measured, the law holds all that its kernels err.
        """
        if self == SEEN:
            return dict(table)
        replaced = ("device", "family") if self.log_sd else ("device",)
        by_factor = {n: v for n, v in table.items() if n.partition(":")[0] not in replaced}
        of_board = [v for n, v in table.items() if n.partition(":")[0] == "device"]
        by_factor["device"] = self.device_log_sd if self.log_sd else math.hypot(*of_board)
        by_factor["device"] = max(by_factor["device"], self.device_log_sd)
        borrowed = f"format:{family}"
        if self.format_log_sd > by_factor.get(borrowed, 0.0):
            by_factor[borrowed] = self.format_log_sd
        return by_factor

    def independent_log_sd(self, family_log_sd: F64, bound_s: F64, estimate_s: F64) -> F64:
        """Log sd of each row's own error, shape (n,); the family's where the board was measured."""
        if self.log_sd == 0.0:
            return family_log_sd if self.widening == 1.0 else family_log_sd * self.widening
        near = xp.where(estimate_s > 0.0, bound_s / xp.maximum(estimate_s, 1e-30), 1.0)
        whole = self.log_sd * (1.0 - (1.0 - self.floor) * near)
        left = whole * whole - self.device_log_sd * self.device_log_sd
        independent_log_sd: F64 = xp.sqrt(xp.maximum(left, 0.0))
        return independent_log_sd


SEEN = Unseen()


@lru_cache(maxsize=4096)
def unseen_errors(family: str, dtype: str, device: Device, *, measured: bool) -> Unseen:
    """The errors of a family and format on a board.

    Args:
        measured: constants of the architecture are from measured kernels of the family and format.
    """
    seen = seen_of(family, dtype, device, measured=measured)
    constants = {} if seen == "board" else load_physics(SPREADS).default
    if not constants:  # as the family says
        return SEEN
    if seen == "sister":
        octaves = octaves_to_measured(family, dtype, device)
        far = math.hypot(
            constants["sister.device_log_sd"], constants["sister.octave_log_sd"] * octaves
        )
        wider = constants["sister.log_widening"] + constants["sister.octave_log_widening"] * octaves
        return Unseen(far, widening=math.exp(wider))
    whole = constants["unmeasured.log_sd"]
    for name in (family, f"{family}.{dtype}"):
        whole = constants.get(f"unmeasured.{name}.log_sd", whole)
    return Unseen(
        device_log_sd=constants["unmeasured.device"] * whole,
        format_log_sd=constants["unmeasured.format_log_sd"] if seen == "nothing" else 0.0,
        log_sd=whole,
        floor=constants["unmeasured.floor"],
    )
