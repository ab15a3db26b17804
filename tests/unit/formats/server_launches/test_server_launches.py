"""What users start servers with, as scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.engines.switches import is_switch
from silicast.core.errors import SilicastError
from silicast.formats.server_launches import is_server_launch
from silicast.formats.server_launches.arguments import known_flags
from silicast.formats.server_launches.launcher import Launcher, launchers
from silicast.scenario.reading.launched import launched_servers
from tests.launches import read

SGLANG = "python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B"
TABLES = ("kv-transfer-config", "speculative-config", "kv-cache-config")
"""Flags whose value is a table."""


def test_a_script_with_variables_and_an_environment(tmp_path: Path) -> None:
    scenario, remarks = read(
        tmp_path,
        """export VLLM_USE_DEEP_GEMM=1
MODEL=${MODEL:-deepseek-ai/DeepSeek-R1}
pip install vllm==0.11.0
VLLM_ALL2ALL_BACKEND=deepep_low_latency vllm serve $MODEL \\
  -tp 4 --data-parallel-size=2 --enable-expert-parallel --max_num_seqs 256 --max-model-len 16K \\
  --no-enable-prefix-caching --trust-remote-code --api-server-count 4 --foo 3 > log &
""",
    )
    assert scenario["model"] == "deepseek-ai/DeepSeek-R1"
    assert scenario["parallel"] == {"tp": 4, "attention_dp": 2, "ep": 8}
    engine = scenario["engine"]
    assert (engine["name"], engine["version"]) == ("vllm", "0.11.0")
    assert engine["options"] == {
        "max_num_seqs": 256,
        "max_model_len": 16384,
        "enable_prefix_caching": False,
        "VLLM_USE_DEEP_GEMM": "1",
        "VLLM_ALL2ALL_BACKEND": "deepep_low_latency",
        "unpriced": ["foo"],
    }
    assert any("first token: --api-server-count = 4" in line for line in remarks)
    assert any("unknown amount" in line and "--foo = 3" in line for line in remarks)


def test_groups_of_a_dense_model_are_replicas(tmp_path: Path) -> None:
    scenario, _ = read(tmp_path, "vllm serve Qwen/Qwen3-32B --data-parallel-size 2 -tp=2")
    assert scenario["parallel"] == {"tp": 2, "dp": 2}


def test_docker_run(tmp_path: Path) -> None:
    scenario, remarks = read(
        tmp_path,
        """docker run --gpus '"device=0,1"' -e VLLM_ATTENTION_BACKEND=FLASHINFER --ipc=host \\
 vllm/vllm-openai:v0.10.1.1 --model Qwen/Qwen3-32B --tensor-parallel-size 4 -q fp8 \\
 --compilation-config '{"cudagraph_mode":"PIECEWISE","cudagraph_capture_sizes":[1,2,4]}'
""",
    )
    assert scenario["engine"]["version"] == "0.10.1.1"
    assert scenario["engine"]["options"] == {
        "quantization": "fp8",
        "compilation_config.cudagraph_mode": "PIECEWISE",
        "compilation_config.cudagraph_capture_sizes": [1, 2, 4],
        "VLLM_ATTENTION_BACKEND": "FLASHINFER",
    }
    assert "it is given 2 devices and asks for 4: it would not start" in remarks


COMPOSE = """x-common: &common
  ipc: host
