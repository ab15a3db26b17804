"""Files to deploy: they state the prediction's degrees and limits, with flags that exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.server_launches.launcher import dynamo_launcher, launcher_of
from silicast.report.deploy.launcher import arguments_of, benchmark_of, remarks_of
from silicast.report.deploy.target import find_target, target_names, yaml_text
from silicast.report.deploy.written import write_deployment
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch, launch_plan
from silicast.scenario.decode import decode

yaml = pytest.importorskip("yaml")

POOL = PoolLaunch(
    engine="vllm",
    version="0.19",
    role="",
    replicas=2,
    tp=2,
    pp=1,
    ep=1,
    attention_dp=1,
    gpus=2,
    gpus_per_node=8,
    max_sequences=64,
    group_sequences=64,
    step_tokens=4096,
    model_tokens=9000,
    memory_fraction=0.9,
    kv_dtype="",
    recipe="",
    options={},
)
TREE: dict[str, Any] = {
    "task": "serving",
    "model": "meta-llama/Llama-3.2-1B",
    "device": "h100",
    "parallel": {"tp": 2},
    "pools": {"replicas": {"count": 3}},
    "workload": {
        "arrival": {"kind": "poisson", "rate_per_s": 20.0},
        "input_len": 512,
        "output_len": 64,
    },
}


def plan_of(*pools: PoolLaunch) -> LaunchPlan:
    return LaunchPlan("org/Model-1B", "H100", pools or (POOL,), 512, 64, 10.0, 0, 100)


def changed(**fields: Any) -> PoolLaunch:
    table = {name: getattr(POOL, name) for name in POOL.__dataclass_fields__}
    return PoolLaunch(**(table | fields))


def value_of(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_limits_are_those_of_the_prediction() -> None:
    plan = launch_plan(decode(TREE))
    (pool,) = plan.pools
    words = arguments_of(pool, launcher_of(pool.engine))
    assert (pool.replicas, pool.tp) == (3, 2)
    assert value_of(words, "--tensor-parallel-size") == "2"
    assert value_of(words, "--max-num-seqs") == str(pool.max_sequences)
    assert int(value_of(words, "--max-model-len")) == pool.model_tokens <= 131072
    assert value_of(words, "--gpu-memory-utilization") == "0.9"
    assert plan.rate_per_s == pytest.approx(20.0, rel=0.2)
    assert plan.requests == 1000  # of 100, p99 is the second worst


def test_a_context_is_no_longer_than_the_cache_has_room_for() -> None:
    tree = {**TREE, "model": "Llama-3.1-8B", "device": "l4", "parallel": {}, "pools": None}
    tree = {name: value for name, value in tree.items() if value is not None}
    (pool,) = launch_plan(decode(tree)).pools
    assert 576 <= pool.model_tokens < 131072


@pytest.mark.parametrize("target", target_names())
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_every_target_states_degrees_and_replicas_or_refuses(target: str, engine: str) -> None:
    plan = plan_of(changed(engine=engine, version=""))
    if target == "llm-d" and engine != "vllm":
        with pytest.raises(SilicastError, match=f"not of {engine}"):
            find_target(target).files(plan)
        return
    launcher = dynamo_launcher(engine) if target == "dynamo" else launcher_of(engine)
    ((name, text),) = find_target(target).files(plan).items()
    tp = launcher.flags["tp"]
    if target == "shell":
        lines = [line for line in text.splitlines() if line.endswith("&")]
        assert len(lines) == 2
        words = shlex.split(lines[1].removesuffix("&"))
        assert words[0] == "CUDA_VISIBLE_DEVICES=2,3"
        assert value_of(words, tp) == "2"
        return
    documents = list(yaml.safe_load_all(text))
    assert documents
    flat = str(documents)
    assert f"'{tp}', '2'" in flat
    assert name.endswith(".yaml")
    if target == "kubernetes":
        assert documents[0]["spec"]["replicas"] == 2
        (container,) = documents[0]["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_pools_have_roles() -> None:
    plan = plan_of(changed(role="prefill", tp=1, gpus=1), changed(role="decode"))
    (text,) = find_target("kubernetes").files(plan).values()
    kinds = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(text)]
    servers = [name for kind, name in kinds if kind == "Deployment"]
    assert [name.rpartition("-")[2] for name in servers] == ["prefill", "decode"]


APART = (
    {"role": "prefill", "tp": 1, "gpus": 1, "replicas": 3},
    {"role": "decode", "options": {"HF_HOME": "/models"}},
)


def test_kserve_states_both_pools_and_leaves_port_and_command_to_its_templates() -> None:
    pools = [changed(**fields) for fields in APART]
    target = find_target("kserve")
    spec = yaml.safe_load(target.files(plan_of(*pools))["llminferenceservice.yaml"])["spec"]
    prefill = spec["prefill"]
    assert spec["model"] == {"uri": "hf://org/Model-1B", "name": "org/Model-1B"}
    assert (prefill["replicas"], spec["replicas"]) == (3, 2)
    for workload, tp in ((prefill, "1"), (spec, "2")):
        (container,) = workload["template"]["containers"]
        told = {each["name"]: each["value"] for each in container["env"]}
        words = shlex.split(told["VLLM_ADDITIONAL_ARGS"])
        assert value_of(words, "--tensor-parallel-size") == tp
        assert json.loads(value_of(words, "--kv-transfer-config"))["kv_connector"]
        assert "--port" not in words
        assert container["resources"]["limits"] == {"nvidia.com/gpu": tp}
        assert told.get("HF_HOME") == ("/models" if workload is spec else None)
    assert "recalled" in target.remarks(plan_of(*pools))[0]
    for fields, message in (({"engine": "sglang"}, "not of sglang"), ({"role": ""}, "one pool")):
        with pytest.raises(SilicastError, match=message):
            target.files(plan_of(*(changed(**{**each, **fields}) for each in APART)))


@pytest.mark.parametrize("target", ["shell", "compose", "kubernetes"])
def test_a_router_names_every_server_where_it_listens(target: str) -> None:
    """Two fields of the router's file list servers; options of a role stand in files that the
    commands name."""
    plan = plan_of(*(changed(engine="trtllm", **fields) for fields in APART))
    files = dict(find_target(target).files(plan))
    folder = "" if target == "shell" else "/etc/server/"
    if target == "shell":
        lines = [line.removesuffix(" &") for line in files.pop("launch.sh").splitlines()]
        commands = [shlex.split(line) for line in lines if "trtllm-serve" in line]
        ports = [int(value_of(words, "--port")) for words in commands[:-1]]
        assert ports == [8001, 8002, 8003, 8004, 8005]  # the router takes 8000
        listening = [f"localhost:{port}" for port in ports]
    elif target == "compose":
        document = yaml.safe_load(files["compose.yaml"])
        services = document["services"]
        assert [each["ports"][0] for each in services.values()][-1] == "8000:8000"
        commands = [[*each["entrypoint"], *each["command"]] for each in services.values()]
        listening = [f"{name}:8000" for name in services][:-1]
        files = {name: each["content"] for name, each in document["configs"].items()}
        mounted = [each["configs"][0] for each in services.values()]
        assert all(each["target"] == folder + each["source"] for each in mounted)
    else:
        objects = list(yaml.safe_load_all(files["kubernetes.yaml"]))
        files = objects[0]["data"]
        pods = [e["spec"]["template"]["spec"] for e in objects if e["kind"] == "Deployment"]
        commands = [[*e["command"], *e["args"]] for pod in pods for e in pod["containers"]]
        listening = [f"{e['metadata']['name']}:8000" for e in objects if e["kind"] == "Service"]
        listening.pop()  # the router's own
        for pod in pods:
            volumes = {each["name"]: each for each in pod["volumes"]}
            assert volumes["files"]["configMap"]["name"] == objects[0]["metadata"]["name"]
            assert {"name": "files", "mountPath": "/etc/server"} in pod["containers"][0][
                "volumeMounts"
            ]
    router = yaml.safe_load(files["router.yaml"])
    lists = [router["context_servers"], router["generation_servers"]]
    assert [each["num_instances"] for each in lists] == [len(each["urls"]) for each in lists]
    assert [url for each in lists for url in each["urls"]] == listening
    assert commands[-1] == ["trtllm-serve", "disaggregated", "-c", f"{folder}router.yaml"]
    told = {value_of(words, "--extra_llm_api_options") for words in commands[:-1]}
    assert told == {f"{folder}trtllm-prefill.yaml", f"{folder}trtllm-decode.yaml"}
    prefill, decode = (yaml.safe_load(files[f"trtllm-{r}.yaml"]) for r in ("prefill", "decode"))
    assert prefill["cache_transceiver_config"] == decode["cache_transceiver_config"]
    assert prefill["disable_overlap_scheduler"] is True
    assert "disable_overlap_scheduler" not in decode


def test_groups_of_attention_are_told_in_a_file_where_there_is_no_flag() -> None:
    plan = plan_of(changed(engine="trtllm", tp=1, attention_dp=8, ep=8, gpus=8, replicas=1))
    files = find_target("shell").files(plan)
    assert yaml.safe_load(files["trtllm-server-groups.yaml"]) == {"enable_attention_dp": True}
    assert "--extra_llm_api_options trtllm-server-groups.yaml" in files["launch.sh"]
    assert "--tp_size 8" in files["launch.sh"]
    with pytest.raises(SilicastError, match="groups of attention"):
        find_target("dynamo").files(plan)


@pytest.mark.parametrize("target", ["compose", "kubernetes", "dynamo"])
def test_two_pools_of_one_role_have_two_names(target: str) -> None:
    (text,) = find_target(target).files(plan_of(POOL, changed(tp=1, gpus=1))).values()
    assert text.count("--max-num-seqs") == {"compose": 4}.get(target, 2)
    assert (
        len(set(re.findall(r"^ +name: (model-1b\S*)$", text, re.MULTILINE)))
        == {"compose": 0, "kubernetes": 2, "dynamo": 1}[target]
    )
    document = next(yaml.safe_load_all(text))
    if target == "compose":
        assert len(document["services"]) == 4
    if target == "dynamo":
        assert list(document["spec"]["services"]) == ["Frontend", "Worker", "Worker2"]


def test_values_of_llm_d_have_a_role_for_every_pool() -> None:
    """Fields as the chart's public values are recalled: no schema is at hand."""
    alone = yaml.safe_load(find_target("llm-d").files(plan_of())["llm-d-values.yaml"])
    assert alone["prefill"] == {"create": False}
    assert alone["routing"] == {"servicePort": 8000, "proxy": {"enabled": False}}
    assert alone["modelArtifacts"]["uri"] == "hf://org/Model-1B"
    plan = plan_of(changed(role="prefill", tp=1, gpus=1, replicas=3), changed(role="decode"))
    values = yaml.safe_load(find_target("llm-d").files(plan)["llm-d-values.yaml"])
    prefill, decode = values["prefill"], values["decode"]
    assert (prefill["replicas"], prefill["parallelism"]["tensor"]) == (3, 1)
    assert (decode["replicas"], decode["parallelism"]["tensor"]) == (2, 2)
    ports = [value_of(role["containers"][0]["args"], "--port") for role in (prefill, decode)]
    assert ports == ["8000", "8200"]  # the proxy in front of decode takes 8000
    assert values["routing"]["proxy"]["targetPort"] == 8200
    assert decode["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert (
        find_target("llm-d").remarks(plan)[0].endswith("compare it with the values of your release")
    )
    for fields, field in (({"pp": 2, "gpus": 4}, "parallel.pp"), ({"gpus": 16}, "parallel")):
        with pytest.raises(SilicastError) as caught:
            find_target("llm-d").files(plan_of(changed(**fields)))
        assert caught.value.field == field
    with pytest.raises(SilicastError, match="several pools of one role"):
        find_target("llm-d").files(plan_of(POOL, POOL))


