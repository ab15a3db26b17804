"""Trained corrections as files: ``catalog/learned/<family>.safetensors`` and a card beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.catalog import CATALOG, catalog_hash
from silicast.core.decode import Strict, decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded
from silicast.core.provenance import Provenance
from silicast.core.tensors import read_tensors
from silicast.kernels.physics.constants import shipped_provenance
from silicast.learning.forest import CODES, Forest, Trees, no_trees

AGAIN = "make it again in a checkout of the sources: make artefacts"
FORMAT = 2
MOST_CARD_BYTES = 64 << 20
"""Layout of card and tensors; readers take this one and the one before it, without regions."""


@final
class Trained(Strict, frozen=True):
    """One correction: of some formats on one architecture.

    Attributes:
        key: prefix of its tensors.
        architecture, dtypes: what it applies to.
        devices: on which its rows were measured.
        features: names, in the order of the trees' features.
        log_sd: sd of what is left over on rows that were held out, variant and library given.
        blank_log_sd: the same where neither is given.
        shared_log_sd: what rows of one device and campaign are off together.
        device_log_sd: the same on a device of the architecture that was not measured.
        campaign_log_sd: what rows of a release are off together that was left out of the training.
        release_log_sd: sd of the rest on such a release; 0 = no two releases were measured.
        rows: fitted on; scores: mean APE in percent on rows that were held out, before and after.
    """

    key: str
    architecture: str
    dtypes: list[str]
    devices: list[str]
    features: list[str]
    log_sd: float
    blank_log_sd: float
    shared_log_sd: float
    device_log_sd: float
    rows: int
    scores: dict[str, float]
    campaign_log_sd: float = 0.0
    release_log_sd: float = 0.0


class CardOfTensors(Protocol):
    """What every card says of the file of tensors beside it."""

    @property
    def format(self) -> int:
        """Layout of card and tensors."""

    @property
    def sha256(self) -> str:
        """Hash of the tensors."""


C = TypeVar("C", bound=CardOfTensors)


@final
class Card(Strict, frozen=True):
    """What an artefact is: data, split, command, date, the hash of its tensors, its parts, and
    what it was made from (None = not recorded).
    """

    format: int
    family: str
    data: list[str]
    split: str
    command: str
    date: str
    sha256: str
    trained: list[Trained]
    provenance: Provenance | None = None


@final
class Artefact:
    """The corrections of one family.

    Args:
        card: its card.
        tensors: its arrays.
    """

    def __init__(self, card: Card, tensors: dict[str, NDArray[Any]]) -> None:
        self.card = card
        self._tensors = tensors
        self._trees: dict[str, Forest] = {}
        self._others: dict[str, Trees] = {}
        self._ranges: dict[str, NDArray[np.int64]] = {}
        self._names = {entry.key: tuple(entry.features) for entry in card.trained}
        self._found = {
            (entry.architecture, x): entry for entry in card.trained for x in entry.dtypes
        }

    def find(self, architecture: str, dtype: str) -> Trained | None:
        """The correction for a format on an architecture, or None."""
        return self._found.get((architecture, dtype))

    def names(self, trained: Trained) -> tuple[str, ...]:
        """Names of its features."""
        return self._names[trained.key]

    def trees(self, trained: Trained) -> Forest:
        """Its trees; decoded once."""
        forest = self._trees.get(trained.key)
        if forest is None:
            mine = tensors_under(self._tensors, f"{trained.key}/")
            forest = self._trees[trained.key] = _forest(mine)
        return forest

    def ceiling(self, trained: Trained) -> Trees | None:
        """Trees of the ceiling's log over the analytic estimate; None in artefacts of format 1."""
        if f"{trained.key}/ceiling/features" not in self._tensors:
            return None
        return self._more(trained, "ceiling")

    def spread(self, trained: Trained) -> Trees:
        """Trees of the log of a row's sd over a usual one's; of format 1, none: all rows are."""
        return self._more(trained, "spread")

    def _more(self, trained: Trained, name: str) -> Trees:
        head = f"{trained.key}/{name}/"
        trees = self._others.get(head)
        if trees is None:
            bins = self.trees(trained).common.bins
            mine = tensors_under(self._tensors, head)
            trees = self._others[head] = trees_of_tensors(bins, mine) if mine else no_trees(bins)
        return trees

    def ranges(self, trained: Trained) -> NDArray[np.int64]:
        """Codes between which each feature's training rows lie, shape (F, 2)."""
        ranges = self._ranges.get(trained.key)
        if ranges is None:
            ranges = self._tensors[f"{trained.key}/ranges"].astype(np.int64)
            self._ranges[trained.key] = ranges
        return ranges