services:
  sglang:
    <<: *common
    image: lmsysorg/sglang:v0.5.3.post1-cu126
    environment: [SGLANG_USE_AITER=0, "HF_TOKEN=${HF_TOKEN}"]
    entrypoint: python3 -m sglang.launch_server
    command: >
      --model-path ${MODEL:-deepseek-ai/DeepSeek-V3} --port 30000 --tp 8 --dp 4
      --enable-dp-attention --mem-frac 0.85 --moe-a2a-backend deepep --cuda-graph-bs 1 2 4
      --disable-radix-cache
      --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1
      --speculative-num-draft-tokens 4
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 8}]}}}
"""


def test_compose(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    scenario, remarks = read(tmp_path, COMPOSE, "compose.yaml")
    assert scenario["parallel"] == {"tp": 2, "attention_dp": 4, "ep": 8}
    assert scenario["speculative"] == {"method": "mtp", "k": 3}
    assert scenario["engine"]["options"] == {
        "mem_fraction_static": 0.85,
        "moe_a2a_backend": "deepep",
        "cuda_graph_bs": [1, 2, 4],
        "enable_prefix_caching": False,
        "SGLANG_USE_AITER": "0",
    }
    assert "--mem-frac: read as --mem-fraction-static, which alone begins so" in remarks
    (tmp_path / ".env").write_text("MODEL=Qwen/Qwen3-235B-A22B\n")
    scenario, _ = read(tmp_path, COMPOSE, "compose.yaml")
    assert scenario["model"] == "Qwen/Qwen3-235B-A22B"


def test_kubernetes(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    scenario, remarks = read(
        tmp_path,
        """apiVersion: v1
kind: Service
metadata: {name: llama}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama}
spec:
  replicas: 3
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers:
      - image: vllm/vllm-openai:v0.11.0
        command: ["/bin/sh", "-c"]
        args: ["vllm serve meta-llama/Llama-3.1-70B-Instruct -tp $(TP) --kv-cache-dtype fp8"]
        env: [{name: TP, value: "4"}]
        resources: {limits: {nvidia.com/gpu: "4"}}
""",
        "k8s.yaml",
    )
    assert scenario["device"] == "H100-SXM-80GB"
    assert scenario["pools"] == {"replicas": {"count": 3}}
    assert scenario["parallel"] == {"tp": 4}
    assert scenario["precision"] == {"kv_cache": "fp8"}
    assert not [line for line in remarks if "not known" in line]  # TP is put in


def test_tensorrt_llm_with_a_file_of_options(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    scenario, remarks = read(
        tmp_path,
        """cat > extra.yaml <<EOF
enable_attention_dp: true
kv_cache_config: {free_gpu_memory_fraction: 0.85, dtype: fp8}
moe_config: {backend: CUTLASS}
stream_interval: 10
EOF
mpirun -n 1 trtllm-llmapi-launch trtllm-serve deepseek-ai/DeepSeek-R1-0528 --tp_size 8 \\
  --ep_size 8 --max_batch_size 256 --extra_llm_api_options extra.yaml --backend pytorch
""",
    )
    assert scenario["parallel"] == {"attention_dp": 8, "ep": 8}
    assert scenario["engine"]["options"] == {
        "max_batch_size": 256,
        "free_gpu_memory_fraction": 0.85,
        "moe_config.backend": "CUTLASS",
    }
    assert any("which requests run when: --stream-interval = 10" in line for line in remarks)


def test_a_file_of_options_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match=r"names the file gone\.yaml") as caught:
        read(tmp_path, "trtllm-serve Qwen/Qwen3-8B --extra_llm_api_options gone.yaml")
    assert caught.value.kind == "io"


def test_servers_with_roles_by_their_router(tmp_path: Path) -> None:
    server = (
        "CUDA_VISIBLE_DEVICES={} vllm serve Qwen/Qwen3-8B --port {} --kv-transfer-config "
        """'{{"kv_connector":"NixlConnector","kv_role":"kv_both"}}' &\n"""
    )
    both = server.format(0, 8100) + server.format(1, 8200)
    router = "python proxy.py --prefiller-ports 8100 --decoder-ports 8200\n"
    scenario, remarks = read(tmp_path, both + router)
    assert [line for line in remarks if "does decodes, by a name" in line]
    roles = {name: (pool["role"], pool["count"]) for name, pool in scenario["pools"].items()}
    assert roles == {"prefill": ("prefill", 1), "decode": ("decode", 1)}
    scenario, _ = read(tmp_path, both)  # two alike: servers that do both
    assert scenario["pools"] == {"replicas": {"count": 2}}
    with pytest.raises(SilicastError, match="prefills or decodes"):
        read(tmp_path, both + server.format(2, 8300).replace("&", "-tp 2 &"))


def test_a_loop_starts_replicas(tmp_path: Path) -> None:
    scenario, _ = read(
        tmp_path,
        "for i in 0 1 2 3; do CUDA_VISIBLE_DEVICES=$i vllm serve Qwen/Qwen3-8B --port 800$i & done",
    )
    assert scenario["pools"] == {"replicas": {"count": 4}}


def test_a_unit_of_systemd(tmp_path: Path) -> None:
    scenario, _ = read(
        tmp_path,
        """[Unit]
