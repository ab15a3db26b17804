"""Launch commands as a shell script, a server a line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import ClassVar, final

from silicast.report.deploy.launcher import PORT, command_of, environment_of, launcher_of
from silicast.report.deploy.target import DeployTarget, one_node, register_target
from silicast.scenario.answers.serving.launch_plan import LaunchPlan


@register_target
@final
class ShellTarget(DeployTarget):
    """``launch.sh``: every server on the devices of one machine, one port each."""

    name: ClassVar[str] = "shell"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "a script")
        lines, port, device = (
            [
                "#!/bin/sh",
                "# One server a command, in the background; devices are numbered within a node.",
            ],
            PORT,
            0,
        )
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
                device, port = device + pool.gpus, port + 1
        return {"launch.sh": "\n".join([*lines, "wait", ""])}
