"""Which replica serves a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from silicast.core.errors import unknown_name
from silicast.serving.traffic.requests import Requests

if TYPE_CHECKING:
    from silicast.serving.simulation.replica import Replica


class Router(ABC):
    """Chooses a replica for each request as it comes.

    Attributes:
        name: as scenarios name it.
    """

    name: ClassVar[str]

    def __init__(self, requests: Requests, seed: int = 0) -> None:
        self.requests, self.rng = requests, np.random.default_rng(seed)

    @abstractmethod
    def choose(self, request: int, replicas: Sequence[Replica]) -> Replica:
        """The replica for a request; ``replicas`` are the same at every call."""


@final
class RoundRobin(Router):
    """Sends requests to the replicas in turn."""

    name: ClassVar[str] = "round_robin"
    _turn = 0

    def choose(self, request: int, replicas: Sequence[Replica]) -> Replica:  # noqa: ARG002
        self._turn += 1
        return replicas[(self._turn - 1) % len(replicas)]


@final
class RandomRouter(Router):
    """At random, each as likely."""

    name: ClassVar[str] = "random"

    def choose(self, request: int, replicas: Sequence[Replica]) -> Replica:  # noqa: ARG002
        return replicas[int(self.rng.integers(len(replicas)))]


@final
class LeastLoaded(Router):
    """The fewest requests that are not answered; the first of equals."""

    name: ClassVar[str] = "least_loaded"

    def choose(self, request: int, replicas: Sequence[Replica]) -> Replica:  # noqa: ARG002
        return min(replicas, key=lambda each: each.outstanding)


@final
class SessionRouter(Router):
    """All turns of a conversation to one replica; conversations in turn."""

    name: ClassVar[str] = "session"

    def __init__(self, requests: Requests, seed: int = 0) -> None:
        super().__init__(requests, seed)
        self._place: dict[int, int] = {}

    def choose(self, request: int, replicas: Sequence[Replica]) -> Replica:
        before = int(self.requests.after[request])
        position = self._place[before] if before >= 0 else len(self._place)
        self._place[request] = position
        return replicas[position % len(replicas)]


@final
class PrefixAware(Router):
    """The replica that last served the longest beginning of the prompt, while its load is near the
    least; else the least loaded.

    Attributes:
        SLACK, SHARE: it may have so many requests more, or so many times as many.
    """

    name: ClassVar[str] = "prefix_aware"
    SLACK, SHARE = 8, 1.5

    def __init__(self, requests: Requests, seed: int = 0) -> None:
        super().__init__(requests, seed)
        self._served: dict[int, int] = {}

    def choose(self, request: int, replicas: Sequence[Replica]) -> Replica:
        least = min(range(len(replicas)), key=lambda each: replicas[each].outstanding)
        load = replicas[least].outstanding
        chain = self._chain(request)
        indices = [self._served[link] for link in reversed(chain) if link in self._served]
        chosen = indices[0] if indices else least
        if replicas[chosen].outstanding > max(load + self.SLACK, load * self.SHARE):
            chosen = least
        self._served |= dict.fromkeys(chain, chosen)
        return replicas[chosen]

    def _chain(self, request: int) -> list[int]:
        """A number for each beginning of the prompt that whole segments make."""
        content = self.requests.content
        if content is None:
            return []
        chain, link = [], 0
        for segment, tokens in content.prompt(request):
            link = hash((link, segment, tokens))
            chain.append(link)
        return chain


ROUTERS: dict[str, type[Router]] = {
    each.name: each for each in (RoundRobin, RandomRouter, LeastLoaded, SessionRouter, PrefixAware)
}


def router_named(name: str) -> type[Router]:
    """The router of a name.

    Raises:
        SilicastError: there is none.
    """
    if name not in ROUTERS:
        raise unknown_name(f"no router {name[:80]!r}", "router", f"known: {', '.join(ROUTERS)}")
    return ROUTERS[name]
