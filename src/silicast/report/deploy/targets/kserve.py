"""KServe: an InferenceService with the server as a custom container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.report.deploy.target import (
    DeployTarget,
    label_of,
    one_node,
    register_target,
    together_only,
)
from silicast.report.deploy.targets.kubernetes import container_of
from silicast.report.deploy.yaml_text import yaml_text
from silicast.scenario.answers.serving.launch_plan import LaunchPlan


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
