"""Launch commands as a shell script, a server a line."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar, final

from silicast.formats.server_launches.launcher import launcher_of
from silicast.report.deploy.launcher import PORT, command_of, environment_of
from silicast.report.deploy.side_files import ROUTER_FILE, option_files, router_command, router_file
from silicast.report.deploy.target import DeployTarget, one_node, register_target
from silicast.scenario.answers.serving.launch_plan import LaunchPlan

NODE = "node{}"
"""Name of a node in the file of a router."""


@register_target
@final
class ShellTarget(DeployTarget):
    """``launch.sh``: every server on the devices of one machine, one port each, then a router."""

    name: ClassVar[str] = "shell"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "a script")
        lines = [
            "#!/bin/sh",
            "# One server a command, in the background; devices are numbered within a node.",
        ]
        files, router = option_files(plan), router_command(plan)
        if files or router:
            lines.append('cd "$(dirname "$0")" || exit 1')
        port, device = PORT + 1 if router else PORT, 0
        addresses = defaultdict[str, list[str]](list)
        for pool in plan.pools:
            launcher = launcher_of(pool.engine)
            for _ in range(pool.replicas):
                first = device % pool.gpus_per_node
                if first + pool.gpus > pool.gpus_per_node:
                    device += pool.gpus_per_node - first
                node, first = divmod(device, pool.gpus_per_node)
                devices = ",".join(str(first + i) for i in range(pool.gpus))
                words = [f"CUDA_VISIBLE_DEVICES={devices}"]
                words += [f"{n}={shlex.quote(v)}" for n, v in environment_of(pool).items()]
                words += map(shlex.quote, command_of(plan, pool, launcher, port))
                lines.append(f"# node {node}{f', {pool.role}' if pool.role else ''}")
                lines.append(" ".join(words) + " &")
                addresses[pool.role].append(f"{NODE.format(node) if node else 'localhost'}:{port}")
                device, port = device + pool.gpus, port + 1
        if router:
            files[ROUTER_FILE] = router_file(plan, PORT, addresses)
            lines += ["# node 0, router", " ".join(map(shlex.quote, router)) + " &"]
        return {"launch.sh": "\n".join([*lines, "wait", ""])} | files

    def remarks(self, plan: LaunchPlan) -> list[str]:
        needed = sum(pool.gpus * pool.replicas for pool in plan.pools)
        if not router_command(plan) or needed <= plan.pools[0].gpus_per_node:
            return []
        return [f"{ROUTER_FILE} names further nodes {NODE.format(1)}, {NODE.format(2)}, ..."]
