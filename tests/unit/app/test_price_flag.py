"""`--price` of one device: a number, or a file whatever its name begins with."""

from pathlib import Path

import pytest

from silicast.app.price_flag import price_of
from silicast.core.errors import SilicastError

FILE = "device,price_per_hour,currency\nh100,2.5,USD\n"


@pytest.mark.parametrize("name", ["2026.csv", "./prices.csv", "-1.csv"])
def test_a_file_whose_name_begins_like_a_number_is_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(FILE)
    price = price_of(name, None, "h100")
    assert price is not None
    assert (price.per_hour, price.currency) == (2.5, "USD")


@pytest.mark.parametrize(
    ("text", "per_hour", "currency"), [("2.5", 2.5, "USD"), (".5eur", 0.5, "EUR"), ("2", 2, "USD")]
)
def test_numbers(text: str, per_hour: float, currency: str) -> None:
    price = price_of(text, None, "h100")
    assert price is not None
    assert (price.per_hour, price.currency) == (per_hour, currency)


@pytest.mark.parametrize("text", ["-2", "nowhere.csv", "2.", "h100=-1", ""])
def test_what_is_neither(text: str) -> None:
    with pytest.raises(SilicastError):
        price_of(text, None, "h100")


def test_a_decimal_comma_is_named() -> None:
    with pytest.raises(SilicastError) as refused:
        price_of("2,5", None, "h100")
    assert refused.value.hint == "write 2.5"
