"""What a server allows: to whom it answers, and how much."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from typing import final

from silicast.core.errors import SilicastError
from silicast.runner.sweep_jobs import SweepLimits

TOKEN = "SILICAST_TOKEN"  # noqa: S105 - the name of a variable of the environment
FEWEST_LETTERS = 16
MOST_PORT = 65_535
MOST_WAITING = 1_000_000
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1", "testserver")


@final
@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Limits of a server.

    Attributes:
        host, port: where it listens; token: that requests must carry, "" = none.
        processes: that answer; waiting: requests that wait for one, more are refused (429);
        wait_s: that they wait (429).
        seconds: of one request's answers, and until its body is there, at most (408).
        body_bytes: of a request; points: scenarios of a batch (413).
        memory_bytes: of address space of each process; sweeps: limits of sweeps.
        connections: that are open at the same time; more are refused (429).
    """

    host: str = "127.0.0.1"
    port: int = 8421
    token: str = ""
    processes: int = 2
    waiting: int = 32
    wait_s: float = 20.0
    seconds: float = 20.0
    body_bytes: int = 1 << 20
    points: int = 1000
    memory_bytes: int = 4 << 30
    sweeps: SweepLimits = SweepLimits()
    connections: int = 256

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __post_init__(self) -> None:
        """Refuses an address that others reach without a token, and a token that can be guessed.

        Raises:
            SilicastError: names the flag.
        """
        if not self.is_local and not self.token:
            raise SilicastError(
                f"{self.host} can be reached from elsewhere, and there is no token",
                field="--host",
                hint=f"set {TOKEN} to a long random word, or listen on 127.0.0.1",
            )
        if self.token and len(self.token) < FEWEST_LETTERS:
            raise SilicastError(
                f"a token of {len(self.token)} letters can be guessed",
                field=TOKEN,
                hint=f"use {FEWEST_LETTERS} and more, as of `openssl rand -hex 16`",
            )
        if self.sweeps.points < 1:
            raise SilicastError(
                f"expected 1 or more, found {self.sweeps.points}", field="--sweep-points"
            )
        for name in ("processes", "seconds", "body_bytes", "points"):
            if not 0 < getattr(self, name) < math.inf:
                raise SilicastError(
                    f"expected a finite number above 0, found {getattr(self, name)}",
                    field=f"--{name.replace('_', '-')}",
                )
        for name, most in (("port", MOST_PORT), ("waiting", MOST_WAITING)):
            if not 0 <= getattr(self, name) <= most:
                raise SilicastError(
                    f"expected 0 to {most:,}, found {getattr(self, name)}", field=f"--{name}"
                )