def test_pools_on_one_node_are_told_from_the_predicted_link() -> None:
    """A prediction joins pools over the network where no link is stated; eight devices are one
    node.
    """
    pools = {role: {"count": 2, "role": role} for role in ("prefill", "decode")}
    split = {**TREE, "pools": pools}
    linked = {**split, "links": {"kv": {"from": "prefill", "to": "decode", "kind": "nvlink"}}}
    many = {**split, "pools": {**pools, "decode": {"count": 3, "role": "decode"}}}
    remarked = [
        any("fit one node" in line for line in remarks_of(launch_plan(decode(tree))))
        for tree in (split, linked, many, TREE)
    ]
    assert remarked == [True, False, False, False]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_graph_of_dynamo_has_a_front_end_and_a_worker_a_pool(engine: str) -> None:
    """Fields as ai-dynamo 1.1.0 has them in planner/tests/manual/perf_test_configs."""
    plan = plan_of(
        changed(engine=engine, role="prefill", tp=1, gpus=1, replicas=3),
        changed(engine=engine, role="decode", options={"HF_HOME": "/models"}),
    )
    (text,) = find_target("dynamo").files(plan).values()
    graph = yaml.safe_load(text)
    assert (graph["apiVersion"], graph["kind"]) == ("nvidia.com/v1alpha1", "DynamoGraphDeployment")
    services = graph["spec"]["services"]
    assert list(services) == ["Frontend", "PrefillWorker", "DecodeWorker"]
    assert services["Frontend"]["componentType"] == "frontend"
    prefill, decode = services["PrefillWorker"], services["DecodeWorker"]
    assert (prefill["replicas"], prefill["resources"]) == (3, {"limits": {"gpu": "1"}})
    assert (decode["replicas"], decode["subComponentType"]) == (2, "decode")
    assert {"name": "HF_HOME", "value": "/models"} in decode["envs"]
    container = decode["extraPodSpec"]["mainContainer"]
    assert container["command"][:3] == ["python3", "-m", f"dynamo.{engine}"]
    assert value_of(container["args"], "--disaggregation-mode") == "decode"
    assert "--port" not in container["args"]  # the front end answers


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ep": 4, "tp": 8, "gpus": 8}, "over all 8 ranks or over none, not 4"),
        ({"options": {"no_such_option": 1}}, "no flag --no-such-option"),
        ({"recipe": "nvfp4"}, "another format than nvfp4"),
        ({"kv_dtype": "int4"}, "no flag for a cache in int4"),
        ({"gpus": 16, "tp": 16}, "16 devices over nodes of 8"),
        ({"engine": "orca"}, "orca has no files to deploy"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SilicastError) as error:
        find_target("shell").files(plan_of(changed(**fields)))
    assert message in str(error.value)


