"""Prices: whose they are, and what is refused."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.exploration.api_price import ApiPrice, break_even
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


OWN = "device,currency,purchase_price,years,use,watts,kwh_price,pue,date,source\n"


def test_an_hour_of_own_hardware_is_its_share_and_its_electricity(tmp_path: Path) -> None:
    """By hand: 26,298 over 3 years of 8,766 hours at half use is 2; 1 kW x 1.2 x 0.1 is 0.12."""
    path = tmp_path / "own.csv"
    path.write_text(OWN + "h100,eur,26298,3,0.5,1000,0.1,1.2,2026-11-01,invoice 7\n")
    (price,) = price_list([str(path)]).prices
    assert price.per_hour == pytest.approx(2.12)
    assert price.currency == "EUR"
    assert "invoice 7" in price.said()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("h100,EUR,26298,0,0.5,1000,0.1,1.2,,", "years: line 2: expected above 0"),
        ("h100,EUR,26298,3,1.5,1000,0.1,1.2,,", "use: line 2: expected a share"),
        ("h100,EUR,26298,3,0.5,1000,0.1,0.9,,", "pue: line 2: expected 1 at least"),
        ("h100,EUR,26298,3,0.5,,0.1,1.2,,", "watts: line 2: expected a number"),
    ],
)
def test_own_hardware_without_all_of_it_is_refused(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(OWN + row + "\n")
    with pytest.raises(SilicastError) as error:
        price_list([str(path)])
    assert message in str(error.value)


def metrics(**values: float) -> dict[str, dict[str, float]]:
    return {name: {"estimate": value} for name, value in values.items()}


def test_servers_cost_less_from_the_load_on_at_which_the_api_costs_as_much() -> None:
    """By hand: 3.6 an hour for 1,000 outputs/s; the API takes 2 x 3.6 + 1 x 3.6 an hour there."""
    found = metrics(
        cost_per_million_output_tokens=1.0,
        output_tokens_per_s=1000.0,
        total_tokens_per_s=5000.0,
        requests_per_s=10.0,
    )
    even = break_even(found, ApiPrice.parse("0.5,1"), Price("h100", 3.6, stated=True))
    assert (even.servers_per_hour, even.api_per_hour) == pytest.approx((3.6, 10.8))
    assert (even.share, even.rate_per_s) == pytest.approx((1 / 3, 10 / 3))
    assert "from 3.33 requests/s on, 33% of that load" in even.words()
    dear = break_even(found, ApiPrice.parse("0.01"), Price("h100", 3.6))
    assert "at every load" in dear.words()
    with pytest.raises(SilicastError, match="EUR and a price of devices in USD"):
        break_even(found, ApiPrice.parse("1EUR"), Price("h100", 3.6))


@pytest.mark.parametrize("text", ["", "free", "0", "0,0", "-1", "1,2,3"])
def test_a_price_of_tokens_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SilicastError, match="--api-price"):
        ApiPrice.parse(text)


def test_conditions_on_stated_prices_are_refused() -> None:
    with pytest.raises(SilicastError, match="--price-where: chooses among the prices of a file"):
        price_list(["h100=2.5"], "term=spot", ["h100"])