Description=sglang
[Service]
Environment="SGLANG_USE_AITER=1"
ExecStart=/opt/venv/bin/python3 -m sglang.launch_server --model-path openai/gpt-oss-20b \\
  --mem-fraction-static 0.88 --enable-metrics
Restart=always
""",
        "sglang.service",
    )
    options = scenario["engine"]["options"]
    assert options == {"mem_fraction_static": 0.88, "SGLANG_USE_AITER": "1"}


def test_a_shell_in_a_container_has_its_release_and_variables(tmp_path: Path) -> None:
    scenario, _ = read(
        tmp_path,
        """docker run -d --gpus 8 -e SGLANG_USE_AITER=1 --name sgl lmsysorg/sglang:v0.5.9 bash -c \
  "cd /; python3 -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp 8" """,
    )
    assert scenario["engine"]["version"] == "0.5.9"
    assert scenario["engine"]["options"] == {"SGLANG_USE_AITER": "1"}


def test_servers_over_several_nodes(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    scenario, remarks = read(
        tmp_path,
        """kind: LeaderWorkerSet
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - image: docker.io/vllm/vllm-openai:v0.8.5
          command: [sh, -c, "ray start; vllm serve Llama-3.1-405B -tp 8 --pipeline_parallel_size 2"]
          resources: {limits: {nvidia.com/gpu: "8"}}
    workerTemplate: {spec: {containers: [{image: vllm/vllm-openai, command: [sh, -c, ray start]}]}}
