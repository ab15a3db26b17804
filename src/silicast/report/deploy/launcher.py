"""The words that start the servers of a plan, by ``catalog/launchers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.switches import choose, is_switch
from silicast.core.errors import SilicastError, unsupported
from silicast.formats.server_launches.launcher import Launcher, launcher_of
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch

PORT = 8000
UNPRICED = "unpriced"
"""Of options: names of switches that were not priced, whose values nobody has here."""


def options_of(pool: PoolLaunch, launcher: Launcher) -> dict[str, Any]:
    """What a server is told in a file beside its flags; {} = it needs none."""
    if launcher.options is None:
        return {}
    told: dict[str, Any] = dict(launcher.options.roles.get(pool.role, {}))
    told |= launcher.options.attention_dp if pool.attention_dp > 1 else {}
    for name, value in _in_file(pool, launcher).items():
        table, _, inner = name.rpartition(".")
        told |= {table: {**told.get(table, {}), inner: value}} if table else {name: value}
    return told


def options_name(pool: PoolLaunch) -> str:
    """Name of the file of :func:`options_of`; pools of one role and one engine share it."""
    groups = "-groups" if pool.attention_dp > 1 else ""
    return f"{pool.engine}-{pool.role or 'server'}{groups}.yaml"


def arguments_of(pool: PoolLaunch, launcher: Launcher, folder: str = "") -> list[str]:
    """Flags with their values, in order; every flag is one of the package's.

    Args:
        folder: of the file of options, with its last slash.

    Raises:
        SilicastError: the engine cannot be told a degree, a format or an option.
    """
    _check_degrees(pool, launcher)
    _check_release(pool, launcher)
    total = pool.tp * pool.attention_dp if launcher.tp_counts_groups else pool.tp
    values: dict[str, Any] = {
        "tp": total,
        "pp": pool.pp if pool.pp > 1 else None,
        "attention_dp": pool.attention_dp if pool.attention_dp > 1 else None,
        "ep": pool.ep if pool.ep > 1 else None,
        "max_sequences": pool.max_sequences,
        "step_tokens": pool.step_tokens,
        "model_tokens": pool.model_tokens,
        "memory_fraction": f"{pool.memory_fraction:g}",
        "kv_dtype": _kv_dtype(pool, launcher),
    }
    words = list[str]()
    for name, value in values.items():
        if value is not None and name in launcher.flags:
            words += [launcher.flags[name], str(value)]
    words += launcher.switches.get("experts", ()) if pool.ep > 1 else ()
    words += launcher.switches.get("attention_dp", ()) if pool.attention_dp > 1 else ()
    if pool.recipe:
        if pool.recipe not in launcher.recipes:
            raise unsupported(
                f"{launcher.engine} is given no checkpoint in another format than {pool.recipe}",
                "precision",
                "name a checkpoint in that format as the model",
            )
        words += launcher.recipes[pool.recipe]
    told = options_of(pool, launcher)
    if launcher.options and told:
        words += [launcher.options.flag, folder + options_name(pool)]
    if pool.role:
        if pool.role not in launcher.roles and not told:
            raise unsupported(
                f"{launcher.engine}: no flags of a pool that only does {pool.role}s",
                f"pools.{pool.role}",
            )
        words += launcher.roles.get(pool.role, ())
    words += _options(pool, launcher, words)
    unknown = [w for w in words if w.startswith("--") and not _is_known(w, launcher)]
    if unknown:
        raise SilicastError(
            f"{', '.join(unknown)}: no flag of {launcher.engine} {launcher.version}",
            field="engine.options",
        )
    return words


def environment_of(pool: PoolLaunch) -> dict[str, str]:
    """Environment variables among the engine's options."""
    return {name: str(value) for name, value in pool.options.items() if name.isupper()}


def command_of(
    plan: LaunchPlan, pool: PoolLaunch, launcher: Launcher, port: int, folder: str = ""
) -> list[str]:
    """The words that start one server; its file of options is in ``folder``."""
    start = [word.format(model=plan.model) for word in launcher.command]
    where = [launcher.flags["host"], "0.0.0.0", launcher.flags["port"], str(port)]  # noqa: S104
    return [*start, *arguments_of(pool, launcher, folder), *where]


def benchmark_of(plan: LaunchPlan, launcher: Launcher, host: str, port: int) -> list[str]:
    """The words that measure a server under the plan's traffic; [] = none is known."""
    if launcher.benchmark is None:
        return []
    rate = "inf" if not plan.rate_per_s or plan.concurrency else f"{plan.rate_per_s:g}"
    values: Mapping[str, Any] = {
        "model": plan.model,
        "host": host,
        "port": port,
        "input_len": plan.input_len,
        "output_len": plan.output_len,
        "requests": plan.requests,
        "rate": rate,
    }
    words = [word.format(**values) for word in launcher.benchmark.command]
    return [*words, "--max-concurrency", str(plan.concurrency)] if plan.concurrency else words


