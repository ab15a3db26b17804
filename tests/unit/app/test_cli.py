"""The command line as its users meet it: results, errors, exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from silicast.app import cli
from silicast.app.cli import main

INFER = "infer --model Llama-3.1-8B --device h100 --batch 8 --input-len 1024 --output-len 128"
GEMM = "kernel gemm m=4096 n=4096 k=4096 dtype=bf16 --device h100"

Capture = pytest.CaptureFixture[str]


def run(command: str, capsys: Capture) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command."""
    status = main(command.split())
    out, err = capsys.readouterr()
    return status, out, err


def test_infer_answers_in_one_table(capsys: Capture) -> None:
    status, out, err = run(INFER, capsys)
    assert (status, err) == (0, "")
    for words in ("prefill", "each further token", "whole batch", "memory", "90 % interval"):
        assert words in out
    assert "fits" in out


@pytest.mark.parametrize("command", [INFER, GEMM])
def test_json_holds_three_numbers_a_metric(command: str, capsys: Capture) -> None:
    status, out, _ = run(f"{command} --json", capsys)
    answer = json.loads(out)
    assert status == 0
    assert answer["ok"] is True
    for name, metric in answer["metrics"].items():
        assert 0 <= metric["p05"] <= metric["estimate"] <= metric["p95"], name
        assert answer["bound"].get(name, 0) <= metric["p05"]


@pytest.mark.parametrize(
    "command", [INFER, f"{INFER} --json", GEMM, "devices", "models", "engines"]
)
def test_stdout_is_the_same_every_time(command: str, capsys: Capture) -> None:
    first = run(command, capsys)[1]
    assert first
    assert run(command, capsys)[1] == first


