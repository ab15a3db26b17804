"""Docker compose: a service for every server of one node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.report.deploy.launcher import PORT, command_of, environment_of, launcher_of
from silicast.report.deploy.target import (
    DeployTarget,
    label_of,
    one_node,
    register_target,
    yaml_text,
)
from silicast.scenario.answers.serving.launch_plan import LaunchPlan


@register_target
@final
class ComposeTarget(DeployTarget):
    """``compose.yaml`` for one machine."""

    name: ClassVar[str] = "compose"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "compose")
        node = plan.pools[0].gpus_per_node
        needed = sum(pool.gpus * pool.replicas for pool in plan.pools)
        if needed > node:
            raise unsupported(
                f"compose is of one machine: {needed} devices are more than its {node}",
                "pools",
                "kubernetes",
            )
        services: dict[str, Any] = {}
        device, port = 0, PORT
        for pool in plan.pools:
            launcher = launcher_of(pool.engine)
            for number in range(pool.replicas):
                command = command_of(plan, pool, launcher, PORT)
                ids = [str(device + i) for i in range(pool.gpus)]
                service: dict[str, Any] = {
                    "image": launcher.image,
                    "entrypoint": command[:1],
                    "command": command[1:],
                    "ports": [f"{port}:{PORT}"],
                    "ipc": "host",
                    "volumes": ["huggingface:/root/.cache/huggingface"],
                    "deploy": {
                        "resources": {
                            "reservations": {
                                "devices": [
                                    {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
                                ]
                            }
                        }
                    },
                }
                if variables := environment_of(pool):
                    service["environment"] = variables
                services[f"{label_of(plan, pool)}-{number}"] = service
                device, port = device + pool.gpus, port + 1
        return {"compose.yaml": yaml_text({"services": services, "volumes": {"huggingface": {}}})}
