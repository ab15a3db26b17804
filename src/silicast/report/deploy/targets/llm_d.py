"""llm-d: values of the chart llm-d-modelservice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.report.deploy.launcher import arguments_of, environment_of, launcher_of
from silicast.report.deploy.target import DeployTarget, label_of, one_node, register_target
from silicast.report.deploy.yaml_text import yaml_text
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch


@register_target
@final
class LlmdTarget(DeployTarget):
    """``llm-d-values.yaml``."""

    name: ClassVar[str] = "llm-d"

    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        one_node(plan, "llm-d")
        for pool in plan.pools:
            if not launcher_of(pool.engine).llm_d:
                raise unsupported(f"the chart of llm-d starts no {pool.engine}", "engine")
        values: dict[str, Any] = {
            "modelArtifacts": {
                "name": plan.model,
                "uri": f"hf://{plan.model}",
                "size": "500Gi",
                "mountPath": "/model-cache",
            },
            "accelerator": {"type": "nvidia"},
            "routing": {"servicePort": 8000},
            "multinode": False,
            "prefill": {"create": False},
        }
        for pool in plan.pools:
            values[pool.role or "decode"] = self._pool(plan, pool)
        return {"llm-d-values.yaml": yaml_text(values)}

    def _pool(self, plan: LaunchPlan, pool: PoolLaunch) -> dict[str, Any]:
        launcher = launcher_of(pool.engine)
        container: dict[str, Any] = {
            "name": label_of(plan, pool),
            "image": launcher.image,
            "modelCommand": launcher.llm_d,
            "args": arguments_of(pool, launcher),
            "resources": {"limits": {"nvidia.com/gpu": str(pool.gpus)}},
            "mountModelVolume": True,
        }
        if variables := environment_of(pool):
            container["env"] = [{"name": n, "value": v} for n, v in variables.items()]
        return {
            "create": True,
            "replicas": pool.replicas,
            "parallelism": {
                "tensor": pool.tp,
                "data": pool.attention_dp,
                "dataLocal": pool.attention_dp,
                "workers": 1,
            },
            "containers": [container],
        }