def test_flags_and_file_give_the_same_answer(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(
        'task = "inference"\nmodel = "Llama-3.1-8B"\ndevice = "h100"\n'
        "workload = { batch = 8, input_len = 1024, output_len = 128 }\n",
        encoding="utf-8",
    )
    by_flags = json.loads(run(f"{INFER} --json", capsys)[1])
    by_file = json.loads(run(f"run {file} --json", capsys)[1])
    assert by_file == by_flags


def test_a_model_that_does_not_fit_is_answered(capsys: Capture) -> None:
    status, out, _ = run("infer --model Llama-3.1-70B --device h100", capsys)
    assert status == 0
    remark = " ".join(out.split())
    assert "does not fit by" in remark
    assert "it would fit with tp = 2" in remark


BAD = {
    "infer --model Llama-3.1-8B --device h1000": "did you mean",
    "infer --model Lama-3.1-8B --device h100": "did you mean",
    "infer --model Llama-3.1-8B --device h100 --batch 0": "batch",
    "infer --model Llama-3.1-8B --device h100 --batch -3": "batch",
    "infer --model Llama-3.1-8B --device h100 --input-len 99999999999999999999": "64 bits",
    "infer --model Llama-3.1-8B --device h100 --tp 3": "heads",
    "infer --model Llama-3.1-8B --device h100 --dtype fp7": "fp7",
    "infer --model Llama-3.1-8B --device h100 --engine vlm": "did you mean",
    "infer --model Llama-3.1-8B": "--device",
    "infer --model Llama-3.1-8B --device h100 --bach 8": "--bach",
    "infer --model Llama-3.1-8B --device h100 --batch eight": "--batch",
    "kernel gem m=1 n=1 k=1 --device h100": "gemm",
    "kernel gemm m=1 n=1 --device h100": "k",
    "kernel gemm m=1 n=1 k=1 m --device h100": "key=value",
    "kernel gemm m=1 m=2 n=1 k=1 --device h100": "twice",
    "kernel gemm m=nan n=1 k=1 --device h100": "whole number, found 'nan'",
    "kernel gemm m=1.5 n=1 k=1 --device h100": "whole number",
    "compare --model Llama-3.1-8B --device h100 --plan tp=two": "tp",
    "compare --model Llama-3.1-8B --device h100 --plan zz=2": "zz",
    "compare --model Llama-3.1-8B --device h100 --plan tp=2 --tp 4": "contradicts --tp 4",
    "compare --model Llama-3.1-8B --device h100 --plan tp=2,tp=4": "twice",
    "compare --model Llama-3.1-8B --device ,": "--device",
    "kernel attention_prefill q_lens=[] kv_lens=8 num_heads=8 head_dim=64 --device h100": "q_len",
    "explain --model Llama-3.1-8B --device h100 --depth -5": "--depth",
    "explain --model Llama-3.1-8B --device h100 --depth 0": "--depth",
    "explain": "--model",
    "run nowhere.toml": "nowhere.toml",
    "batch nowhere.jsonl": "nowhere.jsonl",
    "devices show h1000": "did you mean",
    "devices search qqqqqqqqqqq": "unknown device",
    "validate no-such-suite": "no-such-suite",
    "validate nowhere.toml": "nowhere.toml",
    "inferr": "inferr",
}


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_one_clear_line(command: str, capsys: Capture) -> None:
    status, out, err = run(command, capsys)
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert BAD[command] in err
    assert "Traceback" not in err


def test_what_cannot_be_answered_yet_says_so(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(
        'task = "plan"\nmodel = "Llama-3.1-8B"\ndevice = "h100"\n[workload]\n'
        'objective = "latency"\ninference = { batch = 8, input_len = 100, output_len = 100 }\n',
        encoding="utf-8",
    )
    status, out, _ = run(f"run {file} --json", capsys)
    reply = json.loads(out)
    assert status == 3
    assert run(f"run {file}", capsys)[0] == 3
    assert reply["ok"] is False
    assert reply["error"]["kind"] == "not_yet"
    assert "metrics" not in reply


def test_strict_refuses_what_lies_outside_measured_ground(capsys: Capture) -> None:
    known = "kernel rmsnorm tokens=64 hidden=4096 --device h100"
    assert run(f"{known} --strict", capsys)[0] == 0
    far = known.replace("h100", "rtx5090")
    assert run(far, capsys)[0] == 0
    status, out, err = run(f"{far} --strict", capsys)
    assert (status, out) == (3, "")
    assert "outside measured ground" in err


def test_batch_goes_on_past_a_bad_line(tmp_path: Path, capsys: Capture) -> None:
    kernel = {"op": "gemm", "m": 8, "n": 4096, "k": 4096, "dtype": "bf16"}
    good = {"id": "a", "task": "kernel", "device": "h100", "workload": {"kernel": kernel}}
    cases = tmp_path / "cases.jsonl"
    cases.write_text(f"{json.dumps(good)}\n{{bad\n", encoding="utf-8")
    status, out, err = run(f"batch {cases}", capsys)
    replies = [json.loads(line) for line in out.splitlines()]
    assert status == 3
    assert [reply["ok"] for reply in replies] == [True, False]
    assert err == "1 answered, 1 failed\n"
    cases.write_text(f"{json.dumps(good)}\n", encoding="utf-8")
    answers = tmp_path / "answers.jsonl"
    assert run(f"batch {cases} -o {answers}", capsys)[:2] == (0, "")
    assert json.loads(answers.read_text(encoding="utf-8"))["id"] == "a"


def test_compare_sorts_and_keeps_those_that_fail(capsys: Capture) -> None:
    command = "compare --model Llama-3.1-8B --device l4,h100,nowhere --batch 8"
    status, out, _ = run(command, capsys)
    assert status == 3
    assert out.index("\nh100") < out.index("\nl4") < out.index("nowhere: unknown device")


def test_explain_shows_the_tree_of_a_file_too(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "kernel.toml"
    file.write_text(
        'task = "kernel"\ndevice = "h100"\nworkload = { kernel = { op = "rmsnorm", tokens = 4096,'
        " hidden = 4096 } }\n",
        encoding="utf-8",
    )
    status, out, _ = run(f"explain {file}", capsys)
    assert status == 0
    assert "memory bandwidth" in out


def test_a_defect_shows_no_traceback(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_tokens: list[str]) -> int:
        raise ZeroDivisionError("secret\ndetail")

    monkeypatch.setattr(cli, "_dispatch", broken)
    monkeypatch.delenv("SILICAST_DEBUG", raising=False)
    status, out, err = run("devices", capsys)
    assert (status, out) == (70, "")
    assert err.startswith("internal error: ZeroDivisionError: secret detail")
    assert err.count("\n") == 1
    for off in ("0", "", "false"):
        monkeypatch.setenv("SILICAST_DEBUG", off)
        assert main(["devices"]) == 70
    monkeypatch.setenv("SILICAST_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["devices"])


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m silicast models list --json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_unicode_gets_its_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "silicast", *GEMM.split()],
        capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"latency" in done.stdout


def test_a_huge_file_is_refused_at_once(tmp_path: Path, capsys: Capture) -> None:
    for name, command in (
        ("big.toml", "run"),
        ("big.jsonl", "batch"),
        ("big.toml", "devices show"),
    ):
        file = tmp_path / name
        with file.open("wb") as stream:
            stream.truncate(1 << 30)
        status, _, err = run(f"{command} {file}", capsys)
        assert status == 2
        assert err.count("\n") == 1


def test_help_names_every_command(capsys: Capture) -> None:
    status, out, _ = run("--help", capsys)
    assert status == 0
    for name in (*cli.PREDICT, *cli.CATALOG):
        assert f" {name} " in out


def test_version(capsys: Capture) -> None:
    from silicast import __version__

    version, _, runs = run("--version", capsys)[1].strip().partition(" ")
    assert version == __version__
    assert runs.startswith(("(pure Python", "(compiled core"))


def test_an_empty_plan_is_refused(capsys: Capture) -> None:
    command = ["compare", "--model", "Llama-3.1-8B", "--device", "h100", "--plan", ""]
    assert main(command) == 2
    assert "--plan: is empty (for example tp=2" in capsys.readouterr().err


def test_degrees_given_once_hold_for_every_plan(capsys: Capture) -> None:
    command = "compare --model Llama-3.1-8B --device h100 --batch 8 --plan tp=2 --plan tp=4 --pp 2"
    status, out, _ = run(f"{command} --json", capsys)
    assert status == 0
    assert [case["why"]["deployment"]["devices"] for case in json.loads(out)] == [4, 8]


def test_a_comparison_keeps_hints(capsys: Capture) -> None:
    _, out, _ = run("compare --model Llama-3.1-8B --device h100,h1000", capsys)
    assert "h1000: unknown device 'h1000' (did you mean H100" in out
    _, out, _ = run("compare --model Llama-3.1-8B --device h100 --plan tp=1 --plan tp=3", capsys)
    assert "h100 tp=3: parallel" in out


LENGTHS = "num_heads=8 num_kv_heads=8 head_dim=64 --device h100 --json"


SINGLE = (
    "q_lens=512 kv_lens=512", "q_lens=512, kv_lens=512,", "q_lens=[512] kv_lens=[512]",
    "q_len=[512,] kv_len=512",
)  # fmt: skip


@pytest.mark.parametrize("lengths", SINGLE)
def test_lists_of_one(lengths: str, capsys: Capture) -> None:
    one = run(f"kernel attention_prefill {lengths} {LENGTHS}", capsys)
    same = run(f"kernel attention_prefill q_len=512 kv_len=512 batch=1 {LENGTHS}", capsys)
    assert one == same
    assert one[0] == 0
    two = run(f"kernel attention_prefill q_lens=[512,512] kv_lens=512,512 {LENGTHS}", capsys)
    assert two == run(f"kernel attention_prefill q_len=512 kv_len=512 batch=2 {LENGTHS}", capsys)


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("QwQ", {"QwQ-32B"}),
        ("Qwen3-Coder-30B", {"Qwen3-Coder-30B-A3B-Instruct"}),
        ("Phi-3.5", {"Phi-3-mini-128k-instruct"}),
        (
            "2507",
            {
                "Qwen3-4B-Instruct-2507",
                "Qwen3-30B-A3B-Instruct-2507",
                "Qwen3-235B-A22B-Instruct-2507",
            },
        ),
    ],
)
def test_a_search_looks_among_variants_too(text: str, models: set[str], capsys: Capture) -> None:
    status, out, _ = run(f"models search {text} --json", capsys)
    assert status == 0
    assert {row["name"] for row in json.loads(out)} >= models
    listed = json.loads(run("models --json", capsys)[1])
    assert not models & {row["name"] for row in listed}


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("run nowhere.toml", "io"),
        ("explain nowhere.toml", "io"),
        ("devices show h1000", "unknown_name"),
        ("models search qqqqqqqqq", "unknown_name"),
        ("validate no-such-suite", "unknown_name"),
        ("validate nowhere.toml", "io"),
        ("kernel gemm m --device h100", "invalid_input"),
        ("infer --model Llama-3.1-8B --bach 3", "invalid_input"),
    ],
)
def test_errors_are_json_where_json_is_asked(command: str, kind: str, capsys: Capture) -> None:
    status, out, err = run(f"{command} --json", capsys)
    assert (status, err) == (2, "")
    reply = json.loads(out)
    assert reply["ok"] is False
    assert reply["error"]["kind"] == kind
    assert reply["error"].keys() == {"kind", "message", "field", "hint"}


