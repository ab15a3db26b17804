"""A plain tree into a :class:`Scenario`: types, names of fields, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

from silicast.core.decode import decode as decode_table
from silicast.core.errors import SilicastError, require, unknown_field
from silicast.core.plain_data import Tree, check_tree, read_scenario_file, shown
from silicast.scenario.checks import check_workload
from silicast.scenario.schema import EngineTable, PoolLinkTable, PoolTable, RawScenario, Task
from silicast.scenario.workloads import BY_TASK, Workload

if TYPE_CHECKING:
    from silicast.scenario.kernels.kernel_case import KernelCase

PAGE = "docs/reference/scenario.md"
MAX_POOLS = 64
OF_POOLS = ("device", "model", "parallel", "engine", "precision", "limits")
"""Fields at the top that a pool may state for itself."""


@final
class Scenario(msgspec.Struct, frozen=True):
    """A decoded scenario.

    Attributes:
        raw: its tables; ``raw.workload``, ``raw.kernel``, ``raw.pools`` and ``raw.links`` are
            superseded by the typed ones here.
        workload: the task's workload; None for task "kernel".
        kernel: the kernel of task "kernel".
        pools, links: by name; empty for one pool.
        folder: where relative paths start.
        overridden: fields at the top of the file that every pool states otherwise.
    """

    raw: RawScenario
    workload: Workload | None
    kernel: KernelCase | None
    pools: dict[str, PoolTable]
    links: dict[str, PoolLinkTable]
    folder: Path
    overridden: tuple[str, ...] = ()

    @property
    def engine(self) -> EngineTable | None:
        """The engine of the one pool; a bare name is the table with that name."""
        engine = self.raw.engine
        return EngineTable(engine) if isinstance(engine, str) else engine


def with_calibrations(tree: Tree, files: Iterable[Path]) -> Tree:
    """A scenario that rests on further calibrations, which go before its own.

    >>> with_calibrations({"calibration": "a.json"}, [Path("/b.json")])["calibration"]
    ['a.json', '/b.json']
    """
    paths = [str(path.absolute()) for path in files]
    if not paths or not isinstance(tree, dict):
        return tree
    stated = tree.get("calibration") or []
    return {**tree, "calibration": [*(stated if isinstance(stated, list) else [stated]), *paths]}


def load(path: Path) -> Scenario:
    """The scenario in a file.

    Raises:
        SilicastError: unreadable, not TOML (or JSON), or not a scenario; names file and field.
    """
    tree = read_scenario_file(path)
    try:
        return decode(tree, folder=path.parent, checked=True)
    except SilicastError as error:
        raise error.located(file=error.file or str(path)) from None


def decode(tree: Tree, *, folder: Path | None = None, checked: bool = False) -> Scenario:
    """The scenario that a plain tree describes.

    Args:
        folder: where relative paths start; the working directory if None.
        checked: ``tree`` went through :func:`~silicast.core.plain_data.check_tree` already.

    Raises:
        SilicastError: names the field, what was expected and found, and a hint.
    """
    if not checked:
        check_tree(tree)
    raw = decode_table(tree, RawScenario, page=PAGE)
    folder = folder or Path()
    pools = _tables(raw.pools, PoolTable, "pools")
    links = _tables(raw.links, PoolLinkTable, "links")
    if (pools or links) and raw.task != "workflow":  # its stages name their pools
        from silicast.scenario.answers.serving.serving_checks import check_pools

        check_pools(pools, links)
    overridden = tuple(name for name in OF_POOLS if _is_overridden(name, raw, pools))
    if len(pools) == 1 and raw.task != "workflow" and not links and raw.colocation is None:
        (pool,) = pools.values()
        if _is_short(pool):
            raw, pools = _unpooled(raw, pool), {}
    if raw.task == "kernel":
        scenario = Scenario(raw, None, _kernel(raw), pools, links, folder, overridden)
    else:
        if raw.kernel is not None:
            raise SilicastError(f"task {raw.task} has no kernel", field="kernel")
        workload = _workload(raw, pools, folder)
        scenario = Scenario(raw, workload, None, pools, links, folder, overridden)
    check_workload(raw, scenario.workload, pools)
    return scenario


def with_workload(scenario: Scenario, table: dict[str, Any]) -> Workload:
    """Another workload of the task of a scenario; raises as :func:`decode`."""
    raw = msgspec.structs.replace(scenario.raw, workload=table)
    workload = _workload(raw, scenario.pools, scenario.folder)
    check_workload(raw, workload, scenario.pools)
    return workload


def of_pool(scenario: Scenario, pool: PoolTable) -> Scenario:
    """One pool of a scenario as a scenario of its own."""
    raw = _unpooled(scenario.raw, pool)
    return msgspec.structs.replace(scenario, raw=raw, pools={}, links={})


def part_of(
    scenario: Scenario, pools: dict[str, PoolTable], task: Task, workload: Workload | None
) -> Scenario:
    """Some pools of a scenario as a scenario of their own, of another task; a single pool is in
    the short form, as :func:`decode` leaves it.
    """
    raw = msgspec.structs.replace(scenario.raw, task=task, colocation=None)
    part = msgspec.structs.replace(scenario, raw=raw, workload=workload, pools=pools)
    if len(pools) == 1:
        (pool,) = pools.values()
        if _is_short(pool):
            return of_pool(part, pool)
    return part


def _is_short(pool: PoolTable) -> bool:
    """Whether a pool says nothing that the fields at the top of a scenario cannot say."""
    return pool.count == 1 and pool.price_per_gpu_hour is None and pool.kv_tiers is None


def _unpooled(raw: RawScenario, pool: PoolTable) -> RawScenario:
    """A scenario of one pool in the short form: the pool's fields over those at the top."""
    table = {n: getattr(pool, n) for n in OF_POOLS if getattr(pool, n) is not None}
    return msgspec.structs.replace(raw, pools=None, links=None, **table)