""",
        "lws.yaml",
    )
    assert scenario["cluster"] == {"gpus_per_node": 8}
    assert scenario["pools"] == {"replicas": {"count": 2}}
    assert not [line for line in remarks if "would not start" in line]
    scenario, _ = read(
        tmp_path, f"{SGLANG} --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000"
    )
    assert (scenario["parallel"], scenario["cluster"]) == ({"tp": 16}, {"gpus_per_node": 8})


def test_a_file_of_options_is_below_the_command(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "config.yaml").write_text(
        "model: openai/gpt-oss-120b\ntensor-parallel-size: 2\nmax-num-seqs: 8\n"
        "no-enable-prefix-caching: true\n"
        'compilation-config: \'{"cudagraph_mode": "PIECEWISE"}\'\n'
    )
    config = tmp_path / "config.yaml"
    assert is_server_launch(config)
    alone, _ = launched_servers(config)
    assert alone["engine"]["options"]["max_num_seqs"] == 8
    scenario, _ = read(tmp_path, "vllm serve --config config.yaml --max-num-seqs 512")
    assert scenario["model"] == "openai/gpt-oss-120b"
    assert scenario["parallel"] == {"tp": 2}
    assert scenario["engine"]["options"] == {
        "compilation_config.cudagraph_mode": "PIECEWISE",
        "enable_prefix_caching": False,
        "max_num_seqs": 512,
    }
    script = next(path for path in tmp_path.iterdir() if path != config)
    assert is_server_launch(script, config)
    assert launched_servers(script, config)[0] == scenario
    config.write_text("model: Qwen/Qwen3-8B\nmax-num-seqs: 8\nlearning_rate: 0.1\n")
    assert not is_server_launch(config)


def test_one_of_several_servers_is_chosen(tmp_path: Path) -> None:
    text = "vllm serve Qwen/Qwen3-8B &\nvllm serve Qwen/Qwen3-32B -tp 2 &\n"
    with pytest.raises(SilicastError, match="holds 2 runs"):
        read(tmp_path, text)
    scenario, _ = read(tmp_path, text, run="2")
    assert scenario["model"] == "Qwen/Qwen3-32B"


def test_caches_in_the_memory_of_the_host(tmp_path: Path) -> None:
    config = """--kv-transfer-config '{"kv_connector":"%s","kv_role":"kv_both"%s}'"""
    scenario, _ = read(
        tmp_path,
        "LMCACHE_MAX_LOCAL_CPU_SIZE=20 vllm serve Qwen/Qwen3-32B -tp 2 "
        + config % ("LMCacheConnectorV1", ""),
    )
    assert scenario["engine"]["options"]["kv_offloading_size"] == 40.0  # of both ranks
    size = ',"kv_connector_extra_config":{"cpu_bytes_to_use":107374182400}'
    scenario, _ = read(
        tmp_path, "vllm serve Qwen/Qwen3-32B -tp 2 " + config % ("OffloadingConnector", size)
    )
    assert scenario["engine"]["options"]["kv_offloading_size"] == 100.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve Qwen/Qwen3-8B -tp $TP", ["tensor-parallel-size", "$TP", "--env TP=value"]),
        ("vllm serve $MODEL", ["model", "$MODEL", "--env MODEL=value"]),
        ("vllm serve --tensor-parallel-size 2", ["names no model"]),
        ("vllm serve Qwen/Qwen3-8B --tensor-parallel-size two", ["whole number", "two"]),
        ("vllm serve Qwen/Qwen3-8B --compilation-config '{x: 1}'", ["compilation-config", "JSON"]),
        (f"{SGLANG} --tp 8 --dp 3 --enable-dp-attention", ["8 does not divide by 3"]),
        (f"{SGLANG} --speculative-algorithm LOOKAHEAD", ["lookahead", "not modelled", "eagle"]),
        (f"{SGLANG} --speculative-algorithm EAGLE3", ["drafted tokens", "--speculative-num-steps"]),
    ],
)  # fmt: skip
def test_what_is_wrong_or_open_is_named(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(SilicastError) as caught:
        read(tmp_path, text)
    for word in words:
        assert word in str(caught.value)


def test_files_that_start_no_server(tmp_path: Path) -> None:
    path = tmp_path / "x.sh"
    for text in ("pip install vllm", "trtllm-serve disaggregated -c router.yaml", "echo vllm"):
        path.write_text(text)
        assert not is_server_launch(path)
    with pytest.raises(SilicastError, match="starts no server"):
        launched_servers(path)


@pytest.mark.parametrize("launcher", launchers(), ids=lambda each: each.engine)
def test_every_flag_of_a_package_is_used_or_named_with_what_it_changes(
    tmp_path: Path, launcher: Launcher
) -> None:
    start = " ".join(word.format(model="Llama-3.1-8B") for word in launcher.command)
    for flag in sorted(known_flags(launcher)):
        value = "" if flag.startswith(("enable", "disable")) else "1"
        if flag in (*launcher.reads.config, *TABLES) or flag.startswith(("speculative-", "dtype")):
            continue
        _, remarks = read(tmp_path, f"{start} --{flag} {value}")
        assert not [line for line in remarks if "unknown amount" in line], flag


@pytest.mark.parametrize("launcher", launchers(), ids=lambda each: each.engine)
def test_options_that_are_read_are_those_of_the_engine(launcher: Launcher) -> None:
    engine, reads = find_engine(launcher.engine), launcher.reads
    flags = [flag.replace("-", "_") for flag in reads.options]
    for name in (*flags, *reads.renamed.values(), *reads.negated.values(), *reads.variables):
        if is_switch(engine, name):
            continue
        with pytest.raises(SilicastError) as caught:
            with_options(engine, {name: object()})
        assert caught.value.kind != "not_yet", name
    unread = [n for n in engine.switches if n.isupper() and n not in reads.variables]
    assert not unread


def test_lines_that_end_as_on_windows_continue(tmp_path: Path) -> None:
    text = "TP=2\r\nvllm serve Qwen/Qwen3-8B \\\r\n  -tp $TP \\\r\n  --max-num-seqs 64\r\n"
    (tmp_path / "launch.sh").write_bytes(text.encode())
    scenario, _ = launched_servers(tmp_path / "launch.sh")
    assert scenario["parallel"] == {"tp": 2}
    assert scenario["engine"]["options"] == {"max_num_seqs": 64}


def test_what_a_condition_may_set_is_remarked(tmp_path: Path) -> None:
    text = "if [ $(nvidia-smi -L | wc -l) -ge 8 ]; then TP=4; fi\nvllm serve Qwen/Qwen3-8B -tp $TP"
    scenario, remarks = read(tmp_path, text)
    assert scenario["parallel"] == {"tp": 4}
    assert "set where a condition holds, taken as if it held: TP" in remarks


def test_a_package_with_its_release_is_no_variable(tmp_path: Path) -> None:
    text = "uv run --with vllm==0.11.0 vllm serve Qwen/Qwen3-8B"
    scenario, remarks = read(tmp_path, text)
    assert scenario["engine"] == {"name": "vllm", "version": "0.11.0"}
    assert not any("variables" in line for line in remarks)


def test_a_script_in_a_container_sets_variables_over_those_of_the_container(tmp_path: Path) -> None:
    text = """kind: Deployment
