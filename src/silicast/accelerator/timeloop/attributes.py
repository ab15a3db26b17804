"""Attributes of a Timeloop component, by any of the spellings that its parser takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from silicast.core.errors import SilicastError, unsupported
from silicast.formats.fields import Fields

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "depth": ("depth", "memory_depth", "data_storage_depth", "storage_depth"),
    "entries": ("entries",),
    "width": ("width", "memory_width", "data_storage_width", "storage_width"),
    "word_bits": ("datawidth", "word_bits", "word_width", "data_width"),
    "block_size": ("block_size", "n_words"),
    "cluster_size": ("cluster_size",),
    "shared_bandwidth": ("shared_bandwidth",),
    "read_bandwidth": ("read_bandwidth",),
    "write_bandwidth": ("write_bandwidth",),
    "multiple_buffering": ("multiple_buffering",),
    "metadata_storage_width": ("metadata_storage_width",),
    "metadata_storage_depth": ("metadata_storage_depth",),
    "metadata_datawidth": ("metadata_datawidth", "metadata_word_bits"),
    "decompression_supported": ("decompression_supported",),
    "compression_supported": ("compression_supported",),
}
"""Attribute -> what it may be called; ``-`` and ``_`` are the same."""

PLACES = ("meshX", "meshY", "spatial")
ELSEWHERE = frozenset({
    "technology", "type", "version", "n_banks", "num_banks", "nports", "num_ports", "n_ports",
    "n_rdwr_ports", "n_rd_ports", "n_wr_ports", "update_fifo_depth", "metadata_counter_width",
    "multiplier_width", "adder_width", "global_cycle_seconds", "cycle_time", "instances",
})  # fmt: skip
"""What reaches Timeloop's counts through the energy tables only, or is read of the whole chip."""
DEFAULTS: Mapping[str, Any] = {
    "min_utilization": 0,
    "allow_overbooking": False,
    "reduction_supported": True,
    "multicast_supported": True,
    "has_power_gating": False,
    "power_gated_at": None,
}
"""What changes counts in a way that is not read: anything else is refused."""


@final
@dataclass(frozen=True)
class Attributes:
    """Those of one component.

    Attributes:
        values: by our names; those of outer parts of the tree among them.
        unused: what says nothing here.
    """

    component: str
    values: Mapping[str, Any]
    unused: tuple[str, ...]
    file: str

    def flag(self, key: str) -> bool:
        """Whether an attribute is set."""
        return bool(self.values.get(key))

    def above(self, key: str) -> float | None:
        """A number that is more than 0; None = not given."""
        return self._fields.number(key, above=0.0) if self._fields.has(key) else None

    def amount(self, key: str) -> float | None:
        """A number of 0 or more; None = not given."""
        return self._fields.number(key) if self._fields.has(key) else None

    @property
    def _fields(self) -> Fields:
        return Fields(self.values, self.component, self.file)


def attributes_of(
    component: str, given: Mapping[str, Any], outer: Mapping[str, Any], file: str
) -> Attributes:
    """The attributes of a component.

    Args:
        given: its own.
        outer: of the parts of the tree that it stands in, which it has where it states no own.

    Raises:
        SilicastError: two spellings that disagree, or one that changes counts and is not read.
    """
    values: dict[str, Any] = {}
    current: dict[str, Any] = {}
    for key, value in given.items():
        name = key if key in PLACES else str(key).replace("-", "_")
        if name in current and current[name] != value:
            raise SilicastError("is given twice", field=f"{component}.{key}", file=file)
        current[name] = value
    outside = {str(key).replace("-", "_"): value for key, value in outer.items()}
    for name, spellings in SPELLINGS.items():
        for source in (current, outside):
            table = {word: source[word] for word in spellings if source.get(word) is not None}
            if len(set(map(str, table.values()))) > 1:
                remark = ", ".join(f"{word} = {value}" for word, value in table.items())
                raise SilicastError(
                    f"{remark} are the same attribute",
                    field=f"{component}.{name}",
                    file=file,
                    hint="keep one of them",
                )
            if table:
                values[name] = next(iter(table.values()))
                break
    for name, default in DEFAULTS.items():
        if current.get(name) is not None and current[name] != default:
            raise unsupported(
                f"is {current[name]}, which is not counted",
                f"{component}.{name}",
                f"only {default} is read",
                file=file,
            )
    known = {*ELSEWHERE, *DEFAULTS, *PLACES, *(w for words in SPELLINGS.values() for w in words)}
    unused = tuple(key for key in current if key not in known)
    return Attributes(component, values, unused, file)
