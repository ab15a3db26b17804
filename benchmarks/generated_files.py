"""Every file that is generated to start a plan, checked by tools that know its kind.

Five models under three engines, for every target: servers that do both, and pools of prefill and
decode where the target has them. Objects of Kubernetes are checked by ``kubernetes-validate``;
those of other groups (KServe, Dynamo) have no schema there, so that their containers are checked as
those of a Pod. Compose files are checked by ``compose-spec``, scripts by ``sh -n``. Files of an
engine's options have no schema at all: that they are read back is counted apart.

    pip install kubernetes-validate compose-spec
    python benchmarks/generated_files.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError
from silicast.report.deploy.target import target_names
from silicast.report.deploy.written import write_deployment

OUT = Path(__file__).parent / "results" / "generated_files.json"
KUBERNETES = "1.37"
MODELS = {  # and the tensor-parallel degree of a server on H200
    "meta-llama/Llama-3.1-8B": 1,
    "Qwen/Qwen2.5-32B": 2,
    "meta-llama/Llama-3.1-70B": 4,
    "openai/gpt-oss-120b": 2,
    "mistralai/Mixtral-8x7B-v0.1": 2,
}
ENGINES = ("vllm", "sglang", "trtllm")


def scenarios() -> Iterator[tuple[str, dict[str, Any]]]:
    for model, tp in MODELS.items():
        for engine in ENGINES:
            together = {"replicas": {"count": 2}}
            apart = {
                role: {"role": role, "count": 1, "parallel": {"tp": tp}}
                for role in ("prefill", "decode")
            }
            for kind, pools in (("together", together), ("apart", apart)):
                yield (
                    f"{model} {engine} {kind}",
                    {
                        "task": "serving",
                        "model": model,
                        "device": "h200",
                        "engine": engine,
                        "parallel": {"tp": tp},
                        "pools": pools,
                        "workload": {
                            "arrival": {"kind": "poisson", "rate_per_s": 4.0},
                            "input_len": 1024,
                            "output_len": 128,
                        },
                    },
                )


def check(path: Path) -> None:
    """Raises whatever the tool raises where a file is not valid."""
    if path.suffix == ".sh":
        subprocess.run(["sh", "-n", path], check=True)
    elif path.name == "compose.yaml":
        from compose_spec import PyCompose  # type: ignore[import-not-found]

        PyCompose.from_yaml(path.read_text())
    elif without_schema(path):
        import yaml

        if not isinstance(yaml.safe_load(path.read_text()), dict):
            raise ValueError("no table of options")
    elif path.suffix == ".yaml":
        import kubernetes_validate  # type: ignore[import-not-found]
        import yaml

        for document in yaml.safe_load_all(path.read_text()):
            for each in objects(document):
                kubernetes_validate.validate(each, KUBERNETES, strict=True)


def without_schema(path: Path) -> bool:
    """Whether a file holds options of an engine."""
    return path.name == "router.yaml" or path.name.startswith(ENGINES)


def objects(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What of a document the schemas of Kubernetes know: the whole, or its containers as Pods."""
    if "kind" not in document:  # values of llm-d's chart
        for role in ("prefill", "decode"):
            for each in document[role].get("containers", ()):
                own = ("modelCommand", "mountModelVolume")
                words = {n: v for n, v in each.items() if n not in own}
                yield {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": role},
                    "spec": {"containers": [words]},
                }
        return
    kind, spec = document["kind"], document.get("spec", {})
    if kind == "InferenceService":
        predictor = spec["predictor"]
        pods = [{"containers": predictor["containers"], "volumes": predictor["volumes"]}]
    elif kind == "LLMInferenceService":
        pods = [workload["template"] for workload in (spec, spec["prefill"])]
    elif kind == "DynamoGraphDeployment":
        services = spec["services"].values()
        pods = [
            {
                "containers": [
                    {
                        "name": "main",
                        "env": service.get("envs", []),
                        **service["extraPodSpec"]["mainContainer"],
                    }
                ]
            }
            for service in services
        ]
    else:
        yield document
        return
    for pod in pods:
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": document["metadata"], "spec": pod}


def check_the_tools() -> None:
    """Stops where a tool takes what is plainly wrong."""
    wrong = {
        "compose.yaml": "services:\n  a:\n    image: x\n    replica: 2\n",
        "kubernetes.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
        "spec: {containers: [{name: a, image: x, argument: [b]}]}\n",
        "launch.sh": "if\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in wrong.items():
            path = Path(folder) / name
            path.write_text(text)
            try:
                check(path)
            except Exception as error:
                print(f"wrong {name} is refused: {str(error).splitlines()[0][:80]}")
            else:
                raise SystemExit(f"the tool of {name} takes what is wrong")


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    check_the_tools()
    valid, options, refused = Counter[str](), Counter[str](), Counter[str]()
    wrong = dict[str, str]()
    for name, tree in scenarios():
        for target in target_names():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    files, _ = write_deployment(tree, Path(folder), [target])
                except SilicastError as error:
                    refused[f"{target}: {error.message}"] += 1
                    continue
                for path in files:
                    try:
                        check(path)
                        (options if without_schema(path) else valid)[path.name] += 1
                    except Exception as error:
                        wrong[f"{name} {path.name}"] = str(error)[:200]
    figures = {
        "models": len(MODELS),
        "engines": len(ENGINES),
        "targets": len(target_names()),
        "valid_files": dict(sorted(valid.items())),
        "read_back_without_schema": dict(sorted(options.items())),
        "refused": dict(sorted(refused.items())),
        "wrong": wrong,
    }
    print(json.dumps(figures, indent=1))
    OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