def bins_of(edges: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """The bin of every code, shape (F, CODES), from the first codes of all but its first bin."""
    every = np.arange(CODES)
    return np.stack([np.searchsorted(row, every, side="right") for row in edges]).astype(np.uint8)


def _forest(tensors: Mapping[str, NDArray[Any]]) -> Forest:
    """A forest from its tensors; those of format 1 have no regions and whole leaves."""
    whole = trees_of_tensors(bins_of(tensors["edges"]), tensors)
    counts = tensors["counts"].tolist() if "counts" in tensors else [len(whole.features)]
    first, *others = parts_of(whole, counts)
    splits = tensors.get("splits", np.zeros((0, 3), np.int16))
    return Forest(first, splits, tuple(others))


def parts_of(whole: Trees, counts: Sequence[int]) -> tuple[Trees, ...]:
    """Sums of so many trees each, one after the other."""
    parts, at = [], 0
    for count in counts:
        span = slice(at, at + count)
        parts.append(
            Trees(whole.bins, whole.features[span], whole.thresholds[span], whole.leaves[span])
        )
        at += count
    return tuple(parts)


def trees_of_tensors(bins: NDArray[np.uint8], tensors: Mapping[str, NDArray[Any]]) -> Trees:
    """Trees from their questions and leaves."""
    leaves = tensors["leaves"].astype(np.int16)
    if "steps" in tensors:
        leaves = leaves << tensors["steps"].astype(np.int16).reshape(-1, 1)
    return Trees(bins, tensors["features"].astype(np.int16), tensors["thresholds"], leaves)


def folder() -> Path:
    """Where the shipped artefacts lie."""
    return CATALOG / "learned"


@cache
def load_artefact(family: str) -> Artefact | None:
    """The shipped artefact of a family, None where there is none.

    Raises:
        SilicastError: a card or tensors that are broken, of another version or hash.
    """
    path = folder() / f"{family}.json"
    if not path.is_file():
        return None
    artefact = read_artefact(path)
    _refuse_stale(artefact.card, path)
    return artefact


@cache
def shipped_hash() -> str:
    """Hash of all shipped constants and corrections: what calibrations rest on."""
    return catalog_hash("physics", "learned")


def _refuse_stale(card: Card, path: Path) -> None:
    """Raises if the constants of kernels that trees correct are no longer those they learned on."""
    provenance = card.provenance
    for name, content in provenance.constants.items() if provenance else ():
        kind, _, group = name.partition("/")
        made = shipped_provenance(group) if kind == "physics" else None
        if made is not None and made.content != content:
            raise SilicastError(
                f"corrects constants of {group} with the hash {content}; those here have "
                f"{made.content}",
                file=str(path),
                field="provenance.constants",
                hint=AGAIN,
            )


def read_artefact(path: Path) -> Artefact:
    """An artefact by its card's path; raises as :func:`load_artefact`."""
    return Artefact(*read_card(path, Card, (FORMAT, FORMAT - 1)))


def read_card(
    path: Path, kind: type[C], formats: tuple[int, ...]
) -> tuple[C, dict[str, NDArray[Any]]]:
    """A card and the tensors beside it.

    Args:
        formats: that are read, the present one first.

    Raises:
        SilicastError: a card or tensors that are broken, of another version or hash.
    """
    page = "docs/explanation/shipped-numbers.md"
    content = read_bounded(path, MOST_CARD_BYTES, "a card of an artefact")
    card = decode_json(content, kind, file=str(path), page=page, hint=AGAIN)
    if card.format not in formats:
        raise SilicastError(
            f"has format {card.format}, this version reads {formats[0]}",
            file=str(path),
            field="format",
            hint=AGAIN,
        )
    return card, read_tensors(path.with_suffix(".safetensors"), card.sha256)


def tensors_under(tensors: Mapping[str, NDArray[Any]], head: str) -> dict[str, NDArray[Any]]:
    """The tensors whose names begin with ``head``, by the rest of their names."""
    return {n.removeprefix(head): x for n, x in tensors.items() if n.startswith(head)}
