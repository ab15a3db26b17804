"""Prices: whose they are, and what is refused."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.exploration.prices import Price, price_list

HEAD = "device,price_per_hour,currency,provider,term,region,date,source,count\n"
TODAY = datetime.date(2026, 12, 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text(
        HEAD
        + "h100,2.5,usd,a,on demand,us,2026-11-01,,\n"
        + "H100 SXM,16,USD,b,spot,eu,2026-01-01,their page,8\n"
        + "a100,1.5,USD,a,,,,,\n",
        encoding="utf-8",
    )
    return path


def test_the_least_price_counts_and_says_whose_it_is(file: Path) -> None:
    result = price_list([str(file)])
    h100 = result.price("H100-SXM-80GB")
    assert h100 is not None
    assert (h100.per_hour, h100.provider, result.currency) == (2.0, "b", "USD")
    assert result.price("H200-SXM-141GB") is None


def test_conditions_leave_others_out(file: Path) -> None:
    price = price_list([str(file)], "term=On-Demand").price("H100-SXM-80GB")
    assert price is not None
    assert price.provider == "a"
    assert price_list([str(file)], "provider=nobody").price("H100-SXM-80GB") is None


def test_old_and_undated_prices_are_doubted(file: Path) -> None:
    table = {
        price.provider or price.device: price.doubt(TODAY)
        for price in price_list([str(file)]).prices[:2]
    }
    assert table == {"a": "", "b": "is 334 days old"}
    assert price_list([str(file)]).prices[2].doubt(TODAY) == "has no date"
    assert Price("h100", 1.0, stated=True).doubt(TODAY) == ""


def test_a_price_on_the_line_goes_beside_a_file(file: Path) -> None:
    price = price_list([f"h100=1,{file}"], "provider=a").price("H100-SXM-80GB")
    assert price is not None
    assert price.per_hour == 1.0


BAD_LINES = {
    "h100,2.5,": "currency: line 2: is not stated",
    "h100,-1,USD": "price_per_hour: line 2: expected a number from 0 on, found '-1'",
    "h100,nan,USD": "found 'nan'",
    "h100,,USD": "found ''",
    "h1000,1,USD": "device: line 2: unknown device 'h1000'",
    "h100,1,USD,,,,yesterday": "date: line 2: expected YYYY-MM-DD",
    "h100,1,USD,,,,2026-01-01,,0": "count: line 2",
    "h100,1,USD,,,,2026-01-01,,1.5": "count: line 2",
    "h100,1,USD\na100,1,EUR": "prices in EUR and USD cannot be compared",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_bad_files_are_refused_by_line_and_field(line: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEAD + line + "\n", encoding="utf-8")
    with pytest.raises(SilicastError) as caught:
        price_list([str(path)])
    assert BAD_LINES[line] in str(caught.value)


def test_columns_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    for head, remarks in (
        ("device,price_per_hour", "has no column currency"),
        ("device,price_per_hour,currency,colour", "unknown column: colour"),
        ("", "has no column device"),
    ):
        path.write_text(head + "\nh100,1\n", encoding="utf-8")
        with pytest.raises(SilicastError, match=remarks):
            price_list([str(path)])
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SilicastError, match="UTF-8"):
        price_list([str(path)])
    with pytest.raises(SilicastError, match="cannot read"):
        price_list([str(tmp_path / "nowhere.csv")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h100=-2", "expected a price from 0 on, found '-2'"),
        ("h100=inf", "found 'inf'"),
        ("h100=", "found ''"),
        ("h1000=2", "unknown device 'h1000'"),
        ("", "names no price"),
        ("h100=2,a100=1EUR", "EUR and USD"),
        ("b200=4", "b200 is not among the devices"),
    ],
)
def test_bad_prices_on_the_line(text: str, said: str) -> None:
    with pytest.raises(SilicastError, match=said):
        price_list([text], devices=["h100", "a100", "nonsense"])


def test_bad_conditions() -> None:
    with pytest.raises(SilicastError, match="expected provider=, term= or region="):
        price_list(["h100=2"], "colour=red")


def test_one_number_is_the_price_of_every_device_that_is_asked_of() -> None:
    result = price_list(["2.5eur"], devices=["h100", "l4"])
    for name in ("H100-SXM-80GB", "L4"):
        price = result.price(name)
        assert price is not None
        assert (price.per_hour, price.currency) == (2.5, "EUR")
    with pytest.raises(SilicastError, match="cannot read"):
        price_list(["2.5"])
