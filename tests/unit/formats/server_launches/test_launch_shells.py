"""Servers that shells within a script start, and the variables that they have.

What is expected is what bash gives, where ``ssh`` and ``docker`` start a shell that has none of the
caller's variables.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launches import read

TWO = "vllm serve Qwen/Qwen3-8B -tp 2"
DOUBTED = "a loop of unknown length starts the server: counted once"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f'for h in n1 n2 n3; do ssh $h "{TWO} --port 8000" & done', 3),
        (f"for h in n1 n2 n3; do ssh $h {TWO}; done", 3),
        (f'H=(n1 n2)\nfor h in "${{H[@]}}"; do ssh -p 22 me@$h "cd /x; {TWO}"; done', 2),
        (f'ssh n1 "{TWO}"\nssh n2 "{TWO}"\nssh n3 "{TWO}"', 3),
        (f"ssh n1 \"bash -c '{TWO}'\"; ssh n2 \"bash -c '{TWO}'\"", 2),
        (f"for h in a b; do\nssh $h <<E\nexport N=1\n{TWO}\nE\ndone", 2),
        (f'f() {{ ssh $1 "{TWO}"; }}\nfor h in a b c; do f $h; done', 3),
        (f'for h in n{{1..4}}; do for g in 0 1; do ssh $h "G=$g {TWO}"; done; done', 8),
        (f'for i in $(seq 0 3); do ssh n$i "{TWO}"; done', 4),
        (f"N=4\nfor ((i = 0; i < N; i += 2)); do {TWO} --port $((8000+i)) & done", 2),
        (f'pdsh -w n[1-3,7],m1 "{TWO}"', 5),
        (f"cat >s.sh <<E\n{TWO}\nE\n{TWO}\nssh h bash < s.sh", 2),
        (f"cat >s.sh <<E\n{TWO}\nE\ncat s.sh | ssh h 'bash -s'; ssh g <s.sh", 2),
        (f'{TWO}\necho "{TWO}" | ssh h', 2),
        (f"{TWO}\nprintf 'cd /x\\n{TWO}\\n' | ssh h bash -s", 2),
        (f"{TWO}\necho {TWO} | tee s.sh | ssh h", 2),
        (f'{TWO}\nssh h bash <<< "{TWO}"', 2),
        (f"A=1 bash <<<'{TWO}'", 1),
        (f"{TWO}\nsudo -u me ssh h <<E\n{TWO}\nE\ntimeout 9 sshpass -p x ssh g <<E\n{TWO}\nE", 3),
        (f"{TWO}\ndocker exec -i c bash <<E\n{TWO}\nE", 2),
        (f"{TWO}\necho {TWO} | ssh h grep x", 1),  # the other machine's program reads it
        (f"{TWO}\nssh h bash x.sh <<< '{TWO}'", 1),
        (f"eval {TWO}", 1),
        (f'bash -c "{TWO}"; {TWO}', 1),  # a port is taken once on a host
    ],
)
def test_a_server_on_each_host(tmp_path: Path, text: str, count: int) -> None:
    scenario, remarks = read(tmp_path, text)
    assert scenario["parallel"] == {"tp": 2}
    assert scenario.get("pools", {"replicas": {"count": 1}}) == {"replicas": {"count": count}}
    assert DOUBTED not in remarks


@pytest.mark.parametrize(
    ("start", "count"),
    [
        ("bash -euo pipefail", 1),
        ("bash -oe pipefail -O extglob", 1),
        ("bash --norc --rcfile x -", 1),
        ("bash /dev/stdin 4", 1),
        ("numactl -N 0 --membind 0 bash -s", 1),
        ("env A=1 zsh", 1),
        ("singularity exec --nv -B /a:/a x.sif bash", 1),
        ("docker run --gpus all -v /a:/b -e A=/bin/sh --rm -i image bash -e", 2),
        ("docker compose exec -T one sh", 2),
        ("kubectl exec -i pod -n x -- bash -s -- 4", 2),
        ("ssh n2 bash -euo pipefail", 2),
        ("ssh n2 sudo -u bob bash", 2),
        ("ssh n2 sudo -i", 2),
        ("ssh $SSH_OPTS n2", 2),
        ("ssh $SSH_OPTS n2 bash -s", 2),
        ('ssh "$HOST" $RUN', 2),
        ("ssh n2 env A=1 bash -s", 2),
        ("ssh n2 A=1 nohup bash -s", 2),
        ("ssh n2 numactl -N 0 -m 0 bash -s", 2),
        ("ssh n2 taskset -c 0-3 timeout -k 5 9 bash", 2),
        ("ssh n2 'bash -s > log 2>&1; echo done'", 2),
        ("ssh n2 unknown --x /bin/bash -s", 2),
        ("ssh -o A=b -i key u@n 'bash -s' -- arg", 2),
        ("ssh -fL 8:h:9 -oA=b n2", 2),
        ("sudo ssh n1 ssh n2 bash", 2),
        # no shell reads it
        ("bash -euo pipefail x.sh", 1),
        ("ssh n2 bash -euo pipefail x.sh", 1),
        ("ssh $HOST 'cat > x.sh'", 1),
        ("ssh n2 sudo -u bob tee /opt/bash", 1),
        ("sudo tee /opt/bash", 1),
        ("docker exec -i ssh cat", 1),
        ("docker run -i -e SHELL=/bin/bash image cat", 1),
        ("env SHELL=/bin/bash cat", 1),
        ("ssh n2 python -", 1),
    ],
)
def test_shells_behind_options_read_their_document(tmp_path: Path, start: str, count: int) -> None:
    """A server that this machine's shell is given takes the port of the one before it."""
    scenario, _ = read(tmp_path, f"{TWO}\n{start} <<'E'\n{TWO}\nE")
    assert scenario.get("pools", {"replicas": {"count": 1}}) == {"replicas": {"count": count}}


