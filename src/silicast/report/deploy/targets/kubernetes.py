"""Kubernetes: a Deployment and a Service for every pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.formats.server_launches.launcher import launcher_of
from silicast.report.deploy.launcher import PORT, command_of, environment_of, options_of
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
    model_label,
    one_node,
    register_target,
    yaml_text,
)
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch

FILES = "files"
"""Name of the volume that holds files of options."""


def pod_of(plan: LaunchPlan, pool: PoolLaunch, name: str) -> dict[str, Any]:
    """One server as the only container of a Pod."""
    launcher = launcher_of(pool.engine)
    words = command_of(plan, pool, launcher, PORT, FOLDER)
    container = _container(name, launcher.image, words)
    container["resources"] = {"limits": {"nvidia.com/gpu": str(pool.gpus)}}
    container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - theirs
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    if options_of(pool, launcher):
        container["volumeMounts"].append(_MOUNT)
        volumes.append(_volume(plan))
    if variables := environment_of(pool):
        container["env"] = [{"name": n, "value": v} for n, v in variables.items()]
    return {"containers": [container], "volumes": volumes}


def config_map(plan: LaunchPlan, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Files of options as one object; none where there are none."""
    if not files:
        return []
    name = f"{model_label(plan)}-{FILES}"
    metadata = {"name": name}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files}]


@register_target
@final
class KubernetesTarget(DeployTarget):
    """``kubernetes.yaml``."""

    name: ClassVar[str] = "kubernetes"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "a Deployment")
        files, router = option_files(plan), router_command(plan, FOLDER)
        documents = []
        for pool in plan.pools:
            name = label_of(plan, pool)
            documents += _served(name, pool.replicas, pod_of(plan, pool, "server"))
        if router:
            addresses: dict[str, list[str]] = {}
            for pool in plan.pools:
                addresses.setdefault(pool.role, []).append(f"{label_of(plan, pool)}:{PORT}")
            files[ROUTER_FILE] = router_file(plan, PORT, addresses)
            image = launcher_of(plan.pools[0].engine).image
            container = _container("router", image, router) | {"volumeMounts": [_MOUNT]}
            pod = {"containers": [container], "volumes": [_volume(plan)]}
            documents += _served(f"{model_label(plan)}-router", 1, pod)
        return {"kubernetes.yaml": yaml_text(*config_map(plan, files), *documents)}


_MOUNT = {"name": FILES, "mountPath": FOLDER.rstrip("/")}


def _volume(plan: LaunchPlan) -> dict[str, Any]:
    return {"name": FILES, "configMap": {"name": f"{model_label(plan)}-{FILES}"}}


def _container(name: str, image: str, words: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "command": words[:1],
        "args": words[1:],
        "ports": [{"containerPort": PORT, "name": "http", "protocol": "TCP"}],
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": PORT},
            "periodSeconds": 10,
            "failureThreshold": 180,
        },
    }


def _served(name: str, replicas: int, pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A Deployment of a Pod and the Service in front of it."""
    labels = {"app": name}
    metadata = {"name": name, "labels": labels}
    template = {"metadata": {"labels": labels}, "spec": pod}
    ports = [{"name": "http", "port": PORT, "targetPort": PORT}]
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": template,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": ports},
        },
    ]