def remarks_of(plan: LaunchPlan) -> list[str]:
    """What a reader of the files must know."""
    remarks = ["nothing here was started: the files are checked against lists of flags only"]
    for launcher in {pool.engine: launcher_of(pool.engine) for pool in plan.pools}.values():
        if not launcher.checked:
            remarks.append(
                f"flags of {launcher.engine} were not read from its package ({launcher.source})"
            )
        remarks.append(f"written for {launcher.engine} {launcher.version}")
    needed = sum(pool.replicas * pool.gpus for pool in plan.pools)
    if plan.crosses_nodes and needed <= plan.pools[0].gpus_per_node:
        remarks.append(
            "all servers fit one node, but caches were predicted to move between nodes: start "
            "prefill and decode on two, or state links.NAME.kind (nvlink) and predict again"
        )
    if launcher_of(plan.pools[0].engine).benchmark is None:
        remarks.append(f"no benchmark.sh: none is known of {plan.pools[0].engine}")
        return [*remarks, *_name_remarks(plan)]
    if not plan.uniform:
        remarks.append(
            "benchmark.sh sends requests of the mean lengths at a mean Poisson rate, not the "
            "traffic of the prediction"
        )
    if sum(pool.replicas for pool in plan.pools) > 1:
        remarks.append(
            "benchmark.sh sends the traffic of all servers: its address must be of what spreads "
            "requests over them"
        )
    return [*remarks, *_name_remarks(plan)]


def _name_remarks(plan: LaunchPlan) -> list[str]:
    if "/" in plan.model:
        return []
    return [f"{plan.model} is a name of the catalog: --checkpoint names its weights"]


def _check_degrees(pool: PoolLaunch, launcher: Launcher) -> None:
    ranks = pool.tp * pool.attention_dp
    if launcher.experts_over_all_ranks and pool.ep not in (1, ranks):
        raise unsupported(
            f"{launcher.engine} spreads experts over all {ranks} ranks or over none, not {pool.ep}",
            "parallel.ep",
            f"1 or {ranks}",
        )
    options = {*launcher.flags, *launcher.switches}
    if launcher.options and launcher.options.attention_dp:
        options.add("attention_dp")
        if pool.attention_dp > 1 and pool.tp > 1:
            raise unsupported(
                f"{launcher.engine} attends in one group or in groups of one rank, not in "
                f"{pool.attention_dp} of {pool.tp}",
                "parallel.attention_dp",
                f"attention_dp = {ranks} with tp = 1, or attention_dp = 1",
            )
    if pool.attention_dp > 1 and "attention_dp" not in options:
        raise unsupported(
            f"{launcher.engine} {launcher.version} has no flag of groups of attention",
            "parallel.attention_dp",
        )


def _check_release(pool: PoolLaunch, launcher: Launcher) -> None:
    """Refuses switches that the release for which files are written does not have."""
    engine = find_engine(pool.engine)
    version = launcher.version.partition(" ")[0]
    choose(engine, {n: v for n, v in pool.options.items() if is_switch(engine, n)}, version)


def _kv_dtype(pool: PoolLaunch, launcher: Launcher) -> str | None:
    if not pool.kv_dtype:
        return None
    if pool.kv_dtype not in launcher.kv_dtypes:
        raise unsupported(
            f"{launcher.engine}: no flag for a cache in {pool.kv_dtype}", "precision.kv_cache"
        )
    return launcher.kv_dtypes[pool.kv_dtype]


def _options(pool: PoolLaunch, launcher: Launcher, stated: list[str]) -> list[str]:
    """Further options of the engine; the limits among them are stated as they were predicted."""
    words = list[str]()
    in_file = _in_file(pool, launcher)
    for name, value in pool.options.items():
        flag = launcher.flag_of(name)
        if name.isupper() or name in in_file or flag in stated:
            continue
        if name == UNPRICED or not flag:
            raise unsupported(
                f"{launcher.engine} {launcher.version} has no flag --{name.replace('_', '-')}",
                f"engine.options.{name}",
            )
        if name in launcher.reads.negated.values():
            words += [] if value else [flag]
        elif value is False:
            words += [f"--no-{flag.removeprefix('--')}"] if launcher.reads.negates else []
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        else:
            words += [flag] if value is True else [flag, str(value)]
    return words


def _is_known(flag: str, launcher: Launcher) -> bool:
    """Whether the package has a flag, or turns it off."""
    flag = flag.partition(".")[0]
    on = f"--{flag.removeprefix('--no-')}" if launcher.reads.negates else flag
    return flag in launcher.known.flags or on in launcher.known.flags


def _in_file(pool: PoolLaunch, launcher: Launcher) -> dict[str, Any]:
    """Options that only a file of options states."""
    if launcher.options is None:
        return {}
    return {
        name: value
        for name, value in pool.options.items()
        if name.replace("_", "-") in launcher.reads.options and not launcher.flag_of(name)
    }
