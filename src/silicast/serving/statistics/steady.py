"""Which part of an open run shows its steady state, and whether the queue keeps up.

A run starts with an empty server and ends with one that drains; neither shows how requests fare
that come day and night. The window leaves out requests sent in the first and in the last mean
end-to-end time: those find fewer requests beside them, or have fewer follow them. At the start it
leaves out more where the marginal standard error rule asks for it (MSER-5: White, "An effective
truncation heuristic for bias reduction in simulation output", Simulation 69, 1997): the cut that
makes the standard error of the remaining batch means the smallest. Each end loses at most a
quarter of the requests.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.serving.statistics.records import NANO, Records

MOST_CUT: Final = 0.25
"""Share of the requests that either end may lose."""
FEWEST: Final = 40
"""Requests below which no part of a run is told apart."""
BATCH: Final = 5
GROWTH: Final = 0.05
"""How much longer requests may wait, per second that they come later, in a queue that keeps up."""


def steady_window(records: Records) -> tuple[int, int] | None:
    """First and last moment of the steady state of a complete run, nanoseconds; None: too short."""
    rows = np.argsort(records.sent_ns, kind="stable")
    count = len(rows)
    if count < FEWEST or (records.done_ns < 0).any():
        return None
    sent = records.sent_ns[rows]
    taken = float((records.done_ns - records.sent_ns).mean())
    most = int(count * MOST_CUT)
    filled = int(np.searchsorted(sent, sent[0] + taken))
    warm = min(max(filled, BATCH * truncation(batch_means(_slowness(records, rows)))), most)
    drained = max(int(np.searchsorted(sent, sent[-1] - taken)), count - most)
    return int(sent[warm]), int(sent[drained])


def saturated_window(records: Records) -> tuple[int, int]:
    """First and last moment, nanoseconds, in which a server works at what it sustains while the
    queue of a complete run grows: from the cut of MSER-5 in the times between answers, until the
    last request begins.
    """
    done = np.sort(records.done_ns)
    last = int(records.scheduled_ns.max())
    gaps = np.diff(done[done < last]).astype(np.float64)
    first = (
        int(done[BATCH * truncation(batch_means(gaps))]) if len(gaps) >= FEWEST else int(done[0])
    )
    return first, max(last, first + 1)


def batch_means(values: F64) -> F64:
    """Means of consecutive values, :data:`BATCH` each; those beyond the last batch are left out.

    >>> batch_means(np.arange(11.0)).tolist()
    [2.0, 7.0]
    """
    whole = len(values) // BATCH * BATCH
    means: F64 = values[:whole].reshape(-1, BATCH).mean(axis=1)
    return means


def truncation(means: F64) -> int:
    """How many of the first means to leave out, at most half of them: what remains then has the
    least sum of squared deviations over its squared number.

    >>> truncation(np.array([9.0, 8.0, 1.0, 1.0, 2.0, 1.0, 2.0, 1.0]))
    2
    """
    remaining = np.arange(len(means), 0, -1)
    sums, squares = (np.cumsum(each[::-1])[::-1] for each in (means, means * means))
    scores = np.maximum(squares - sums * sums / remaining, 0.0) / (remaining * remaining)
    return int(np.argmin(scores[: len(means) // 2 + 1]))


def _slowness(records: Records, rows: I64) -> F64:
    """First token and later ones of each request, each as a multiple of its mean."""
    first = (records.first_ns - records.sent_ns)[rows].astype(np.float64)
    tokens = np.maximum(records.requests.output_tokens[rows] - 1, 1)
    later = (records.done_ns - records.first_ns)[rows] / tokens
    slowness: F64 = first / max(first.mean(), 1.0) + later / max(later.mean(), 1.0)
    return slowness


def queue_growth(records: Records) -> float:
    """How much longer requests take, per second that they come later: between the third and the
    last fifth of the requests. Above saturation 1 - 1 / load.

    The larger of what their first steps wait, and what answers of mean length take: as long as more
    and more requests run at once none waits, but each of them takes longer.
    """
    rows = records.finished
    rows = rows[np.argsort(records.sent_ns[rows], kind="stable")]
    if len(rows) < BATCH:
        return 0.0
    fifths = np.array_split(rows, 5)
    parts = fifths[2], fifths[4]
    later = np.maximum(records.requests.output_tokens - 1, 0)
    mean_tokens = float(later[rows].mean())

    def taken(part: I64) -> float:
        """Of an answer of mean length; a part's paces together, since short answers differ much."""
        decoded = int((records.done_ns - records.first_ns)[part].sum())
        pace = decoded / max(int(later[part].sum()), 1)
        return float((records.first_ns - records.sent_ns)[part].mean()) + pace * mean_tokens

    sent = [float(records.sent_ns[part].mean()) for part in parts]
    waits = [float((records.scheduled_ns - records.sent_ns)[part].mean()) for part in parts]
    grown = max(waits[1] - waits[0], taken(parts[1]) - taken(parts[0]))
    return grown / max(sent[1] - sent[0], 1.0)


def keeps_up(records: Records) -> bool:
    """Whether requests are answered as fast as they come."""
    return queue_growth(records) <= GROWTH


def offered_span_s(records: Records) -> float:
    """Seconds in which all requests come."""
    return int(records.requests.arrival_ns.max()) * NANO
