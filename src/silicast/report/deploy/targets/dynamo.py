"""Dynamo: a DynamoGraphDeployment with a front end and a service for every pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.formats.server_launches.launcher import dynamo_launcher
from silicast.report.deploy.launcher import arguments_of, environment_of
from silicast.report.deploy.target import (
    DeployTarget,
    model_label,
    one_node,
    pool_number,
    register_target,
    yaml_text,
)
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch

SYSTEM_PORT = 9090
"""Where a worker says how it is, if ``DYN_SYSTEM_PORT`` states it."""
HEALTH = (("DYN_SYSTEM_PORT", str(SYSTEM_PORT)),)


@register_target
@final
class DynamoTarget(DeployTarget):
    """``dynamo.yaml`` (nvidia.com/v1alpha1).

    Fields as in the package ai-dynamo 1.1.0 (Apache-2.0): ``planner/tests/manual`` has whole
    deployments, ``profiler/utils/config.py`` the fields of a service, and
    ``planner/connectors/kubernetes.py`` looks for the service of type ``frontend``.
    """

    name: ClassVar[str] = "dynamo"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "a DynamoGraphDeployment of one node a worker")
        launchers = [dynamo_launcher(pool.engine) for pool in plan.pools]
        services: dict[str, Any] = {
            "Frontend": {
                "componentType": "frontend",
                "replicas": 1,
                "extraPodSpec": {
                    "mainContainer": {
                        "image": launchers[0].image,
                        "command": ["python3", "-m", "dynamo.frontend"],
                    }
                },
            }
        }
        for pool in plan.pools:
            name = f"{pool.role.capitalize()}Worker{pool_number(plan, pool)}"
            services[name] = _worker(plan, pool)
        deployment = {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": model_label(plan)},
            "spec": {"services": services},
        }
        return {"dynamo.yaml": yaml_text(deployment)}

    def remarks(self, plan: LaunchPlan) -> list[str]:
        engines = sorted({pool.engine for pool in plan.pools})
        versions = [f"{engine} {dynamo_launcher(engine).version}" for engine in engines]
        return [
            f"dynamo.yaml is written for {', '.join(versions)}",
            "dynamo.yaml reads the token of Hugging Face from the secret hf-token-secret",
        ]


def _worker(plan: LaunchPlan, pool: PoolLaunch) -> dict[str, Any]:
    launcher = dynamo_launcher(pool.engine)
    variables = [*HEALTH, *environment_of(pool).items()]
    worker: dict[str, Any] = {
        "componentType": "worker",
        "replicas": pool.replicas,
        "resources": {"limits": {"gpu": str(pool.gpus)}},
        "envFromSecret": "hf-token-secret",
        "envs": [{"name": name, "value": value} for name, value in variables],
        "extraPodSpec": {
            "mainContainer": {
                "image": launcher.image,
                "command": [word.format(model=plan.model) for word in launcher.command],
                "args": arguments_of(pool, launcher),
                "startupProbe": {
                    "httpGet": {"path": "/health", "port": SYSTEM_PORT},
                    "periodSeconds": 10,
                    "failureThreshold": 180,
                },
            }
        },
    }
    return worker | ({"subComponentType": pool.role} if pool.role else {})
