"""llm-d: values of the Helm chart llm-d-modelservice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.formats.server_launches.launcher import launcher_of
from silicast.report.deploy.launcher import PORT, command_of, environment_of
from silicast.report.deploy.target import DeployTarget, one_node, register_target, yaml_text
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch

BEHIND_PROXY = 8200
"""Where a server that decodes listens behind the chart's routing proxy, which takes the port of
the service and asks a prefill server first.
"""


@register_target
@final
class LlmDTarget(DeployTarget):
    """``llm-d-values.yaml``: one server serves alone, or prefill and decode apart.

    Names of fields are those of the chart's public values (``modelArtifacts``, ``routing.proxy``,
    ``decode``, ``prefill``, ``modelCommand``) as they were recalled: no schema checks them. The
    command is stated whole (``modelCommand: custom``), so that the chart adds no flags.
    """

    name: ClassVar[str] = "llm-d"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "an llm-d model service of one node a server")
        for pool in plan.pools:
            if pool.engine != "vllm":
                raise unsupported(
                    f"llm-d's proxy moves caches of vllm, not of {pool.engine}", "engine", "vllm"
                )
            if pool.pp > 1:
                raise unsupported(
                    "llm-d's values have no pipeline degree", "parallel.pp", "tensor degrees alone"
                )
        roles = {pool.role or "decode": pool for pool in plan.pools}
        if len(roles) < len(plan.pools):
            raise unsupported(
                "llm-d does not express several pools of one role", "pools", "one pool a role"
            )
        apart = "prefill" in roles
        proxy: dict[str, Any] = {"enabled": apart}
        if apart:
            proxy |= {"connector": "nixlv2", "targetPort": BEHIND_PROXY}
        values: dict[str, Any] = {
            "modelArtifacts": {
                "name": plan.model,
                "uri": f"hf://{plan.model}",
                "authSecretName": "llm-d-hf-token",
            },
            "routing": {"servicePort": PORT, "proxy": proxy},
            "multinode": False,
            "decode": _role(plan, roles["decode"], BEHIND_PROXY if apart else PORT),
            "prefill": _role(plan, roles["prefill"], PORT) if apart else {"create": False},
        }
        return {"llm-d-values.yaml": yaml_text(values)}

    def remarks(self, plan: LaunchPlan) -> list[str]:  # noqa: ARG002 - alike for all
        return [
            (
                "llm-d-values.yaml has the fields of the chart llm-d-modelservice as they were "
                "recalled and was checked against no schema: compare it with the values of your "
                "release"
            ),
            (
                "llm-d-values.yaml reads the token of Hugging Face from the secret llm-d-hf-token; "
                "the gateway and the InferencePool come from llm-d's other charts"
            ),
        ]


def _role(plan: LaunchPlan, pool: PoolLaunch, port: int) -> dict[str, Any]:
    launcher = launcher_of(pool.engine)
    words = command_of(plan, pool, launcher, port)
    variables = environment_of(pool)
    devices = {"nvidia.com/gpu": str(pool.gpus)}
    container: dict[str, Any] = {
        "name": "vllm",
        "image": launcher.image,
        "modelCommand": "custom",
        "command": words[:1],
        "args": words[1:],
        "ports": [{"containerPort": port, "name": "http", "protocol": "TCP"}],
        "resources": {"limits": devices, "requests": devices},
        "startupProbe": {
            "httpGet": {"path": "/health", "port": port},
            "periodSeconds": 10,
            "failureThreshold": 180,
        },
        "mountModelVolume": True,
    }
    if variables:
        container["env"] = [{"name": n, "value": v} for n, v in variables.items()]
    return {
        "create": True,
        "replicas": pool.replicas,
        "parallelism": {"tensor": pool.tp, "data": pool.attention_dp},
        "containers": [container],
    }