spec:
  template:
    spec:
      containers:
      - image: lmsysorg/sglang:v0.5.3
        command: ["/bin/bash", "-c"]
        args:
        - |
          TP=4
          export SEQS=$MOST
          exec python3 -m sglang.launch_server --model-path $(MODEL) --tp $TP \\
            --max-running-requests $SEQS
        env:
        - {name: MODEL, value: Qwen/Qwen3-8B}
        - {name: TP, value: "2"}
        - {name: MOST, value: "32"}
"""
    scenario, _ = read(tmp_path, text, "pod.yaml")
    assert scenario["model"] == "Qwen/Qwen3-8B"
    assert scenario["parallel"] == {"tp": 4}
    assert scenario["engine"] == {
        "name": "sglang", "version": "0.5.3", "options": {"max_running_requests": 32},
    }  # fmt: skip


def test_templates_of_compose_start_nothing(tmp_path: Path) -> None:
    text = """x-common: &common
  image: vllm/vllm-openai:v0.11.0
services:
  llm:
    <<: *common
    command: --model Qwen/Qwen3-8B -tp 2
"""
    scenario, _ = read(tmp_path, text, "compose.yaml")
    assert (scenario["model"], scenario["parallel"]) == ("Qwen/Qwen3-8B", {"tp": 2})
    assert scenario["engine"]["version"] == "0.11.0"


def test_the_command_of_a_pod_replaces_the_program_of_its_image(tmp_path: Path) -> None:
    text = """kind: Deployment
spec:
  template:
    spec:
      initContainers:
      - {name: load, image: "vllm/vllm-openai:v0.11.0", command: [hf, download, Qwen/Qwen3-8B]}
      containers:
      - name: server
        image: vllm/vllm-openai:v0.11.0
        args: [--model, Qwen/Qwen3-8B, --tensor-parallel-size, "2"]
        envFrom: [{configMapRef: {name: settings}}]
"""
    scenario, remarks = read(tmp_path, text, "pod.yaml")
    assert (scenario["model"], scenario["parallel"]) == ("Qwen/Qwen3-8B", {"tp": 2})
    assert "variables are not read: envFrom" in remarks


def test_the_command_of_a_service_follows_the_program_of_its_image(tmp_path: Path) -> None:
    text = """services:
  llm:
    image: vllm/vllm-openai:v0.11.0
    env_file: settings.env
    command: [Qwen/Qwen3-8B, -tp, "2"]
