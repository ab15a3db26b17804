"""`silicast cache`."""

from __future__ import annotations

from collections.abc import Mapping

from cyclopts import App

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, write_json
from silicast.app.flags import Json
from silicast.core.disk_cache import (
    MOST_FILES,
    MOST_KIND_BYTES,
    KeptKind,
    cache_folder,
    cached_kinds,
    can_keep,
    clear,
)

cache = App(
    name="cache",
    help="Show or clear what searches and simulations keep on disk between processes.",
    help_format="plaintext",
)


@cache.command(name="show")
@described()
def show_cache(*, json: Json = False) -> int:
    """Show the folder, its limit, and entries and bytes of each kind."""
    folder, kinds = cache_folder(), cached_kinds()
    if json:
        write_json(
            {
                "folder": None if folder is None else str(folder),
                "most_entries_of_a_kind": MOST_FILES,
                "most_bytes_of_a_kind": MOST_KIND_BYTES,
                "writable": folder is not None and can_keep(folder),
                "kinds": kinds,
            }
        )
        return status.ANSWERED
    if folder is None:
        show("nothing is kept: SILICAST_CACHE is empty")
        return status.ANSWERED
    limit = f"at most {MOST_FILES:,} entries and {MOST_KIND_BYTES >> 20} MiB of a kind"
    show(f"{folder}: {limit}", *_lines(kinds))
    if not can_keep(folder):
        show("it cannot be written: nothing more is kept")
    return status.ANSWERED


@cache.command(name="clear")
@described()
def clear_cache(*, json: Json = False) -> int:
    """Remove all entries; other files in the folder stay. Answers do not change by it."""
    gone = clear()
    if json:
        write_json({"removed": gone})
    else:
        show(*(f"removed {line}" for line in _lines(gone)))
    return status.ANSWERED


def _lines(kinds: Mapping[str, KeptKind]) -> list[str]:
    """One line a kind."""
    return [f"{name}: {kind.text}" for name, kind in kinds.items()] or ["no entries"]