@pytest.mark.parametrize(
    "start",
    [
        "bash -euo pipefail",
        "bash -oe pipefail -O extglob",
        "bash --norc --rcfile x -",
        "bash /dev/stdin 4",
        "numactl -N 0 --membind 0 bash -s",
        "env A=1 zsh",
        "singularity exec --nv -B /a:/a x.sif bash",
        "srun -N 2 bash -eu -o pipefail",
    ],
)
def test_a_document_alone_starts_the_server(tmp_path: Path, start: str) -> None:
    scenario, _ = read(tmp_path, f"{start} <<'E'\n{TWO}\nE")
    assert scenario["parallel"] == {"tp": 2}


def test_settings_of_a_connection_are_no_variables(tmp_path: Path) -> None:
    _, remarks = read(tmp_path, f"ssh -o StrictHostKeyChecking=no n1 '{TWO}'")
    assert not any("StrictHostKeyChecking" in each for each in remarks)


def test_servers_in_containers_of_a_host_are_counted(tmp_path: Path) -> None:
    start = f'docker run -p %d:8000 image bash -c "{TWO}"\n'
    scenario, _ = read(tmp_path, start % 1 + start % 2)
    assert scenario["pools"] == {"replicas": {"count": 2}}


@pytest.mark.parametrize("loop", ["for h in $(cat hosts)", "while read h"])
def test_a_loop_of_unknown_length_is_doubted(tmp_path: Path, loop: str) -> None:
    scenario, remarks = read(tmp_path, f'{loop}; do ssh $h "{TWO}"; done')
    assert "pools" not in scenario
    assert DOUBTED in remarks


@pytest.mark.parametrize(
    ("text", "degree"),
    [
        ("ssh h 'TP=8; export X=1'", 1),
        ("bash -c 'TP=8; export TP'", 1),
        ("(TP=8; export TP)", 1),
        ("TP=2\n(TP=8)", 2),
        ("f() { (TP=8; true); }\nf", 1),
        ("A=x\n(case $A in x) TP=8;; esac)", 1),
        ("eval 'TP=8'", 8),
        ("cat >env.sh <<E\nTP=8\nE\nsource env.sh", 8),
        ("cat >env.sh <<E\nTP=8\nE\n. env.sh", 8),
        ("A=x\ncase $A in (x) TP=8;; esac", 8),
        ("( (TP=8) )", 1),
        ("((TP=8))", 8),
        ("TP=4\n((TP *= 2))", 8),
        ("TP=7\n((TP++))", 8),
        ("TP=7\nlet TP+=1", 8),
        ("TP=8\nunset TP", 1),
        ("f() { return 0; TP=8; }\nf", 1),
    ],
)
def test_a_child_shell_gives_no_variables_back(tmp_path: Path, text: str, degree: int) -> None:
    scenario, _ = read(
        tmp_path, f"{text}\nvllm serve Qwen/Qwen3-8B --tensor-parallel-size ${{TP:-1}}"
    )
    assert scenario.get("parallel", {"tp": 1}) == {"tp": degree}