def test_suites_without_pyarrow_say_what_to_install(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lab.scorecard.suite import suite_named

    for table in suite_named("gemm").source:
        (tmp_path / table).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / table).touch()
    monkeypatch.setenv("SILICAST_DATA", str(tmp_path))
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    status, out, err = run("validate gemm", capsys)
    assert (status, out) == (3, "")
    assert "pip install 'silicast[data]'" in err


@pytest.mark.parametrize("command", ["validate gemm", "validate"])
def test_an_installed_package_says_that_suites_need_a_checkout(
    command: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("silicast.validation.checkout.ROOT", tmp_path)
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert "not part of the installed package" in err
    assert "checkout of the repository" in err


def test_an_installed_package_scores_measurements_and_checks_files(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("silicast.validation.checkout.ROOT", tmp_path)
    rows = tmp_path / "rows.csv"
    rows.write_text("op,m,n,k,dtype,device,latency_us\ngemm,64,4096,4096,bf16,h100,13.1\n")
    assert run(f"validate --measured {rows}", capsys)[0] == 0
    design = tmp_path / "mine.toml"
    design.write_text('base = "H100"\nname = "mine"\n')
    assert run(f"validate {design}", capsys)[0] == 0


def test_a_folder_that_cannot_be_made_is_named(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lab.scorecard import provider

    monkeypatch.setattr(provider, "run", lambda *_names, **_rest: [])
    monkeypatch.setattr(provider, "expense", lambda *_: [])
    (tmp_path / "file").touch()
    status, _, err = run(f"validate gemm -o {tmp_path}/file/results", capsys)
    assert status == 2
    assert "cannot make this folder" in err


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        ("> /dev/full", 2, "error: cannot write the output: No space left on device\n"),
        (">&-", 2, "error: cannot write the output: stdout is closed\n"),
        ("2>&-", 0, ""),
    ],
)
def test_output_that_cannot_be_written(redirection: str, status: int, said: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m silicast engines {redirection}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (status, said)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (INFER.replace("--batch 8", "--batch 2.7"), "--batch"),
        ("serve --model Llama-3.1-8B --device l4 --rate 1 --requests 10.5", "--requests"),
        ("recommend --model Llama-3.1-8B --device l4 --gpus 2.5 --slo tpot=1s", "--gpus"),
    ],
)
def test_a_fraction_is_no_count(command: str, option: str, capsys: Capture) -> None:
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert option in err
    assert "int" in err


