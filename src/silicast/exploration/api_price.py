"""Servers of one's own against an API that is paid by the token: from which load on they cost less.

Servers cost the same whatever they answer; an API costs as much as is asked of it. So the load at
which both cost the same is the share of the servers' load that their cost is of what the API would
cost at that load. Quality, limits and discounts of an API are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from silicast.core.errors import SilicastError
from silicast.exploration.prices import DEFAULT_CURRENCY, Price

FIELD: Final = "--api-price"
HOUR_S: Final = 3600.0
MILLION: Final = 1e6
_PRICES = re.compile(r"(\d*\.?\d+)(?:,(\d*\.?\d+))?\s*([A-Za-z]{3})?")


@final
@dataclass(frozen=True)
class ApiPrice:
    """What an API takes for a million tokens of prompts, and of outputs."""

    input: float
    output: float
    currency: str = DEFAULT_CURRENCY

    @staticmethod
    def parse(text: str) -> ApiPrice:
        """From words such as ``0.15,0.6`` (prompts, outputs) or ``0.5EUR`` (both alike).

        Raises:
            SilicastError: it is none of these, or nothing has to be paid.

        >>> ApiPrice.parse("0.15,0.6"), ApiPrice.parse("0.5eur").currency
        (ApiPrice(input=0.15, output=0.6, currency='USD'), 'EUR')
        """
        match = _PRICES.fullmatch(text.strip())
        first = float(match.group(1)) if match is not None else 0.0
        last = float(match.group(2) or first) if match is not None else 0.0
        if match is None or not first + last > 0.0:
            raise SilicastError(
                f"expected prices of a million tokens above 0, found {text!r:.40}",
                field=FIELD,
                hint="for example 0.15,0.6 (prompts, outputs), or 0.5EUR",
            )
        return ApiPrice(first, last, (match.group(3) or DEFAULT_CURRENCY).upper())


@final
@dataclass(frozen=True)
class BreakEven:
    """Costs of an hour at the load that is carried, and the load at which both are alike.

    Attributes:
        servers_per_hour, api_per_hour: in ``currency``.
        share: of the load that is carried; above 1 = the servers never cost less.
        rate_per_s: requests, at that share.
    """

    servers_per_hour: float
    api_per_hour: float
    currency: str
    share: float
    rate_per_s: float

    def words(self) -> str:
        """The same for people."""
        costs = (
            f"at the load that is carried the servers cost {self.servers_per_hour:.3g} "
            f"{self.currency} an hour, the API {self.api_per_hour:.3g}"
        )
        if self.share > 1.0:
            return f"{costs}: the API costs less at every load that these servers carry"
        return (
            f"{costs}; the servers cost less from {self.rate_per_s:.3g} requests/s on, "
            f"{self.share:.0%} of that load"
        )


def break_even(metrics: Mapping[str, Mapping[str, Any]], api: ApiPrice, price: Price) -> BreakEven:
    """Compares servers at the load of an answer with an API.

    Args:
        metrics: of an answer of a server: name -> ``estimate``.

    Raises:
        SilicastError: the prices are in two currencies, or the answer has no cost.
    """
    if api.currency != price.currency:
        raise SilicastError(
            f"{api.currency} and a price of devices in {price.currency} cannot be compared",
            field=FIELD,
            hint="convert them to one currency",
        )
    names = ("cost_per_million_output_tokens", "output_tokens_per_s", "total_tokens_per_s")
    if any(name not in metrics for name in (*names, "requests_per_s")):
        raise SilicastError("the answer has no cost of outputs", field=FIELD)
    cost, output, total = (float(metrics[name]["estimate"]) for name in names)
    hourly = HOUR_S / MILLION
    servers = cost * output * hourly
    paid = ((total - output) * api.input + output * api.output) * hourly
    share = servers / paid
    rate = float(metrics["requests_per_s"]["estimate"])
    return BreakEven(servers, paid, api.currency, share, share * rate)