@pytest.mark.parametrize(
    ("text", "degree"),
    [
        ("TP=8\nbash -c '%s'", 1),
        ("export TP=8\nbash -c '%s'", 8),
        ("set -a\nTP=8\nbash -c '%s'", 8),
        ("TP=8 bash -c '%s'", 8),
        ("export TP=8\nssh h '%s'", 1),
        ("TP=8\n(%s)", 8),
        ("env TP=8 bash -c '%s'", 8),
        ("docker run -e TP=8 image bash -c '%s'", 8),
        ("export TP=8\ndocker run -e TP image bash -c '%s'", 8),
        ("export TP=8\ndocker run image bash -c '%s'", 1),
        ("cat >run.sh <<'E'\n%s\nE\nTP=8 bash run.sh", 8),
        ("cat >run.sh <<'E'\nTP=$2\n%s\nE\nbash run.sh 4 8", 8),
        ("cat >run.sh <<'E'\nTP=$2\n%s\nE\nbash -euo pipefail run.sh 4 8", 8),
        ("%s\nexit\nvllm serve Qwen/Qwen3-8B -tp 4", 1),
        ("A=1\nTP=${A:+8}\n%s", 8),
        ("TP=${A:+8}\n%s", 1),
        ("TP=8\n%s\nTP=4", 8),
    ],
)
def test_what_a_child_shell_knows(tmp_path: Path, text: str, degree: int) -> None:
    scenario, _ = read(tmp_path, text % "vllm serve Qwen/Qwen3-8B -tp ${TP:-1}")
    assert scenario.get("parallel", {"tp": 1}) == {"tp": degree}


def test_servers_have_the_variables_of_their_time(tmp_path: Path) -> None:
    switch = "export VLLM_USE_DEEP_GEMM"
    scenario, _ = read(tmp_path, f"{switch}=1\n{TWO} --port 1\n{switch}=0")
    assert scenario["engine"]["options"]["VLLM_USE_DEEP_GEMM"] == "1"


def test_files_that_are_sourced_and_not_known_are_named(tmp_path: Path) -> None:
    _, remarks = read(tmp_path, f"source /opt/env.sh\n{TWO}")
    assert "files that the script sources are not read: /opt/env.sh" in remarks


def test_a_script_in_a_container_sets_variables_of_the_server(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    script = f"export VLLM_USE_DEEP_GEMM=0\n        {TWO}"
    text = f"""services:
  one:
    image: vllm/vllm-openai:v0.11.0
    environment: {{VLLM_USE_DEEP_GEMM: "1"}}
    entrypoint: [bash, -c]
    command:
      - |
        {script}
"""
    scenario, _ = read(tmp_path, text, "compose.yaml")
    assert scenario["engine"]["options"] == {"VLLM_USE_DEEP_GEMM": "0"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"[Service]\nEnvironmentFile=/etc/x.env\nExecStart=/bin/{TWO}\n", "EnvironmentFile"),
        ("docker run --env-file x.env vllm/vllm-openai --model org/m", "--env-file"),
        (f"docker run --env-file=x.env image bash -c '{TWO}'", "--env-file"),
    ],
)
def test_files_of_variables_are_named(tmp_path: Path, text: str, name: str) -> None:
    _, remarks = read(tmp_path, text)
    assert f"variables are not read: {name}" in remarks


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ssh h bash < serve.sh", "serve.sh"),
        ("D=/x\nssh h < $D/serve.sh", "/x/serve.sh"),
        ("cat serve.sh | ssh h bash -s", "serve.sh"),
        ("cat a.sh b.sh | bash", "a.sh, b.sh"),
        ("cat | bash", "what cat prints"),
        ("curl -s http://x/serve.sh | sudo bash", "what curl -s http://x/serve.sh prints"),
        (f"{TWO} --port 1 | bash", f"what {TWO} --port 1 prints"),
    ],
)
def test_scripts_from_elsewhere_are_named(tmp_path: Path, text: str, name: str) -> None:
    """They may start servers of which the file says nothing."""
    _, remarks = read(tmp_path, f"{TWO}\n{text}")
    assert f"files that the script sources are not read: {name}" in remarks
    _, remarks = read(tmp_path, f"{TWO}\nssh h 'run --x' < data.txt")
    assert not [each for each in remarks if "sources" in each]