"""
    scenario, remarks = read(tmp_path, text, "compose.yaml")
    assert (scenario["model"], scenario["parallel"]) == ("Qwen/Qwen3-8B", {"tp": 2})
    assert "variables are not read: env_file" in remarks


@pytest.mark.parametrize(
    "text",
    [
        """ssh -p 22 user@node1 "cd /x && VLLM_USE_DEEP_GEMM=0 vllm serve Qwen/Qwen3-8B -tp 2" """,
        "ssh node1 VLLM_USE_DEEP_GEMM=0 vllm serve Qwen/Qwen3-8B -tp 2",
        "N=2\nssh node1 <<EOF\nexport VLLM_USE_DEEP_GEMM=0\nvllm serve Qwen/Qwen3-8B -tp $N\nEOF",
        "bash <<'EOF'\nN=2\nVLLM_USE_DEEP_GEMM=0 vllm serve Qwen/Qwen3-8B -tp $N\nEOF",
        "bash -c 'export VLLM_USE_DEEP_GEMM=0; N=2; exec vllm serve Qwen/Qwen3-8B -tp $N'",
    ],
)
def test_a_server_that_another_shell_starts(tmp_path: Path, text: str) -> None:
    scenario, _ = read(tmp_path, text)
    assert scenario["parallel"] == {"tp": 2}
    assert scenario["engine"]["options"] == {"VLLM_USE_DEEP_GEMM": "0"}
    assert "pools" not in scenario  # one server, though its words stand in two commands


def test_flags_of_other_releases(tmp_path: Path) -> None:
    start = "vllm serve deepseek-ai/DeepSeek-R1 -tp 8 "
    scenario, remarks = read(tmp_path, f"{start} --device-memory-utilization 0.8 -O2")
    assert scenario["engine"]["options"] == {"gpu_memory_utilization": 0.8}  # 0.33
    assert not [line for line in remarks if "not used" in line]
    scenario, _ = read(tmp_path, f"{start} --spec-method mtp --spec-tokens 2")  # 0.24
    assert scenario["speculative"] == {"method": "mtp", "k": 2}
    for graphs in ("-O.cudagraph_mode=PIECEWISE", """-O '{"cudagraph_mode": "PIECEWISE"}'"""):
        scenario, _ = read(tmp_path, f"{start} {graphs}")  # until 0.11
        assert scenario["engine"]["options"] == {"compilation_config.cudagraph_mode": "PIECEWISE"}
    scenario, _ = read(tmp_path, f"{start} --max-num-active-seqs 64 --max-num-seqs 256")
    assert scenario["engine"]["options"] == {"max_num_seqs": 64}  # 0.33: what may run
    scenario, _ = read(tmp_path, f"{start} --cuda-graph-sizes 2048")  # 0.9 to 0.12
    assert scenario["engine"]["options"] == {"cuda_graph_max_bs": 2048}
    scenario, _ = read(tmp_path, f"{start} --cuda-graph-sizes 1 2 64")
    assert scenario["engine"]["options"] == {"cudagraph_capture_sizes": [1, 2, 64]}
    scenario, _ = read(tmp_path, f"{SGLANG} --cuda-graph-max-bs-decode 64")  # 0.5.16
    assert scenario["engine"]["options"] == {"cuda_graph_max_bs": 64}


PRODUCTION_STACK = """\
servingEngineSpec:
  modelSpec:
  - name: qwen
    repository: vllm/vllm-openai
    tag: v0.11.0
    modelURL: Qwen/Qwen3-32B
    replicaCount: 3
    requestGPU: 2
    vllmConfig:
      enablePrefixCaching: false
      maxModelLen: 16384
      tensorParallelSize: 2
      extraArgs: ["--max-num-seqs", "64"]
    lmcacheConfig:
      enabled: true
      cpuOffloadingBufferSize: "20"