def test_groups_of_attention_count_as_the_engine_counts_them() -> None:
    fields = {"tp": 2, "attention_dp": 4, "ep": 8, "gpus": 8}
    ours = arguments_of(changed(**fields), launcher_of("vllm"))
    theirs = arguments_of(changed(**fields), launcher_of("sglang"))
    assert value_of(ours, "--tensor-parallel-size") == "2"
    assert value_of(ours, "--data-parallel-size") == "4"
    assert "--enable-expert-parallel" in ours
    assert value_of(theirs, "--tensor-parallel-size") == "8"
    assert value_of(theirs, "--expert-parallel-size") == "8"
    assert "--enable-dp-attention" in theirs


def test_files_of_a_scenario_stand_together(tmp_path: Path) -> None:
    files, remarks = write_deployment(TREE, tmp_path / "out", ["shell", "kubernetes"])
    names = {path.name for path in files}
    assert names == {"launch.sh", "kubernetes.yaml", "scenario.json", "benchmark.sh"}
    assert any("nothing here was started" in remark for remark in remarks)
    batch = {"task": "inference", "workload": {"batch": 1, "input_len": 8, "output_len": 2}}
    tree = {name: value for name, value in (TREE | batch).items() if name != "pools"}
    with pytest.raises(SilicastError, match="starts no server"):
        write_deployment(tree, tmp_path / "none", ["shell"])
    assert not (tmp_path / "none").exists()


def test_the_benchmark_sends_the_stated_rate_or_says_what_it_cannot_send() -> None:
    """A sample's rate differs from the stated one by as much as the sample is small."""
    plan = launch_plan(decode(TREE))
    assert (plan.rate_per_s, plan.uniform) == (20.0, True)
    words = benchmark_of(plan, launcher_of("vllm"), "127.0.0.1", 8000)
    assert value_of(words, "--request-rate") == "20"
    assert not any("mean lengths" in line for line in remarks_of(plan))
    varied = TREE["workload"] | {"input_len": {"kind": "uniform", "min": 10, "max": 500}}
    plan = launch_plan(decode({**TREE, "workload": varied}))
    assert any("mean lengths" in line for line in remarks_of(plan))
    silent = plan_of(changed(engine="trtllm"))
    assert any("no benchmark.sh" in line for line in remarks_of(silent))


def test_yaml_reads_back_what_was_written() -> None:
    value = {"a": ["1", "y", 2.5, True, None, {"b": [], "c: d": "#x"}], "e": {"f": "g\nh"}}
    assert yaml.safe_load(yaml_text(value)) == value
