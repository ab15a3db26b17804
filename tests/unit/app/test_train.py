"""`silicast train`: failures and slow devices."""

from __future__ import annotations

import pytest

from silicast.app.train_flags import TrainDegrees, TrainFlags, TrainLosses, training_scenario
from silicast.core.errors import SilicastError
from silicast.exploration.prices import Price
from silicast.report.tasks.training import check_run, whole_run

ASKED = TrainFlags(model="Llama-3-8B", device="h100", gpus=8)


def test_flags_become_tables_of_the_cluster() -> None:
    losses = TrainLosses(
        mtbf_hours=5e4, checkpoint_s=30.0, checkpoint_interval_s=1800.0, restart_s=600.0,
        slow_fraction=0.02, slow_factor=1.15,
    )  # fmt: skip
    for degrees in (TrainDegrees(), TrainDegrees(tp=2)):
        cluster = training_scenario(ASKED, degrees, losses)["cluster"]
        assert cluster == {
            "gpus": 8, "slow_gpus": {"fraction": 0.02, "slowdown": 1.15},
            "failures": {
                "mtbf_hours_per_gpu": 5e4, "checkpoint_s": 30.0, "checkpoint_interval_s": 1800.0,
                "restart_s": 600.0,
            },
        }  # fmt: skip
    assert training_scenario(ASKED, TrainDegrees(), TrainLosses())["cluster"] == {"gpus": 8}


@pytest.mark.parametrize(
    ("losses", "flag"),
    [
        (TrainLosses(checkpoint_s=30.0), "--mtbf-hours"),
        (TrainLosses(slow_fraction=0.1), "--slow-factor"),
        (TrainLosses(slow_factor=1.1), "--slow-fraction"),
    ],
)
def test_a_flag_that_means_nothing_alone_is_refused(losses: TrainLosses, flag: str) -> None:
    with pytest.raises(SilicastError, match="is missing") as refused:
        training_scenario(ASKED, TrainDegrees(), losses)
    assert refused.value.field == flag


def of(estimate: float, p05: float, p95: float) -> dict[str, float]:
    return {"estimate": estimate, "p05": p05, "p95": p95}


def test_a_run_takes_longer_with_slow_devices_and_failures() -> None:
    why = {"deployment": {"devices": 8}}
    plain = {"step_time_s": of(1.0, 0.5, 2.0), "tokens_per_s_per_gpu": of(1000, 500, 2000)}
    tokens = 8000 * 86_400.0  # of a day
    text = whole_run({"why": why, "metrics": plain}, tokens, Price("h100", 2.0))
    assert "1.00 days (90 %: 0.500 to 2.00) without failures" in text
    assert text.endswith("192 device hours, 384 USD at 2 USD an hour")
    slowed = plain | {"step_time_slowed_s": of(2.0, 1.0, 4.0)}
    text = whole_run({"why": why, "metrics": slowed}, tokens, None)
    assert "2.00 days (90 %: 1.00 to 4.00) with slow devices, without failures" in text
    failing = slowed | {"tokens_per_s_with_failures": of(2000, 1000, 4000)}
    text = whole_run({"why": why, "metrics": failing}, tokens, None)
    assert "4.00 days (90 %: 2.00 to 8.00) with failures" in text
    never = slowed | {"tokens_per_s_with_failures": of(0, 0, 0)}
    assert "never" in whole_run({"why": why, "metrics": never}, tokens, None)


@pytest.mark.parametrize(
    ("tokens", "price", "flag"), [(None, Price("h100", 2.0), "--tokens"), ("0", None, "--tokens")]
)
def test_a_run_that_cannot_be_counted_is_refused_before_it_is_predicted(
    tokens: str | None, price: Price | None, flag: str
) -> None:
    with pytest.raises(SilicastError) as refused:
        check_run(tokens, price)
    assert refused.value.field == flag
    check_run("300B", Price("h100", 0.0))
