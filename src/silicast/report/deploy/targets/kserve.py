"""KServe: an InferenceService of servers alike, an LLMInferenceService of prefill and decode."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.formats.server_launches.launcher import launcher_of
from silicast.report.deploy.launcher import arguments_of, environment_of
from silicast.report.deploy.side_files import option_files
from silicast.report.deploy.target import (
    DeployTarget,
    model_label,
    one_node,
    register_target,
    yaml_text,
)
from silicast.report.deploy.targets.kubernetes import config_map, pod_of
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch

APART = "llminferenceservice.yaml"


@register_target
@final
class KserveTarget(DeployTarget):
    """``inferenceservice.yaml`` (serving.kserve.io/v1beta1), as many replicas as were predicted.

    Pools of prefill and decode: ``llminferenceservice.yaml`` (serving.kserve.io/v1alpha1). The kind
    and its versions are those of the package kserve 0.21.0, which has no fields of ``spec``: they
    are as recalled from KServe's published samples. KServe's own templates state the command of a
    server, its port and the proxy in front of decode, and append ``VLLM_ADDITIONAL_ARGS``.
    """

    name: ClassVar[str] = "kserve"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "an InferenceService")
        if len(plan.pools) > 1:
            return {APART: yaml_text(_apart(plan))}
        (pool,) = plan.pools
        service = {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {
                "name": model_label(plan),
                "annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"},
            },
            "spec": {
                "predictor": {
                    "minReplicas": pool.replicas,
                    "maxReplicas": pool.replicas,
                    **pod_of(plan, pool, "kserve-container"),
                }
            },
        }
        objects = [*config_map(plan, option_files(plan)), service]
        return {"inferenceservice.yaml": yaml_text(*objects)}

    def remarks(self, plan: LaunchPlan) -> list[str]:
        if len(plan.pools) == 1:
            return []
        return [
            (
                f"{APART} has the fields of LLMInferenceService as they were recalled and was "
                "checked against no schema: compare it with the samples of your release"
            )
        ]


def _apart(plan: LaunchPlan) -> dict[str, Any]:
    roles = {pool.role: pool for pool in plan.pools}
    if len(plan.pools) != 2 or set(roles) != {"prefill", "decode"}:
        raise unsupported(
            "an LLMInferenceService has one pool of prefill and one of decode", "pools", "dynamo"
        )
    for pool in plan.pools:
        if pool.engine != "vllm":
            raise unsupported(
                f"KServe's proxy before decode moves caches of vllm, not of {pool.engine}",
                "engine",
                "vllm, or --target dynamo",
            )
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": {"name": model_label(plan)},
        "spec": {
            "model": {"uri": f"hf://{plan.model}", "name": plan.model},
            **_workload(roles["decode"]),
            "prefill": _workload(roles["prefill"]),
            "router": {"gateway": {}, "route": {}, "scheduler": {}},
        },
    }


def _workload(pool: PoolLaunch) -> dict[str, Any]:
    """Servers of a pool: what differs from the container of KServe's own templates."""
    launcher = launcher_of(pool.engine)
    devices = {"nvidia.com/gpu": str(pool.gpus)}
    words = {"VLLM_ADDITIONAL_ARGS": shlex.join(arguments_of(pool, launcher))}
    variables = environment_of(pool) | words
    container = {
        "name": "main",
        "image": launcher.image,
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "resources": {"limits": devices, "requests": devices},
    }
    return {"replicas": pool.replicas, "template": {"containers": [container]}}
