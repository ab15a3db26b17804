"""`--price` of one device: a number, or what `silicast compare` takes: `h100=2.5` or a file."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silicast.app.console import warn
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from silicast.exploration.prices import Price

FLAG = "--price"
PRICED = "price: a device is {}"
_COMMA = re.compile(r"\d+,\d+")


def price_of(text: str | None, where: str | None, device: str) -> Price | None:
    """What the device costs for an hour; None where no price is given.

    Args:
        where: which prices of a file count.

    Raises:
        SilicastError: as :func:`~silicast.exploration.prices.price_list`, or it has none of the
            device.

    >>> price_of("2.5", None, "h100").said()
    '2.5 USD an hour'
    """
    if text is None:
        if where is not None:
            raise SilicastError("chooses among prices: give --price", field="--price-where")
        return None
    from silicast.exploration.prices import price_list
    from silicast.scenario.resolve import find_any_device

    name = find_any_device(device, Path()).name
    if _COMMA.fullmatch(text.strip()):
        raise SilicastError(
            f"has a comma: {text}", field=FLAG, hint=f"write {text.strip().replace(',', '.')}"
        )
    prices = price_list([text], where, [device])
    price = prices.price(name)
    if price is None:
        requested = f" ({where})" if where else ""
        raise SilicastError(
            f"has no price of {device}{requested}", field=FLAG, hint=f"for example {FLAG} 2.5"
        )
    return price


def prices_of(text: str | None, where: str | None, devices: list[str]) -> dict[str, Price]:
    """Device -> its price; those without one, or that nobody knows, are left out.

    Raises:
        SilicastError: as :func:`~silicast.exploration.prices.price_list`.
    """
    if text is None:
        if where is not None:
            raise SilicastError("chooses among prices: give --price", field="--price-where")
        return {}
    from silicast.exploration.prices import price_list
    from silicast.hardware.catalog import find_device

    names: dict[str, str] = {}
    for device in devices:
        with suppress(SilicastError):  # its own answer says so
            names[device] = find_device(device).name
    prices = price_list([text], where, list(names))
    each = {device: prices.price(name) for device, name in names.items()}
    return {device: price for device, price in each.items() if price}


def price_words(text: str | None, where: str | None, devices: list[str]) -> dict[str, str]:
    """Device -> its price as ``--price`` of one device takes it; those without one are left out.

    >>> price_words("h100=2.5", None, ["h100", "a100"])
    {'h100': '2.5USD'}
    """
    prices = prices_of(text, where, devices)
    return {name: f"{price.per_hour:g}{price.currency}" for name, price in prices.items()}


def with_price(scenario: dict[str, Any], price: Price | None) -> dict[str, Any]:
    """The scenario with what its devices cost."""
    if price is None:
        return scenario
    cluster = {**scenario.get("cluster", {}), "price_per_gpu_hour": price.per_hour}
    return {**scenario, "cluster": cluster}


def warn_of_doubt(price: Price | None) -> None:
    """Warns of what makes a price doubtful."""
    if price is None:
        return
    import datetime

    if doubt := price.doubt(datetime.datetime.now(tz=datetime.UTC).date()):
        warn(f"the price {doubt}: {price.said()}")


def with_price_line(report: RenderableType, price: Price | None) -> RenderableType:
    """A report that says whose price its cost rests on; of a doubtful one is warned."""
    if price is None:
        return report
    warn_of_doubt(price)
    return with_line(report, PRICED.format(price.said()))


def with_line(report: RenderableType, line: str | None) -> RenderableType:
    """A report and one line more, if there is one."""
    if not line:
        return report
    from rich.console import Group

    return Group(report, line)
