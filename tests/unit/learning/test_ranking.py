"""Trees of odds, and the shipped ranker."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from lab.artefact_files import write_ranker
from lab.boosted_forests import train_choice, train_odds
from silicast.core.catalog import CATALOG
from silicast.core.errors import SilicastError
from silicast.learning.boosting import Settings, bin_tables
from silicast.learning.configuration_ranking import NAMES, RankerCard, read_ranker, shipped_ranker

FEW = Settings(trees=30, depth=3, rate=0.3, rows=0.8, columns=1.0, prior=1.0)


def test_odds_tell_a_label_apart_and_repeat() -> None:
    random = np.random.default_rng(0)
    columns = random.random((4, 2000)) + 0.1
    label = (columns[1] > 0.6).astype(float)
    trees = train_odds(columns, label, np.ones(2000), FEW)
    odds = trees.evaluate(columns)
    assert odds[label == 1.0].min() > odds[label == 0.0].max() - 1.0
    assert ((odds > 0.0) == (label == 1.0)).mean() > 0.95
    again = train_odds(columns, label, np.ones(2000), FEW)
    assert (again.leaves == trees.leaves).all()


def test_weights_count_as_copies_of_a_row() -> None:
    random = np.random.default_rng(1)
    columns = random.random((2, 400)) + 0.1
    label = (random.random(400) < 0.3).astype(float)
    every = Settings(trees=3, depth=2, rate=0.5, rows=1.0, columns=1.0, prior=1.0)
    twice = train_odds(columns, label, np.full(400, 2.0), every)
    copied = train_odds(np.tile(columns, 2), np.tile(label, 2), np.ones(800), every)
    difference = twice.evaluate(columns) - copied.evaluate(columns)
    assert np.abs(difference).max() < 0.02


def test_choices_are_told_apart_within_their_lists() -> None:
    """What all rows of a list share says nothing; what differs between them decides."""
    random = np.random.default_rng(3)
    columns = random.random((3, 1200)) + 0.1
    lists = np.arange(0, 1200, 12)
    repeat = np.repeat(np.arange(100), 12)
    columns[2] = 1.0 + repeat % 7  # the same for a whole list
    best = np.array([first + columns[1, first : first + 12].argmax() for first in lists])
    chosen = np.zeros(1200)
    chosen[best] = 1.0
    trees = train_choice(bin_tables(columns), columns, chosen, lists, np.zeros(1200), FEW)
    log = trees.evaluate(columns).reshape(100, 12)
    assert (log.argmax(axis=1) + lists == best).mean() > 0.8
    again = train_choice(bin_tables(columns), columns, chosen, lists, np.zeros(1200), FEW)
    assert (again.leaves == trees.leaves).all()


def test_what_a_list_shares_beforehand_changes_nothing() -> None:
    random = np.random.default_rng(4)
    columns = random.random((2, 60)) + 0.1
    chosen = np.zeros(60)
    chosen[::6] = 1.0
    lists = np.arange(0, 60, 6)
    shared = np.repeat(np.arange(10.0) % 4.0, 6)
    first = train_choice(bin_tables(columns), columns, chosen, lists, np.zeros(60), FEW)
    second = train_choice(bin_tables(columns), columns, chosen, lists, shared, FEW)
    assert (first.leaves == second.leaves).all()


def test_the_shipped_ranker_survives_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    ranker = shipped_ranker()
    assert ranker.card.features == list(NAMES)
    assert 0.0 < ranker.card.log_sd <= ranker.card.device_log_sd
    path = tmp_path / "ranker.json"
    write_ranker(path, ranker)
    features = np.random.default_rng(2).random((len(NAMES), 64)) * 3.0
    again = read_ranker(path)
    assert (again.log_odds(features) == ranker.log_odds(features)).all()
    assert (again.log_ratio(features) == ranker.log_ratio(features)).all()


def test_a_ranker_of_another_format_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    source = CATALOG / "tuning" / "ranker.json"
    card = msgspec.json.decode(source.read_bytes(), type=RankerCard)
    path = tmp_path / "ranker.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(card, format=9)))
    with pytest.raises(SilicastError, match="has format 9"):
        read_ranker(path)


def test_one_problem_alone_is_a_row_of_many() -> None:
    features = np.random.default_rng(3).random((len(NAMES), 200)) * 5.0
    every = shipped_ranker().log_odds(features)
    alone = [shipped_ranker().log_odds(features[:, [i]])[0] for i in range(0, 200, 37)]
    assert every[::37].tolist() == alone
