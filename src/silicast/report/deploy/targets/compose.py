"""Docker compose: a service for every server of one node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.formats.server_launches.launcher import launcher_of
from silicast.report.deploy.launcher import (
    PORT,
    command_of,
    environment_of,
    options_name,
    options_of,
)
from silicast.report.deploy.side_files import (
    FOLDER,
    ROUTER_FILE,
    option_files,
    router_command,
    router_file,
)
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
        files, router = option_files(plan), router_command(plan, FOLDER)
        device, port = 0, PORT + 1 if router else PORT
        addresses = defaultdict[str, list[str]](list)
        for pool in plan.pools:
            launcher = launcher_of(pool.engine)
            for number in range(pool.replicas):
                command = command_of(plan, pool, launcher, PORT, FOLDER)
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
                if options_of(pool, launcher):
                    service["configs"] = _configs(options_name(pool))
                name = f"{label_of(plan, pool)}-{number}"
                services[name] = service
                addresses[pool.role].append(f"{name}:{PORT}")
                device, port = device + pool.gpus, port + 1
        if router:
            files[ROUTER_FILE] = router_file(plan, PORT, addresses)
            services["router"] = {
                "image": launcher_of(plan.pools[0].engine).image,
                "entrypoint": router[:1],
                "command": router[1:],
                "ports": [f"{PORT}:{PORT}"],
                "configs": _configs(ROUTER_FILE),
            }
        document: dict[str, Any] = {"services": services, "volumes": {"huggingface": {}}}
        if files:
            document["configs"] = {name: {"content": text} for name, text in files.items()}
        return {"compose.yaml": yaml_text(document)}


def _configs(name: str) -> list[dict[str, str]]:
    return [{"source": name, "target": FOLDER + name}]