"""
MODEL_SERVICE = """\
modelArtifacts:
  uri: hf://Qwen/Qwen3-32B
decode:
  parallelism: {tensor: 4}
  containers:
  - image: ghcr.io/llm-d/llm-d-cuda:v0.3.0
    modelCommand: vllmServe
    args: [--kv-transfer-config, '{"kv_connector":"NixlConnector","kv_role":"kv_both"}']
prefill:
  replicas: 2
  containers:
  - image: ghcr.io/llm-d/llm-d-cuda:v0.3.0
    modelCommand: vllmServe
    args: [--kv-transfer-config, '{"kv_connector":"NixlConnector","kv_role":"kv_both"}']
"""


def test_values_of_charts(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(PRODUCTION_STACK)
    scenario, _ = launched_servers(path)
    assert scenario["parallel"] == {"tp": 2}
    assert scenario["pools"] == {"replicas": {"count": 3}}
    engine = scenario["engine"]
    assert engine["version"] == "0.11.0"
    assert engine["options"]["kv_offloading_size"] == 40.0  # 20 of each rank
    stated = {"max_model_len": 16384, "max_num_seqs": 64, "enable_prefix_caching": False}
    assert engine["options"].items() >= stated.items()
    path.write_text(MODEL_SERVICE)
    scenario, _ = launched_servers(path)
    assert scenario["model"] == "Qwen/Qwen3-32B"
    pools = {
        name: (pool["count"], pool.get("parallel")) for name, pool in scenario["pools"].items()
    }
    assert pools == {"decode": (1, {"tp": 4}), "prefill": (2, None)}
    assert "version" not in scenario["pools"]["decode"]["engine"]  # 0.3.0 is llm-d's


def test_fields_of_charts_that_are_not_read_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    fields = "{tensor: 4, data: 1, dataLocal: 2, workers: 4, rows: 3}"
    path.write_text(MODEL_SERVICE.replace("{tensor: 4}", fields))
    scenario, remarks = launched_servers(path)
    spread = "--parallelism.dataLocal = 2, --parallelism.workers = 4"
    assert f"not used, would change how the work is spread: {spread}" in remarks
    assert any("which widens the interval: --parallelism.rows = 3" in line for line in remarks)
    options = scenario["pools"]["decode"]["engine"]["options"]
    assert options["unpriced"] == ["parallelism.rows"]
    path.write_text(MODEL_SERVICE.replace("{tensor: 4}", "{tensor: 4, dataLocal: 1, workers: 1}"))
    _, remarks = launched_servers(path)
    assert not any("parallelism" in line for line in remarks)  # as if they were not there
    path.write_text(PRODUCTION_STACK + '      diskOffloadingBufferSize: "60"\n')
    _, remarks = launched_servers(path)
    disk = "--lmcacheConfig.diskOffloadingBufferSize = 60"
    assert f"not used, would change how long cached prompts take: {disk}" in remarks


def test_files_of_options_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for name, most in (("a", 8), ("b", 16)):
        (tmp_path / name).mkdir()
        text = f"model: Qwen/Qwen3-8B\nmax-num-seqs: {most}\n"
        (tmp_path / name / "config.yaml").write_text(text)
    first, second = tmp_path / "a" / "config.yaml", tmp_path / "b" / "config.yaml"
    with pytest.raises(SilicastError, match="run"):
        launched_servers(first, second)
    script = tmp_path / "a" / "run.sh"
    script.write_text("vllm serve --config /etc/vllm/config.yaml\n")
    for given, most in ((second, 16), (first, 8)):
        scenario, _ = launched_servers(script, given)
        assert scenario["engine"]["options"]["max_num_seqs"] == most


def test_a_file_of_common_names_starts_no_server(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    for text in ("device: cuda", "dtype: bfloat16\nseed: 1\nrevision: main"):
        path.write_text(f"model: Qwen/Qwen3-8B\n{text}\n")
        assert not is_server_launch(path)
