"""Dynamo: a DynamoGraphDeployment with a front end and a service for every pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.report.deploy.launcher import arguments_of, environment_of, launcher_of
from silicast.report.deploy.target import DeployTarget, label_of, one_node, register_target
from silicast.report.deploy.yaml_text import yaml_text
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch

IMAGE = "nvcr.io/nvidia/ai-dynamo/{engine}-runtime:1.1.0"
"""The release of Dynamo that has the engines' versions of ``catalog/launchers``."""


@register_target
@final
class DynamoTarget(DeployTarget):
    """``dynamo.yaml`` (nvidia.com/v1alpha1)."""

    name: ClassVar[str] = "dynamo"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "this graph")
        image = IMAGE.format(engine=plan.pools[0].engine)
        services: dict[str, Any] = {
            "Frontend": {
                "componentType": "frontend",
                "replicas": 1,
                "extraPodSpec": {
                    "mainContainer": {
                        "image": image,
                        "command": ["python3", "-m", "dynamo.frontend"],
                    }
                },
            }
        }
        for pool in plan.pools:
            services[f"{pool.role.title()}Worker"] = self._worker(plan, pool, image)
        graph = {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": label_of(plan, plan.pools[0]).removesuffix("-prefill")},
            "spec": {"services": services},
        }
        return {"dynamo.yaml": yaml_text(graph)}

    def _worker(self, plan: LaunchPlan, pool: PoolLaunch, image: str) -> dict[str, Any]:
        launcher = launcher_of(pool.engine)
        if not launcher.dynamo:
            raise unsupported(f"no worker of {pool.engine} is known in Dynamo", "engine")
        container: dict[str, Any] = {
            "image": image,
            "command": ["python3", "-m", launcher.dynamo],
            "args": [launcher.dynamo_model, plan.model, *arguments_of(pool, launcher)],
        }
        if variables := environment_of(pool):
            container["env"] = [{"name": n, "value": v} for n, v in variables.items()]
        worker: dict[str, Any] = {
            "componentType": "worker",
            "replicas": pool.replicas,
            "resources": {"limits": {"gpu": str(pool.gpus)}},
            "extraPodSpec": {"mainContainer": container},
        }
        return worker | ({"subComponentType": pool.role} if pool.role else {})
