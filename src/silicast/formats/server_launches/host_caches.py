"""Memory of the host in which a server's connector keeps cached keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silicast.core.errors import SilicastError
from silicast.formats.fields import Fields
from silicast.formats.server_launches.commands import ServerCommand

Tree = dict[str, Any]
CONNECTOR = "kv_connector"
TRANSFERS = "kv-transfer-config"
OFFLOADED = "kv_offloading_size"
SIZE_OF_LMCACHE, IN_HOST = "LMCACHE_MAX_LOCAL_CPU_SIZE", "LMCACHE_LOCAL_CPU"
OF_HOST_CACHES = (SIZE_OF_LMCACHE, IN_HOST)
LMCACHE_GB = 5.0
"""Of each rank, by default (LMCache's documentation, recalled)."""


def in_host_memory(
    fields: Fields, command: ServerCommand, options: Tree, parallel: Mapping[str, int]
) -> Tree:
    """The memory of the host that a connector keeps caches in, of all ranks."""
    connector, extra = str(options.get(CONNECTOR, "")), f"{TRANSFERS}.kv-connector-extra-config."
    ranks = parallel.get("tp", 1) * parallel.get("pp", 1)
    whole = fields.get(f"{extra}cpu-bytes-to-use")
    bytes_per_rank = fields.get(f"{extra}kv-bytes-per-rank")
    if connector == "OffloadingConnector" and isinstance(whole or bytes_per_rank, int | float):
        size = whole if isinstance(whole, int | float) else bytes_per_rank * ranks
        return {OFFLOADED: round(size / (1 << 30), 3)}
    if not connector.startswith("LMCache") or OFFLOADED in options:
        return {}
    environment = {**command.variables, **command.environment}
    size_gb = fields.get(f"{extra}lmcache.max-local-cpu-size")
    size_gb = environment.get(SIZE_OF_LMCACHE, LMCACHE_GB) if size_gb is None else size_gb
    if str(environment.get(IN_HOST, "true")).casefold() in ("false", "0"):
        return {}
    try:
        return {OFFLOADED: float(size_gb) * ranks}
    except ValueError:
        raise SilicastError(
            f"expected a number of GB, found {str(size_gb)[:40]!r}",
            file=fields.file,
            field=SIZE_OF_LMCACHE,
        ) from None
