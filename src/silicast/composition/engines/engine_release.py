"""Releases of an engine that nothing was measured of, and what is taken of their kernels."""

from __future__ import annotations

from typing import Annotated, final

import msgspec

from silicast.core.decode import Strict


@final
class UnmeasuredTable(Strict, frozen=True):
    """Releases that no pass and no constant was measured of.

    Attributes:
        before: all before this one.
        log_sd: how far the device's part of a pass is off as a whole under such a release.
        slower: architecture -> how many times as long as measured kernels those of such a release
            are taken to need; slower_log_sd: in place of ``log_sd`` there.
    """

    before: str = ""
    log_sd: float = 0.0
    slower: dict[str, Annotated[float, msgspec.Meta(ge=1.0)]] = {}
    slower_log_sd: float = 0.0

    def factor(self, architecture: str) -> float:
        """How many times as long as measured kernels those of the release are taken to need.

        >>> UnmeasuredTable("0.4", 0.26, {"hopper": 1.38}, 0.15).factor("hopper")
        1.38
        """
        return self.slower.get(architecture, 1.0)

    def log_sd_on(self, architecture: str) -> float:
        """How far the device's part of a pass is off on an architecture.

        >>> table = UnmeasuredTable("0.4", 0.26, {"hopper": 1.38}, 0.15)
        >>> table.log_sd_on("hopper"), table.log_sd_on("ada")
        (0.15, 0.26)
        """
        return self.slower_log_sd if architecture in self.slower else self.log_sd
