"""What a device costs for an hour: a user's own prices, stated or in a file. None are shipped.

A file is CSV with the columns ``device``, ``price_per_hour`` and ``currency``, and as far as it is
known ``provider``, ``term`` (on demand, spot, one year), ``region``, ``date`` (YYYY-MM-DD),
``source`` and ``count`` (devices that the price is for, 1 if left out). Providers differ several
times over, and the same name means different boards at some (docs/how-to/compare-devices.md), so
that a price says whose it is.

Hardware of one's own has no price of an hour but a ``purchase_price``, ``years`` of ``use`` (the
share of the time in which it works) and ``watts`` while it works at a ``kwh_price`` and a ``pue``:

    hour = purchase / (years x 8766 h x use) + watts / 1000 x pue x kwh
"""

from __future__ import annotations

import csv
import datetime
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from silicast.core.errors import SilicastError, errors_located
from silicast.core.files import read_text
from silicast.core.naming import normalise
from silicast.formats.tables import column_names, refuse_repeated
from silicast.hardware.catalog import find_device

FIELD: Final = "--price"
REQUIRED: Final = ("device", "price_per_hour", "currency")
OPTIONAL: Final = ("provider", "term", "region", "date", "source", "count")
OWN: Final = ("purchase_price", "years", "use", "watts", "kwh_price", "pue")
"""Columns of hardware of one's own, all of them needed."""
HOURS_A_YEAR: Final = 8766.0
STALE_DAYS: Final = 180
"""Beyond that a price is too old to go by without a warning."""
DEFAULT_CURRENCY: Final = "USD"
MAX_BYTES: Final = 16 << 20
_ALONE = re.compile(r"-?\d*\.?\d+[A-Za-z]{0,3}")
"""A number, with a currency or without; what else has no ``=`` is a file, as ``2026.csv``."""
_EXAMPLE = "for example 2.5, h100=2.5, or h100=2.3EUR, or a file prices.csv"


@final
@dataclass(frozen=True, slots=True)
class Price:
    """Of one device for an hour.

    Attributes:
        device: as whoever stated the price calls it.
        per_hour: in ``currency``.
        date: when it was asked; None = not stated.
        stated: on the command line by the user, who knows how old it is.
    """

    device: str
    per_hour: float
    currency: str = DEFAULT_CURRENCY
    provider: str = ""
    term: str = ""
    region: str = ""
    date: datetime.date | None = None
    source: str = ""
    stated: bool = False

    def said(self) -> str:
        """Whose price it is.

        >>> Price("h100", 2.5, provider="lambda", date=datetime.date(2026, 9, 1)).said()
        '2.5 USD an hour, lambda, 2026-09-01'
        """
        when = "" if self.date is None else self.date.isoformat()
        words = (self.provider, self.term, self.region, when, self.source)
        return ", ".join((f"{self.per_hour:g} {self.currency} an hour", *filter(None, words)))

    def doubt(self, today: datetime.date) -> str:
        """Why it may not be so any longer; "" = no reason.

        >>> Price("h100", 2.5, date=datetime.date(2026, 1, 1)).doubt(datetime.date(2026, 12, 1))
        'is 334 days old'
        """
        if self.stated:
            return ""
        if self.date is None:
            return "has no date"
        age = (today - self.date).days
        return f"is {age} days old" if age > STALE_DAYS else ""


@final
@dataclass(frozen=True)
class PriceList:
    """Prices of one currency.

    Attributes:
        where: what a price must be of: ``provider``, ``term``, ``region`` -> text.
    """

    prices: tuple[Price, ...]
    where: Mapping[str, str]

    @property
    def currency(self) -> str:
        """Of all of them; "" = there is none."""
        return self.prices[0].currency if self.prices else ""

    def price(self, device: str) -> Price | None:
        """The least price of a device; None where there is none.

        Args:
            device: the catalog's name.
        """
        prices = [price for price in self.prices if find_device(price.device).name == device]
        chosen = [price for price in prices if _is_of(price, self.where)]
        return min(chosen, key=lambda price: price.per_hour, default=None)


