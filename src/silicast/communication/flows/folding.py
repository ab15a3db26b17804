"""Ranks, messages and links that are alike are simulated as one.

Colours are refined until they are stable: a message's is of its round, its size, its ends and its
links, a rank's of its messages, a link's of the messages over it. Where all of one colour see the
same colours around them (an equitable partition), max-min fair rates and all times are the same
within a colour, so that one of each is enough; how many messages of a colour cross a link is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.communication.flows.job import Job
from silicast.communication.flows.product import Fabric, Routes
from silicast.core.numerics import F64, I64

U64 = NDArray[np.uint64]


@final
@dataclass(frozen=True, eq=False)
class Classes:
    """The network and its jobs with one of each class of messages, ranks and links.

    Attributes:
        round_of: number of the round of each message class, counted over all jobs.
        sender, receiver: rank class of its ends.
        size: bytes; latency_s: of its whole way.
        link, message, count: crossings: how many messages of a class cross a link of a class.
        capacity: bytes/s of each link class.
        one_link: a link of each class.
        job_of: the job of each rank class.
        messages: how many messages they stand for.
    """

    round_of: I64
    sender: I64
    receiver: I64
    size: F64
    latency_s: F64
    link: I64
    message: I64
    count: F64
    capacity: F64
    one_link: I64
    job_of: I64
    messages: int


@final
@dataclass(frozen=True, eq=False)
class _Messages:
    """All messages of one run of every round; ranks are numbered over all jobs."""

    round_of: I64
    sender: I64
    receiver: I64
    size: F64
    routes: Routes
    job_of: I64


def classes_of(fabric: Fabric, jobs: Sequence[Job], *, fold: bool = True) -> Classes:
    """The classes of checked jobs; without ``fold`` each is alone in its class.

    Raises:
        SilicastError: a message's target cannot be reached.
    """
    every = _messages(fabric, jobs)
    used = np.unique(every.routes.links)
    link = np.searchsorted(used, every.routes.links)
    capacity, latency = fabric.capacity[used], fabric.latency_s[used]
    ranks = len(every.job_of)
    if fold:
        message_of, rank_of, link_of = _refined(every, link, capacity, latency)
    else:
        message_of = np.arange(len(every.size), dtype=np.int64)
        rank_of, link_of = np.arange(ranks), np.arange(len(used))
    _, one_message = np.unique(message_of, return_index=True)
    _, one_rank = np.unique(rank_of, return_index=True)
    _, one_link = np.unique(link_of, return_index=True)
    seen = np.zeros(len(used), dtype=np.bool_)
    seen[one_link] = True
    crossing = seen[link]
    pairs = link_of[link[crossing]] * len(one_message) + message_of[every.routes.ways[crossing]]
    pair, count = np.unique(pairs, return_counts=True)
    ways = every.routes.ways
    total: F64 = np.bincount(ways, latency[link], len(every.size)).astype(np.float64)
    return Classes(
        round_of=every.round_of[one_message],
        sender=rank_of[every.sender[one_message]],
        receiver=rank_of[every.receiver[one_message]],
        size=every.size[one_message],
        latency_s=total[one_message],
        link=pair // max(len(one_message), 1),
        message=pair % max(len(one_message), 1),
        count=count.astype(np.float64),
        capacity=capacity[one_link],
        one_link=used[one_link],
        job_of=every.job_of[one_rank],
        messages=len(every.size),
    )


def _messages(fabric: Fabric, jobs: Sequence[Job]) -> _Messages:
    none = np.zeros(0, dtype=np.int64)
    round_of, sender, receiver, indices = [none], [none], [none], [none]
    size, first, number = [np.zeros(0)], 0, 0
    target = [none]
    for job in jobs:
        position = np.array(job.ranks, dtype=np.int64)
        for round_ in job.rounds:
            round_of.append(np.full(len(round_.source), number, dtype=np.int64))
            sender.append(round_.source + first)
            receiver.append(round_.target + first)
            indices.append(position[round_.source])
            target.append(position[round_.target])
            size.append(round_.size)
            number += 1
        first += len(job.ranks)
    job_of = np.repeat(np.arange(len(jobs), dtype=np.int64), [len(job.ranks) for job in jobs])
    routes = fabric.route(np.concatenate(indices), np.concatenate(target))
    return _Messages(
        np.concatenate(round_of),
        np.concatenate(sender),
        np.concatenate(receiver),
        np.concatenate(size),
        routes,
        job_of,
    )


def _refined(every: _Messages, link: I64, capacity: F64, latency: F64) -> tuple[I64, I64, I64]:
    """Class numbers of messages, ranks and links."""
    ways = every.routes.ways
    first = _mixed(every.round_of.astype(np.uint64), every.size.view(np.uint64))
    message = first
    rank = _mixed(every.job_of.astype(np.uint64), np.uint64(1))
    wire = _mixed(capacity.view(np.uint64), latency.view(np.uint64))
    count = 0
    while True:
        over = _sum(_mixed(wire[link], np.uint64(2)), ways, len(first))
        message = _mixed(_mixed(first, over), _mixed(rank[every.sender], rank[every.receiver]))
        out = _sum(_mixed(message, np.uint64(3)), every.sender, len(rank))
        into = _sum(_mixed(message, np.uint64(4)), every.receiver, len(rank))
        rank = _mixed(rank, _mixed(out, into))
        wire = _mixed(wire, _sum(_mixed(message[ways], np.uint64(5)), link, len(wire)))
        now = sum(len(np.unique(classes)) for classes in (message, rank, wire))
        if now == count:
            return _by_first(message), _by_first(rank), _by_first(wire)
        count = now


def _by_first(colour: U64) -> I64:
    """Class numbers of colours, in the order in which they occur."""
    _, first, number = np.unique(colour, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    result: I64 = rank[number]
    return result


def _sum(values: U64, at: I64, count: int) -> U64:
    """Sums modulo 2**64: the same for the same values in any order."""
    u64 = np.zeros(count, dtype=np.uint64)
    np.add.at(u64, at, values)
    return u64


def _mixed(a: U64, b: U64 | np.uint64) -> U64:
    """A hash of pairs, the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        x = a * np.uint64(0x9E3779B97F4A7C15) + (b ^ (b >> np.uint64(31))) * np.uint64(
            0xBF58476D1CE4E5B9
        )
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        u64: U64 = x ^ (x >> np.uint64(31))
    return u64
