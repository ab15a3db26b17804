"""Files that would hang, fill memory or steer a terminal: refused before they are read."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from silicast.app.cli import main
from silicast.app.console import harmless

SERVE = "serve --model Llama-3.1-8B --device h100 --input-len 8 --output-len 2"
COMMANDS = {
    "run {}": ".toml",
    "run {} --trace t.json": ".json",
    "batch {} -o out.jsonl": ".jsonl",
    "diff {} --set device=h200": ".json",
    "infer --model {} --device h100": ".json",
    "infer --model Llama-3.1-8B --device {}": ".toml",
    "infer --model Llama-3.1-8B --device h100 --engine {}": ".toml",
    "infer --model Llama-3.1-8B --device h100 --calibration {}": ".json",
    "graph {} --device h100": ".json",
    "graph {}.et --device h100": "",
    f"{SERVE} --trace {{}}": ".csv",
    f"{SERVE} --concurrency 1 --price {{}}": ".csv",
    f"{SERVE} --concurrency 1 --from-log {{}}": ".log",
    "calibrate {} --device h100 -o out.json": ".csv",
    "calibrate {} --device h100 -o out.json#2": ".jsonl",
    "validate --measured {} --device h100": ".jsonl",
    "validate {}": ".toml",
    "import {} -o out.jsonl": ".json",
    "design map {} conv2d c=3 m=64 p=8 q=8 r=3 s=3": ".toml",
    "design search {}": ".toml",
    "collective all_reduce --bytes 1MB --device h100 --gpus 8 --astra-network {}"
    " --astra-system {}": ".yml",
}
"""Command -> ending of the file that it names."""
SECONDS = 5


@pytest.fixture
def bounded() -> Iterator[None]:
    """Ends a test that hangs, and an allocation of gigabytes."""

    def ended(_signal: int, _frame: object) -> None:
        raise AssertionError(f"still running after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ended)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, limits[1]))
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("kind", ["pipe", "endless"])
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_file_is_refused(
    command: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"given{COMMANDS[command]}"
    real = path if "{}.et" not in command else tmp_path / "given.et"
    if kind == "endless":
        real.symlink_to("/dev/zero")
    elif command.startswith("batch"):
        pytest.skip("a batch may come from a pipe")
    else:
        os.mkfifo(real)
    tokens = command.partition("#")[0].replace("{}", str(path)).split()
    assert main(tokens) == 2
    shown = capsys.readouterr()
    assert "given" in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.yaml", "a: " + "[" * 3000 + "]" * 3000),
        ("flow.yaml", "\n".join(" " * level + "a:" for level in range(3000))),
        ("deep.json", '{"a":' * 3000 + "1" + "}" * 3000),
        ("deep.toml", "a = " + "[" * 3000 + "]" * 3000),
        (
            "alias.yaml",
            "a: &b0 [1]\n" + "\n".join(f"x{n}: &b{n + 1} [*b{n}, *b{n}]" for n in range(40)),
        ),
    ],
)
def test_deep_documents_end_with_a_refusal(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    command = ["import", str(path), "-o", str(tmp_path / "out.toml")]
    if not name.endswith("yaml"):
        command = ["run", str(path)]
    assert main(command) == 2
    assert "internal error" not in capsys.readouterr().err


def test_names_of_files_steer_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a\x1b[2J\x07\u202e\nb.toml"
    path.write_text("task = 1")
    assert main(["run", str(path)]) == 2
    shown = capsys.readouterr().err
    assert "\\x1b[2J\\x07\\u202e\\nb.toml" in shown
    assert harmless(shown) == shown
    assert shown.count("\n") == 1, "a name cannot pretend to be another line"


def test_tables_on_the_screen_steer_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        'task = "kernel"\nkernel = {op = "rmsnorm", tokens = 8, hidden = 8}\n'
        'device = {base = "H100", name = "\\u001b]0;owned\\u0007"}\n'
    )
    assert main(["run", str(path)]) in (0, 2)
    shown = capsys.readouterr()
    assert "owned" in shown.out + shown.err
    assert harmless(shown.out + shown.err) == shown.out + shown.err


@pytest.mark.parametrize("name", ["passwd.csv", "passwd.jsonl", "passwd.toml", "passwd.json"])
def test_errors_quote_nothing_of_a_foreign_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text("root:s3cretHash:19000:0:99999:7:::\nother,line\n")
    out = str(tmp_path / "out.jsonl")
    serve = SERVE.split()
    for command in (
        ["run", str(path)],
        ["batch", str(path), "-o", out],
        [*serve, "--trace", str(path)],
        [*serve, "--concurrency", "1", "--price", str(path)],
        ["calibrate", str(path), "--device", "h100", "-o", out],
        ["validate", "--measured", str(path), "--device", "h100"],
        ["import", str(path), "-o", out],
    ):
        main(command)
        shown = capsys.readouterr()
        assert "s3cret" not in shown.err + shown.out, command


def test_whole_numbers_marks_and_repeated_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'task = "kernel"\ndevice = "h100"\nkernel = {op = "gemm", m = 8.0, n = 64, k = 64}\n'
    path = tmp_path / "bom.toml"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert main(["run", str(path), "--json"]) == 0
    with_point = capsys.readouterr().out
    path.write_text(text.replace("8.0", "8"))
    assert main(["run", str(path), "--json"]) == 0
    assert capsys.readouterr().out == with_point
    table = tmp_path / "rows.jsonl"
    table.write_text('{"op": "gemm", "m": 8, "m": 9, "n": 64, "k": 64, "latency_us": 5}\n')
    assert main(["validate", "--measured", str(table), "--device", "h100"]) == 2
    assert "'m' stands twice" in capsys.readouterr().err
