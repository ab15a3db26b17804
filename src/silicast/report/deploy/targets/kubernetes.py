"""Kubernetes: a Deployment and a Service for every pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.report.deploy.launcher import PORT, command_of, environment_of, launcher_of
from silicast.report.deploy.target import (
    DeployTarget,
    label_of,
    one_node,
    register_target,
    together_only,
    yaml_text,
)
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch


def container_of(plan: LaunchPlan, pool: PoolLaunch, name: str) -> dict[str, Any]:
    """One server as a container."""
    launcher = launcher_of(pool.engine)
    words = command_of(plan, pool, launcher, PORT)
    container: dict[str, Any] = {
        "name": name,
        "image": launcher.image,
        "command": words[:1],
        "args": words[1:],
        "ports": [{"containerPort": PORT, "name": "http", "protocol": "TCP"}],
        "resources": {"limits": {"nvidia.com/gpu": str(pool.gpus)}},
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": PORT},
            "periodSeconds": 10,
            "failureThreshold": 180,
        },
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - theirs
    }
    if variables := environment_of(pool):
        container["env"] = [{"name": n, "value": v} for n, v in variables.items()]
    return container


@register_target
@final
class KubernetesTarget(DeployTarget):
    """``kubernetes.yaml``."""

    name: ClassVar[str] = "kubernetes"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "a Deployment")
        documents = []
        for pool in plan.pools:
            name = label_of(plan, pool)
            labels = {"app": name}
            documents.append(
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": name, "labels": labels},
                    "spec": {
                        "replicas": pool.replicas,
                        "selector": {"matchLabels": labels},
                        "template": {
                            "metadata": {"labels": labels},
                            "spec": {
                                "containers": [container_of(plan, pool, "server")],
                                "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                            },
                        },
                    },
                }
            )
            documents.append(
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": name, "labels": labels},
                    "spec": {
                        "selector": labels,
                        "ports": [{"name": "http", "port": PORT, "targetPort": PORT}],
                    },
                }
            )
        return {"kubernetes.yaml": yaml_text(*documents)}


@register_target
@final
class KserveTarget(DeployTarget):
    """``inferenceservice.yaml`` (serving.kserve.io/v1beta1), as many replicas as were predicted."""

    name: ClassVar[str] = "kserve"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "an InferenceService")
        pool = together_only(plan, "an InferenceService", "kubernetes")
        container = container_of(plan, pool, "kserve-container")
        service = {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {
                "name": label_of(plan, pool),
                "annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"},
            },
            "spec": {
                "predictor": {
                    "minReplicas": pool.replicas,
                    "maxReplicas": pool.replicas,
                    "containers": [container],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                }
            },
        }
        return {"inferenceservice.yaml": yaml_text(service)}