@pytest.mark.parametrize(
    "vary", ["tp", "engine.name=", "a.b=1,1", "engine.name=vllm --vary engine.name=x"]
)
def test_what_varies_is_a_field_with_values(vary: str, capsys: Capture) -> None:
    command = f"recommend --model x --device l4 --gpus 2 --slo tpot=1s --rate 1 --vary {vary}"
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert err.startswith("error: --vary: ")


def test_a_field_without_values_is_named(capsys: Capture) -> None:
    command = "recommend --model x --device l4 --gpus 2 --slo tpot=1s --rate 1"
    _, _, err = run(f"{command} --vary engine.options.max_num_seqs=", capsys)
    assert err.startswith("error: --vary: engine.options.max_num_seqs has no values")


def test_a_whole_number_may_be_written_with_a_point(capsys: Capture) -> None:
    assert run(INFER.replace("--batch 8", "--batch 8.0"), capsys) == run(INFER, capsys)


@pytest.mark.parametrize(
    "command",
    ["calibrate --advise fbnet --top -1", "results store --top 0", "nas fbnet --device x --top -2"],
)
def test_a_table_has_one_row_at_least(command: str, capsys: Capture) -> None:
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert "--top" in err


def test_files_of_a_plan_that_misses_the_objective_say_so(tmp_path: Path, capsys: Capture) -> None:
    command = (
        "recommend --model Llama-3.2-1B --device h100 --gpus 1 --rate 20 --input-len 32 "
        "--output-len 2 -o"
    )
    _, out, err = run(f"{command} {tmp_path / 'files'} --slo tpot_p99=1us", capsys)
    assert "no plan keeps the objective; nearest is tp 1 x 1" in out
    assert "which does not keep the objective" in err
    _, _, err = run(f"{command} {tmp_path / 'others'} --slo tpot_p99=1s", capsys)
    assert "does not keep" not in err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("graph resnet5 --device h100", "did you mean resnet50?"),
        ("graph Llama-3.1-8 --device h100", "Llama-3.1-8B"),
        ("calibrate --advise GalaxyS99", "did you mean Samsung Galaxy S25"),
        (
            "infer --model Llama-3.1-8B --device 4090 --engine exllamav3 --weights 4.25bpw",
            "take 5.0bpw or 4.0bpw",
        ),
    ],
)
def test_a_wrong_name_offers_the_nearest(command: str, words: str, capsys: Capture) -> None:
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert words in err
