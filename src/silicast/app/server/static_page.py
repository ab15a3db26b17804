"""The page as one file that needs no server: its answers stand in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import msgspec

from silicast.app.server.assets import asset
from silicast.app.server.setups import PageSetup, scenarios_of
from silicast.scenario.answer import Answer, Refusal, Reply
from silicast.scenario.run import reply_to

STYLE = b'<link rel="stylesheet" href="page.css">'
SCRIPT = b'<script src="page.js"></script>'


def _shown(reply: Reply, *, is_first: bool) -> Reply:
    """What the page shows of an answer: of the first one its parts and memory too."""
    if is_first or not isinstance(reply, Answer):
        return reply
    knee = {name: reply.why[name] for name in ("knee",) if name in reply.why}
    return msgspec.structs.replace(reply, why=knee)


@final
@dataclass(frozen=True)
class PageEntry:
    """A setup of the page, the scenarios that it asks, and their answers."""

    setup: PageSetup
    cases: list[dict[str, Any]]
    answers: list[Reply]

    @property
    def refused(self) -> Refusal | None:
        """Why it has no answer at all; None = it has one."""
        refusals = [reply for reply in self.answers if isinstance(reply, Refusal)]
        return refusals[0] if len(refusals) == len(self.answers) else None


def page_entries(setups: Sequence[PageSetup], told: Callable[[int], None]) -> list[PageEntry]:
    """Answers to some setups.

    Args:
        told: is called with the number of scenarios that were answered.
    """
    entries: list[PageEntry] = []
    done = 0
    for setup in setups:
        cases, answers = scenarios_of(setup), list[Reply]()
        for case in cases:
            answers.append(_shown(reply_to(case), is_first=not answers))
            done += 1
            told(done)
        entries.append(PageEntry(setup, cases, answers))
    return entries


def static_page(entries: Sequence[PageEntry]) -> bytes:
    """The page with answers to some setups."""
    data = msgspec.json.encode(entries).replace(b"<", b"\\u003c")
    page = asset("page.html").replace(STYLE, b"<style>" + asset("page.css") + b"</style>")
    held = b'<script type="application/json" id="held">' + data + b"</script>"
    return page.replace(SCRIPT, held + b"<script>" + asset("page.js") + b"</script>")
