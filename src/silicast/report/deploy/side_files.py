"""Files beside a command: options of servers, and the servers that a router sends requests to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from silicast.core.errors import unsupported
from silicast.formats.server_launches.launcher import launcher_of
from silicast.report.deploy.launcher import options_name, options_of
from silicast.report.deploy.target import yaml_text
from silicast.scenario.answers.serving.launch_plan import LaunchPlan

ROUTER_FILE = "router.yaml"
FOLDER = "/etc/server/"
"""Of these files within a container."""


def option_files(plan: LaunchPlan) -> dict[str, str]:
    """Name of a file of options -> its text; {} = flags say everything.

    Raises:
        SilicastError: pools that share a file differ in it.
    """
    files = dict[str, str]()
    for pool in plan.pools:
        if told := options_of(pool, launcher_of(pool.engine)):
            name, text = options_name(pool), yaml_text(told)
            if files.setdefault(name, text) != text:
                raise unsupported(
                    "pools of one role have options of their own, which one file states",
                    "pools",
                    "state them for the engine, not for a pool",
                )
    return files


def router_command(plan: LaunchPlan, folder: str = "") -> list[str]:
    """The words that start the engine's router of prefill and decode servers.

    Args:
        folder: of the router's file, with its last slash.

    Returns:
        [] where pools do both, or the engine has no router of its own: another tool then has to
        send requests.
    """
    router = launcher_of(plan.pools[0].engine).router
    if router is None or {pool.role for pool in plan.pools} != set(router.servers):
        return []
    return [word.format(file=folder + ROUTER_FILE) for word in router.command]


def router_file(plan: LaunchPlan, port: int, addresses: Mapping[str, Sequence[str]]) -> str:
    """Text of the router's file.

    Args:
        port: where the router listens.
        addresses: role -> host:port of its servers.
    """
    router = launcher_of(plan.pools[0].engine).router
    assert router is not None
    servers = {
        field: {"num_instances": len(addresses[role]), "urls": list(addresses[role])}
        for role, field in router.servers.items()
    }
    return yaml_text({**router.options, "port": port, **servers})