def _is_overridden(name: str, raw: RawScenario, pools: dict[str, PoolTable]) -> bool:
    """Whether a field at the top is stated for nothing: each pool has a value of its own, and one
    differs.
    """
    stated = getattr(raw, name)
    if not pools or stated == getattr(RawScenario(task=raw.task), name):
        return False
    values = [getattr(pool, name) for pool in pools.values()]
    return None not in values and any(value != stated for value in values)


def _kernel(raw: RawScenario) -> KernelCase:
    """The kernel table: ``workload.kernel``, or ``kernel`` at the top, or ``workload`` itself."""
    from silicast.scenario.kernels.kernel_case import kernel_case  # no other task needs the tables

    if raw.kernel is not None:
        require(
            raw.workload is None,
            "kernel and workload are both given",
            "workload",
            "keep one of them",
        )
        return kernel_case(raw.kernel, "kernel")
    if raw.workload is None:
        raise SilicastError("is missing", field="workload.kernel", hint="{op, dimensions, dtype}")
    if "kernel" not in raw.workload:
        return kernel_case(raw.workload, "workload")
    inner = raw.workload["kernel"]
    others = [name for name in raw.workload if name != "kernel"]
    if others:
        raise unknown_field(
            f"unknown field {shown(others[0])}",
            f"workload.{others[0]}",
            "everything about the kernel stands in workload.kernel",
        )
    if not isinstance(inner, dict):
        raise SilicastError(f"expected a table, found {shown(inner)}", field="workload.kernel")
    return kernel_case(inner, "workload.kernel")


def _workload(raw: RawScenario, pools: dict[str, PoolTable], folder: Path) -> Workload:
    if raw.workload is None:
        raise SilicastError("is missing", field="workload", hint=f"task {raw.task} needs one")
    from silicast.scenario.reading.usual_lengths import with_output_len  # which asks for models

    stated = with_output_len(raw.workload, raw, pools, folder)
    table: Any = decode_table(stated, BY_TASK[raw.task], field="workload", page=PAGE)
    workload: Workload = table
    return workload


def _tables(data: dict[str, Any] | None, to: type[Any], field: str) -> dict[str, Any]:
    if data is None:
        return {}
    require(0 < len(data) <= MAX_POOLS, f"expected 1 to {MAX_POOLS}, found {len(data)}", field)
    return {
        name: decode_table(table, to, field=f"{field}.{name}", page=PAGE)
        for name, table in data.items()
    }