def price_list(
    texts: Sequence[str], where: str | None = None, devices: Sequence[str] = ()
) -> PriceList:
    """Prices as a user gives them: ``device=2.5``, a number for all devices that are asked of, or
    files, several with commas or one by one.

    Args:
        where: such as ``provider=lambda,term=on_demand``: leaves out the prices of others.
        devices: what prices are asked of; stated ones of others are refused, () = of any.

    Raises:
        SilicastError: a file that cannot be read, a price without a currency, negative or not a
            number, an unknown device, or prices of several currencies.

    >>> price_list(["h100=2.5"]).price("H100-SXM-80GB").per_hour
    2.5
    """
    prices: list[Price] = []
    for text in texts:
        for word in filter(None, (part.strip() for part in text.split(","))):
            if "," in text and word.isdecimal():
                raise SilicastError(
                    f"has a comma in a number: {text}", field=FIELD, hint="write h100=2.5"
                )
            if devices and _ALONE.fullmatch(word):
                prices += [_stated(f"{device}={word}") for device in devices]
            else:
                prices += [_stated(word)] if "=" in word else price_file(Path(word))
    if not prices:
        message = f"{', '.join(texts)[:80]} names no price" if any(texts) else "names no price"
        raise SilicastError(message, field=FIELD, hint=_EXAMPLE)
    conditions = _conditions(where)
    if conditions and all(price.stated for price in prices):
        raise SilicastError(
            "chooses among the prices of a file, and none is given",
            field="--price-where",
            hint="leave it out, or name a file with --price",
        )
    _check_asked([price for price in prices if price.stated], devices)
    currencies = sorted({price.currency for price in prices})
    if len(currencies) > 1:
        raise SilicastError(
            f"prices in {' and '.join(currencies)} cannot be compared",
            field=FIELD,
            hint="convert them to one currency",
        )
    return PriceList(tuple(prices), conditions)


def _check_asked(prices: Sequence[Price], devices: Sequence[str]) -> None:
    """Refuses the price of a device that nobody asks about: a slip of the pen."""
    if not devices:
        return
    requested = set()
    for name in devices:
        with suppress(SilicastError):  # an unknown device is refused where it is predicted
            requested.add(find_device(name).name)
    for price in prices:
        if find_device(price.device).name not in requested:
            raise SilicastError(
                f"{price.device} is not among the devices that are asked about",
                field=FIELD,
                hint=f"--device has {', '.join(devices)}",
            )


def price_file(path: Path) -> list[Price]:
    """The prices of a CSV file; raises as :func:`price_list`, and names the line."""
    with errors_located(FIELD):
        text = read_text(path, MAX_BYTES, "a list of prices", _EXAMPLE)
    return list(_rows(text, str(path)))


def _rows(text: str, file: str) -> Iterator[Price]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    refuse_repeated(
        columns,
        lambda message, field, hint: SilicastError(message, field=field, hint=hint, file=file),
    )
    owned = "purchase_price" in columns
    needed = (*REQUIRED[:1], REQUIRED[2], *OWN) if owned else REQUIRED
    missing = [name for name in needed if name not in columns]
    if missing:
        raise SilicastError(
            f"has no column {' or '.join(missing)}",
            field=missing[0],
            file=file,
            hint=f"columns: {', '.join(needed)}, and as far as known {', '.join(OPTIONAL)}",
        )
    if unknown := [name for name in columns if name not in (*REQUIRED, *OPTIONAL, *OWN)]:
        raise SilicastError(
            f"unknown column: {column_names(unknown)}",
            field="columns",
            file=file,
            hint=f"one of {', '.join((*REQUIRED, *OPTIONAL, *OWN))}",
        )
    try:
        for row in reader:
            yield _row({k: (v or "").strip() for k, v in row.items() if k}, reader.line_num, file)
    except csv.Error as error:
        raise SilicastError(f"line {reader.line_num} is no CSV: {error}", file=file) from None


