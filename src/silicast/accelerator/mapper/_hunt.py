"""The searches of one problem: of what memories keep, under several prices, within a budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

from silicast.accelerator.counting.cost import (
    UNRANKED,
    MappingCost,
    MappingRank,
    Objective,
    cost,
    value_of,
)
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.least_time import time_gap
from silicast.accelerator.counting.mapping import Keep, MappingBatch, default_keep, keep_patterns
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.mapper._facts import EinsumFacts
from silicast.accelerator.mapper._polish import polished
from silicast.accelerator.mapper._prices import (
    STEP,
    Busy,
    ObjectivePrices,
    energy_prices,
    rounding_pj,
    without_zeros,
)
from silicast.accelerator.mapper._search import MappingSearch, MappingSearchResult
from silicast.accelerator.mapper.budget import EFFORT, HELD, BudgetSpent, SearchBudget
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.zeros._zero_shares import ZeroShares
from silicast.core.numerics import F64

WIDTHS = (50, 500, 5000, 50_000)
"""Partial mappings kept of a slot, one search after the other, until the proof is good enough."""

ROUNDS = 8
"""Sets of weights that are tried where a port may be busier than the units."""
QUICK_ROUNDS = 2
"""The same, and how much less time another mapping may take for it to be looked for, where nothing
is proven."""
QUICK_GAP = 0.05
BUSY_SHARE = 0.2
"""Of the time; arrays whose units work less are not filled better where nothing is proven."""
NEAR = 16
"""Complete mappings that take about as long to count as one partial mapping to try."""
TANGENTS = 1
"""Further prices of a cycle, where those leave the proof open."""
TRADES = 3
"""Prices of a cycle that are tried where energy times delay is made small."""
TIE_PRICE = 1e-7
"""Share of the least energy that all cycles of its mapping are priced at, to choose among mappings
that need the same."""
RESERVE = 0.4
"""Share of the budget that is kept for searches among fewer tiles, while no mapping is complete."""
ATTEMPTS = (None, 8, 4, 2)
"""Extents of tiles that are tried along each dimension: all; fewer, where those are too many."""
CELLS = 200_000
"""Tiles that are too many: a table of them is made for every level."""
MOST_CHOICES = 4096
"""Choices of what memories keep that are looked at."""


def rank_of(result: MappingCost, objective: Objective) -> MappingRank:
    """How good a batch of one is."""
    return MappingRank(float(value_of(result, objective)[0]), float(result.cycles[0]))


@final
class _Choice:
    """What memories keep, with its search.

    Attributes:
        keep: tensors of each memory.
        bound: no mapping that keeps them is below it.
        search: None = not begun, or its tables were dropped for want of room.
        is_new: no search of it has ended.
    """

    def __init__(self, keep: Keep, bound: float, search: MappingSearch | None = None) -> None:
        self.keep, self.bound, self.search = keep, bound, search
        self.is_new = True


@final
class Hunt:
    """The searches of one problem, with the best mapping and the best bound so far."""

    def __init__(
        self,
        einsum: Einsum,
        architecture: Architecture,
        rules: Constraints,
        objective: Objective,
        effort: int,
        gap: float,
        budget: SearchBudget,
    ) -> None:
        self.einsum, self.arch, self.rules = einsum, architecture, rules
        self.objective, self.effort, self.gap = objective, effort, gap
        self.budget = budget
        self.most_divisors: int | None = None
        self.best: MappingBatch | None = None
        self.rank = UNRANKED
        self.bound = 0.0
        self.tried = 0
        self.reserve, self.allowed, self.was_cut = 0.0, math.inf, False
        self.keep = default_keep(einsum, architecture, rules.homes)
        facts = EinsumFacts(einsum, architecture, rules, self.keep, "energy")
        limits = [
            facts.limit(s) if slot.is_spatial else 1.0 for s, slot in enumerate(architecture.slots)
        ]
        self.busy = Busy(einsum, architecture, limits)
        self.cheapest: MappingBatch | None = None
        self.weights = self.busy.start()
        self.choices: list[_Choice] = []

    def floors(self, price: float | None = None) -> list[_Choice]:
        """Choices of what memories keep: all that they may, then those with the lowest floors.

        Args:
            price: of a cycle beside energy; None = as the objective has it.
        """
        least_words: dict[object, float] = {}
        first: EinsumFacts | None = None
        choices = []
        for keep in itertools.islice(self._patterns(), MOST_CHOICES):
            facts: EinsumFacts | None = None
            words = 0.0
            for t, name in enumerate(self.einsum.names):
                # Where zeros are left out, prices of a tensor depend on what is kept of others.
                chain = keep if self.arch.knows_zeros else tuple(name in names for names in keep)
                if (t, chain) not in least_words:
                    facts = facts or self._facts(keep, price)
                    least_words[t, chain] = facts.least_of(t)
                words += least_words[t, chain]
            first = first or facts
            base = facts if self.arch.knows_zeros else first
            assert base is not None
            choices.append(_Choice(keep, base.floor_with(words)))
        return [choices[0], *sorted(choices[1:], key=lambda choice: choice.bound)]

    def _beyond(self, price: float | None = None) -> float:
        """No mapping of choices that are too many to look at is below it."""
        more = next(itertools.islice(self._patterns(), MOST_CHOICES, None), None)
        return math.inf if more is None else self._facts(more, price).floor_with(0.0)

    def _patterns(self) -> Iterator[Keep]:
        return keep_patterns(self.einsum, self.arch, self.rules.homes)

    def _facts(
        self, keep: Keep, price: float | None = None, most: int | None = None
    ) -> EinsumFacts:
        """What a search among mappings that keep the same asks of its problem.

        Args:
            most: extents of tiles that are tried of each dimension; None = all.
        """
        seen, prices = self._seen(keep)
        objective = self.objective
        if price is not None:
            objective = "energy"
        elif objective == "latency":
            prices = self.busy.prices(self.weights, self._zeros(keep))
            seen = self.busy.priced(prices)
        return EinsumFacts(
            self.einsum, seen, self.rules, keep, objective, prices, price or 0.0, self.budget, most
        )

    def _zeros(self, keep: Keep) -> ZeroShares | None:
        """What is left without zeros at least; None on designs that keep them."""
        return ZeroShares(self.einsum, self.arch, keep) if self.arch.knows_zeros else None

    def _seen(self, keep: Keep) -> tuple[Architecture, ObjectivePrices | None]:
        """The design as a search for least energy sees it."""
        zeros = self._zeros(keep)
        if zeros is None:
            return self.arch, None
        return without_zeros(zeros), energy_prices(zeros, rounds=self.objective == "energy")

    def run(self) -> None:
        """All searches; where room or budget end before a mapping is complete, among fewer extents
        of tiles: any mapping is better than none.
        """
        attempts = [most for most in ATTEMPTS if self._cells(most) <= CELLS] or [ATTEMPTS[-1]]
        if attempts[0] is None:  # rules may leave fewer extents no mapping at all
            attempts.append(None)
        for number, most in enumerate(attempts):
            self.most_divisors, self.was_cut = most, False
            self.allowed = self.budget.left
            if most == ATTEMPTS[-1] or number == len(attempts) - 1:
                self.budget.left, self.reserve = math.inf, 0.0
            elif self.allowed < math.inf:
                self.reserve = self.allowed * RESERVE
                self.budget.left -= self.reserve
            self._anew()
            self._prove()
            self._run_all()
            if self.best is not None or not self.was_cut:
                return
            self.budget.left = self.reserve

    def glance(self, like: Hunt) -> None:
        """One narrow search, with the prices that led to the best of a similar problem."""
        if self.objective == "latency":
            self.weights = like.weights
            self._anew()
            self._run(WIDTHS[0])
        elif like.best is not None:
            best_cost = cost(like.einsum, like.arch, like.best)
            price = float(best_cost.energy_pj[0] / best_cost.cycles[0])
            price = 0.0 if self.objective == "energy" else price
            keep = like.best.keep
            self._take(self._priced(_Choice(keep, self._facts(keep, price).floor), price))
        self._improve()

    @property
    def uncovered(self) -> str:
        """What the budget left unsearched, in words; "" = nothing."""
        if self.most_divisors is not None:
            return (
                f"the problem has too many tiles to look at all: loops of about "
                f"{self.most_divisors} lengths a dimension were searched"
            )
        good = self.value * (1 - self.gap)
        left = sum(choice.is_new and choice.bound < good for choice in self.choices)
        if not left or self.is_done or not self.budget.is_spent:
            return ""
        return (
            f"the budget ended before {left} of {len(self.choices)} choices of what memories keep "
            "were searched (a larger --effort goes on)"
        )

    def _cells(self, most: int | None) -> int:
        """Tiles that a search looks at."""
        return math.prod(len(divisors) for divisors in self._facts(self.keep, most=most).divisors)

    def _run_all(self) -> None:
        if self.objective == "latency":
            self.weigh()
        elif self.arch.knows_zeros:
            self.guess()
        if self.objective == "edp":
            self.trade()
        self.polish()
        self.widen()
        self.polish()
        if self.objective == "energy":
            self.settle()

    def _searched(
        self, choice: _Choice, width: int, effort: float, known: float
    ) -> MappingSearchResult:
        """One search of a choice; nothing where the budget ends before it."""
        if choice.search is None:
            choice.search = MappingSearch(
                self._facts(choice.keep, most=self.most_divisors), self.arch, self.objective
            )
        before = choice.search.tried
        try:
            result = choice.search.run(width, known, effort)
            if self.most_divisors is None:
                return result
            return replace(result, bound=choice.bound)  # of other tiles nothing is known
        except BudgetSpent:
            self.was_cut = True
            return MappingSearchResult(None, UNRANKED, choice.bound)
        finally:
            self.tried += choice.search.tried - before

    @property
    def value(self) -> float:
        """Objective of the best mapping so far."""
        return self.rank.value

    def _take(self, result: MappingSearchResult) -> None:
        """Notes what a search found, if it is better."""
        if result.batch is not None and result.rank.is_before(self.rank):
            if self.best is None:
                self.budget.left = min(self.budget.left + self.reserve, self.allowed)
            self.rank, self.best = result.rank, result.batch
            if self.objective == "latency" and not self.arch.knows_zeros:
                gap = time_gap(cost(self.einsum, self.arch, self.best))
                self.bound = max(self.bound, self.value * (1.0 - gap))

    @property
    def is_done(self) -> bool:
        """Whether the answer is proven to be as close to the best as was asked."""
        return self.bound >= self.value * (1 - self.gap)

    def weigh(self, rounds: int = ROUNDS) -> None:
        """Narrow searches with other weights of what may be busiest.

        From the best weights so far, toward what is busiest in the mapping that is cheapest under
        them; a shorter step where a round proves no more.
        """
        self._anew()
        best_weights, best_bound, step = self.weights, -1.0, STEP
        busiest: F64 | None = None
        for number in range(rounds if self.busy.ports else 1):
            if number:
                if busiest is None:
                    break
                self.weights = self.busy.reweighted(best_weights, busiest, step)
                self._anew()
            bound = self._run(WIDTHS[0])
            if bound > best_bound:
                best_weights, best_bound = self.weights, bound
                if self.cheapest is not None:
                    busiest = self.busy.cycles(cost(self.einsum, self.arch, self.cheapest))
            else:
                step /= 2.0
            if self.best is None or self.is_done or self.is_over:
                return
        if self.busy.ports and best_weights is not self.weights:
            self.weights = best_weights
            self._anew()

    def _anew(self) -> None:
        """Other prices: searches with tables of their own."""
        self.budget.held = 0.0
        self.choices = self.floors()

    @property
    def is_over(self) -> bool:
        """Whether effort or budget is spent."""
        return self.tried > self.effort or self.budget.is_spent

    def guess(self) -> None:
        """A search with what describes tensors without their zeros, about; proves nothing."""
        for choice in self.choices:
            zeros = ZeroShares(self.einsum, self.arch, choice.keep)
            prices = energy_prices(zeros, rounds=True, guesses=True)
            facts = EinsumFacts(
                self.einsum,
                without_zeros(zeros),
                self.rules,
                choice.keep,
                self.objective,
                prices,
                budget=self.budget,
                most_divisors=self.most_divisors,
            )
            guess = _Choice(choice.keep, 0.0, MappingSearch(facts, self.arch, self.objective))
            self._take(self._searched(guess, WIDTHS[1], self.effort, math.inf))

    def trade(self) -> None:
        """Narrow searches for least energy, with a price of time.

        Energy E and time T of the best are least in E + (E / T) T too, near it; such a sum sees
        what time later loops may cost.
        """
        if self.is_quick:
            facts = self._facts(self.keep, 0.0)
            self._least_sum(facts.floor / facts.least_cycles)
            if self.best is not None:
                gap = time_gap(cost(self.einsum, self.arch, self.best))
                if gap > QUICK_GAP:
                    self._least_time()
            return
        price = 0.0
        lines: list[tuple[float, float]] = []
        for _ in range(TRADES):
            lines.append((price, self._least_sum(price)))
            if self.best is None:
                return
            best_cost = cost(self.einsum, self.arch, self.best)
            price, before = float(best_cost.energy_pj[0] / best_cost.cycles[0]), price
            if price == before:
                break
        self._square(lines)

    @property
    def is_quick(self) -> bool:
        """Whether a good mapping is enough, and nothing is to be proven of it."""
        return self.effort < EFFORT

    @property
    def waits_for_words(self) -> bool:
        """Whether the units have little to do in the best mapping, so that more of them at work
        would hardly shorten it.
        """
        if self.best is None:
            return False
        best_cost = cost(self.einsum, self.arch, self.best)
        busy = float(best_cost.traffic.steps[0]) / self.arch.compute.per_cycle
        return busy < BUSY_SHARE * float(best_cost.cycles[0])

    def _least_sum(self, price: float) -> float:
        """Least energy plus price times cycles, at least."""
        least = self._beyond(price)
        for choice in self.floors(price):
            if choice.bound >= least:
                continue
            result = self._priced(choice, price)
            least = min(least, result.bound)
            self._take(result)
        return least

    def _priced(self, choice: _Choice, price: float) -> MappingSearchResult:
        """A narrow search of a choice for least energy and a price of time."""
        if self.budget.is_spent:
            return MappingSearchResult(None, UNRANKED, choice.bound)
        self.budget.held = 0.0
        facts = self._facts(choice.keep, price, self.most_divisors)
        search = MappingSearch(facts, self.arch, self.objective)
        return self._searched(
            _Choice(choice.keep, choice.bound, search), WIDTHS[0], math.inf, math.inf
        )

    def settle(self) -> None:
        """A narrow search among mappings of the least energy for the fastest, and its neighbours:
        prices see what units work, not what an array waits for.
        """
        if self.best is not None and self.value > 0.0:
            price = self.value * TIE_PRICE / self.rank.cycles
            for choice in self.choices:
                if choice.bound <= self.value * (1 + TIE_PRICE):
                    self._take(self._priced(choice, price))
            self._improve()

    def _square(self, lines: list[tuple[float, float]]) -> None:
        """Proves with least time, and least energy with prices of time; the fastest may be best.

        Where lines leave the least product, the one that touches it there proves more.

        Args:
            lines: (price of a cycle, least energy plus price times cycles).
        """
        least = self._least_time()
        if math.isinf(least):
            return
        for number in range(TANGENTS + 1):
            product, time = least_product(lines, least)
            self.bound = max(self.bound, product)
            if self.is_done or number == TANGENTS:
                return
            price = product / time**2
            lines.append((price, self._least_sum(price)))

    def _least_time(self) -> float:
        """Takes the fastest mapping where it is better; no mapping is faster than what is returned,
        infinity where none is complete.
        """
        fast = Hunt(
            self.einsum, self.arch, self.rules, "latency", self.effort // 3, self.gap, self.budget
        )
        fast.most_divisors = self.most_divisors
        fast.weigh(QUICK_ROUNDS if self.is_quick else ROUNDS)
        self.tried += fast.tried
        if fast.best is None:
            return math.inf
        rank = rank_of(cost(self.einsum, self.arch, fast.best), self.objective)
        if rank.is_before(self.rank):
            self.rank, self.best = rank, fast.best
        return fast.bound

    def polish(self) -> None:
        """Makes small changes to the best, where a sum of prices was searched instead of itself."""
        exact = self.objective == "energy" and not self.arch.knows_zeros
        if not (self.is_done or exact):
            self._improve()

    def _improve(self) -> None:
        if self.best is None:
            return
        self.best, self.rank, counted = polished(
            self.best, self.einsum, self.arch, self.rules, self.objective
        )
        self.tried += counted // NEAR

    def widen(self) -> None:
        """Wider and wider searches, until the proof is good enough or the budget is spent."""
        for width in WIDTHS:
            is_enough = self.tried > self.effort or (self.is_quick and self.objective == "edp")
            if self.is_done or (self.best is not None and is_enough):
                return
            self._run(width)

    def _run(self, width: int) -> float:
        """One search of each choice that may still be better; what they prove together."""
        least = math.inf
        for choice in self.choices:
            if choice.bound >= self.value * (1 - self.gap) or self.budget.is_spent:
                continue
            is_first = self.best is None or width == WIDTHS[0]
            left = math.inf if is_first else self.effort - self.tried
            result = self._searched(choice, width, left, self.value)
            choice.bound = max(choice.bound, result.bound)
            choice.is_new = False
            if result.cheapest is not None and result.bound < least:
                least, self.cheapest = result.bound, result.cheapest
            self._take(result)
            if self.budget.held > HELD / 2:
                self.budget.held = 0.0
                for other in self.choices:
                    other.search = None
        return self._prove()

    def _prove(self) -> float:
        """What all choices prove together, with what they are."""
        bound = min(self._beyond(), *(choice.bound for choice in self.choices))
        if self.arch.knows_zeros and self.objective == "energy":
            bound = max(0.0, bound - rounding_pj(self.arch))
        if self.objective == "latency":
            bound = math.ceil(bound * (1 - 1e-12)) if bound < math.inf else bound
        self.bound = max(self.bound, bound)
        return bound


def least_product(lines: Sequence[tuple[float, float]], shortest: float) -> tuple[float, float]:
    """Least energy times time where neither a line nor the shortest time is undercut.

    Between the times where another line is the highest the product is concave, so that it is least
    at one of them.

    Args:
        lines: (price, least energy plus price times time).

    Returns:
        the product, and its time.

    >>> least_product([(0.0, 2.0), (1.0, 5.0)], 1.0), least_product([(0.0, 2.0)], 1.0)
    ((4.0, 1.0), (2.0, 1.0))
    """
    times = [shortest]
    for (p, a), (q, b) in itertools.combinations(lines, 2):
        if p != q and (a - b) / (p - q) > shortest:
            times.append((a - b) / (p - q))
    return min((time * max(least - price * time for price, least in lines), time) for time in times)
