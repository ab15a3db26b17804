"""Writes learned artefacts: a card, and its tensors as safetensors beside it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from silicast.core.files import write_atomically
from silicast.core.tensors import DTYPES
from silicast.learning.artefact import Card
from silicast.learning.configuration_ranking import CHOICE_EDGES, PARTS, Ranker
from silicast.learning.forest import CODES, Forest, Trees
from silicast.tuning.tuner_choice import Tuner

C = TypeVar("C")
DTYPE_NAMES = {np.dtype(code): name for name, code in DTYPES.items()}


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> str:
    """Writes ``tensors`` to ``path`` (whole or not at all) and returns the file's SHA-256."""
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        raw = array.astype(DTYPES[DTYPE_NAMES[array.dtype]]).tobytes()
        header[name] = {
            "dtype": DTYPE_NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + len(raw)],
        }
        parts.append(raw)
        at += len(raw)
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    whole = b"".join((struct.pack("<Q", len(text)), text, *parts))
    write_atomically(path, whole)
    return hashlib.sha256(whole).hexdigest()


@final
@dataclass(frozen=True)
class Learned:
    """The arrays of one correction: trees, the ceiling's, those of the log of how far a row is off
    beside a usual one, and codes between which each feature lies.
    """

    trees: Forest
    ceiling: Trees
    spread: Trees
    ranges: NDArray[np.int64]


def write_card(path: Path, card: C, tensors: dict[str, NDArray[Any]]) -> C:
    """Writes tensors and then their card with their hash; returns that card."""
    digest = write_tensors(path.with_suffix(".safetensors"), tensors)
    hashed: C = msgspec.structs.replace(cast("Any", card), sha256=digest)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(hashed), indent=1) + b"\n")
    return hashed


def put_under(head: str, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The tensors with ``head`` before their names: what :func:`tensors_under` finds again."""
    return {head + name: values for name, values in tensors.items()}


def write_artefact(path: Path, card: Card, parts: Mapping[str, Learned]) -> Card:
    """Writes tensors and then the card with their hash; returns that card.

    Args:
        path: of the card.
        parts: by the key of their description.
    """
    tensors: dict[str, NDArray[Any]] = {}
    for key, part in parts.items():
        tensors |= put_under(f"{key}/", tensors_of_forest(part.trees))
        for kind, trees in (("ceiling", part.ceiling), ("spread", part.spread)):
            tensors |= put_under(f"{key}/{kind}/", tensors_of_trees([trees]))
        tensors[f"{key}/ranges"] = part.ranges.astype(np.uint16)
    return write_card(path, card, tensors)


def write_ranker(path: Path, ranker: Ranker) -> None:
    """Writes tensors and then the card with their hash."""
    tensors: dict[str, NDArray[Any]] = {"edges": edges_of(ranker.odds.bins)}
    for part, trees in zip(PARTS, (ranker.odds, ranker.time), strict=True):
        tensors |= put_under(f"{part}/", tensors_of_trees([trees]))
    if ranker.choice is not None:
        tensors[CHOICE_EDGES] = edges_of(ranker.choice.bins)
        tensors |= put_under("choice/", tensors_of_trees([ranker.choice]))
    write_card(path, ranker.card, tensors)


def write_tuner(path: Path, tuner: Tuner) -> None:
    """Writes tensors and then the card with their hash."""
    tensors: dict[str, NDArray[Any]] = {}
    for kind, sides in tuner.trees.items():
        tensors[f"{kind}/edges"] = edges_of(next(iter(sides.values()))[0].bins)
        for side, trees in sides.items():
            tensors |= put_under(f"{kind}/{side}/", tensors_of_trees(trees))
    write_card(path, tuner.card, tensors)


def edges_of(bins: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """The first code of each bin but the first, padded with CODES; shape (F, 255) at most."""
    rows = [np.flatnonzero(np.diff(row)) + 1 for row in bins]
    width = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), max(width, 1)), CODES, dtype=np.uint16)
    for row, edges in zip(table, rows, strict=True):
        row[: len(edges)] = edges
    return table


def tensors_of_forest(forest: Forest) -> dict[str, NDArray[Any]]:
    """The tensors of a forest."""
    parts = (forest.common, *forest.own)
    return {
        "edges": edges_of(forest.common.bins),
        "counts": np.array([len(part.features) for part in parts], dtype=np.uint16),
        "splits": forest.splits,
        **tensors_of_trees(parts),
    }


def tensors_of_trees(parts: Sequence[Trees]) -> dict[str, NDArray[Any]]:
    """Questions and leaves, one tree after the other."""
    leaves = np.concatenate([part.leaves for part in parts])
    steps = np.array([_step(row) for row in leaves], dtype=np.uint8)
    return {
        "features": np.concatenate([part.features for part in parts]).astype(np.uint8),
        "thresholds": np.concatenate([part.thresholds for part in parts]),
        "leaves": (leaves >> steps.astype(np.int16).reshape(-1, 1)).astype(np.int8),
        "steps": steps,
    }


def _step(leaves: NDArray[np.int16]) -> int:
    """The log2 of the step with which a tree's leaves fit a byte.

    Raises:
        ValueError: they do not; training rounds them so that they do.
    """
    for step in range(9):
        if (np.abs(leaves >> step) <= 127).all() and not (leaves & ((1 << step) - 1)).any():
            return step
    raise ValueError("leaves that no byte holds")