def _row(row: Mapping[str, str], line: int, file: str) -> Price:
    def wrong(field: str, message: str, hint: str = "") -> SilicastError:
        return SilicastError(f"line {line}: {message}", field=field, file=file, hint=hint)

    try:
        find_device(row["device"])
    except SilicastError as error:
        raise wrong("device", error.message, error.hint) from None
    if not row["currency"]:
        raise wrong("currency", "is not stated", "for example USD")
    if row.get("purchase_price"):
        requested: float | None = _own_hour(row, wrong)
    else:
        requested = _number(row.get("price_per_hour") or "")
    if requested is None:
        text = row.get("price_per_hour")
        raise wrong("price_per_hour", f"expected a number from 0 on, found {text!r:.40}")
    count = _number(row.get("count") or "1")
    if not count or count != int(count):
        raise wrong("count", f"expected a number of devices, found {row['count']!r:.40}")
    when = None
    if row.get("date"):
        try:
            when = datetime.date.fromisoformat(row["date"])
        except ValueError:
            raise wrong("date", f"expected YYYY-MM-DD, found {row['date']!r:.40}") from None
    return Price(
        row["device"],
        requested / count,
        row["currency"].upper(),
        row.get("provider", ""),
        row.get("term", ""),
        row.get("region", ""),
        when,
        row.get("source", ""),
    )


def _own_hour(row: Mapping[str, str], wrong: Callable[..., SilicastError]) -> float:
    """What an hour of work of hardware of one's own costs.

    >>> row = dict(zip(OWN, ("26298", "3", "0.5", "1000", "0.1", "1.2")))
    >>> round(_own_hour(row, ValueError), 6)  # 26,298 / (3 x 8,766 x 0.5) + 1 x 1.2 x 0.1
    2.12
    """
    if row.get("price_per_hour"):
        raise wrong("price_per_hour", "stands beside a purchase_price", "give one of them")
    numbers = {name: _number(row.get(name) or "") for name in OWN}
    for name, value in numbers.items():
        if value is None:
            raise wrong(name, f"expected a number from 0 on, found {row.get(name)!r:.40}")
    purchase, years, use, watts, kwh, pue = (value or 0.0 for value in numbers.values())
    for name, is_good, expected in (
        ("years", years > 0.0, "above 0"),
        ("use", 0.0 < use <= 1.0, "a share above 0, 1 at most"),
        ("pue", pue >= 1.0, "1 at least"),
    ):
        if not is_good:
            raise wrong(name, f"expected {expected}, found {row[name]!r:.40}")
    return purchase / (years * HOURS_A_YEAR * use) + watts / 1000.0 * pue * kwh


def _stated(word: str) -> Price:
    """A price on the command line.

    >>> _stated("h100=2.5eur").currency
    'EUR'
    """
    device, _, text = (part.strip() for part in word.partition("="))
    try:
        find_device(device)
    except SilicastError as error:
        if error.file:  # the device's own, which says nothing of prices
            raise error.at("device") from None
        raise SilicastError(error.message, kind=error.kind, field=FIELD, hint=error.hint) from None
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    requested, unit = _number(number), text[len(number) :]
    if requested is None or len(unit) not in (0, 3):
        raise SilicastError(
            f"{device}: expected a price from 0 on, found {text!r:.40}", field=FIELD, hint=_EXAMPLE
        )
    return Price(device, requested, unit.upper() or DEFAULT_CURRENCY, stated=True)


def _number(text: str) -> float | None:
    """A number from 0 on; None = it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < math.inf else None


def _conditions(text: str | None) -> dict[str, str]:
    conditions = {}
    for word in filter(None, (text or "").split(",")):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals or name not in ("provider", "term", "region"):
            raise SilicastError(
                f"expected provider=, term= or region=, found {word!r:.60}",
                field="--price-where",
                hint="for example provider=lambda,term=spot",
            )
        conditions[name] = value
    return conditions


def _is_of(price: Price, where: Mapping[str, str]) -> bool:
    return price.stated or all(
        normalise(getattr(price, name)) == normalise(value) for name, value in where.items()
    )
