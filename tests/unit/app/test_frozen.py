"""Commands and options are a promise: this list changes only on purpose, with the change log."""

from __future__ import annotations

import re

import pytest
from cyclopts import App

from silicast.app.cli import build_app, main

DEPLOYMENT = (
    "--model --batch --input-len --output-len --engine --engine-version --option --dtype --weights"
    " --kv-dtype --power-w --tp --pp --ep --attention-dp --device"
)

FROZEN = {
    "infer": (
        f"{DEPLOYMENT} --cached-len --price --price-where --html --calibration --strict --json"
    ),
    "serve": (
        "--model --device --rate --concurrency --trace --skip-bad-rows --no-skip-bad-rows "
        "--input-len --output-len --requests "
        "--range-ratio --arrival --prefix-share --speculative --lora --slo --engine "
        "--engine-version --option --from-log --from-launch --dtype --kv-dtype --power-w "
        "--replicas --prefill --decode --seed --price --price-where --tp "
        "--pp --ep --attention-dp --requests-out --steps-out --trace-out --metrics-out --sweep "
        "--plot --html --calibration --strict --json"
    ),
    "train": (
        "--model --device --gpus --seq-len --global-batch --micro-batch --engine --dtype "
        "--optimizer --network --gpus-per-node --power-w --tp --pp --dp --cp --ep --etp --zero "
        "--virtual-stages --schedule --recompute --mtbf-hours --checkpoint-s "
        "--checkpoint-interval-s --restart-s --slow-fraction --slow-factor --offload-optimizer "
        "--offload-activations --offload-weights --offload-update --loader-tokens-per-s "
        "--storage-gb-per-s --checkpoint-every --checkpoint-async --no-checkpoint-async "
        "--tokens --price --price-where --trace --resume --html --calibration --strict --json"
    ),
    "capacity": (
        "--model --device --rate --concurrency --trace --skip-bad-rows --no-skip-bad-rows"
        " --input-len --output-len --requests"
        " --range-ratio --arrival --prefix-share --speculative --lora --slo --engine"
        " --engine-version --option --from-log --from-launch --dtype --kv-dtype --power-w"
        " --replicas --prefill --decode --seed --price --price-where"
        " --tp --pp --ep --attention-dp --users --max-gpus --autoscale --api-price"
        " --calibration --strict --json"
    ),
    "collective": (
        "--bytes --device --gpus --groups --group-stride --gpus-per-node --gpus-per-pod"
        " --oversubscription --inter-node --dtype --implementation --implementation-version"
        " --launch --astra-network --astra-system --plot --calibration --strict --json"
    ),
    "fits": (
        "--device --model --context --users --engine --most --least-tokens-per-s --servers --train"
        " --gpus --plot --json"
    ),
    "diagnose": "--device --measured-us --model --plot --json",
    "tune": "",
    "tune moe": "--model --device --engine --dtype --tp --ep --tokens --existing --triton --routing"
    " --measure --trials --top --plot --output -o --json",
    "tune gemm": (
        "--model --device --engine --dtype --tp --tokens --existing --top --output -o --json"
    ),
    "tune sparsity": "--model --device --tokens --dtype --json",
    "kernel": "--device --calibration --strict --json",
    "compare": (
        f"{DEPLOYMENT} --plan --gpus --users --tokens-per-user --price --price-where --sort --csv"
        " --plot --html --calibration --json"
    ),
    "explain": f"{DEPLOYMENT} --depth --pipes --calibration --trace --json",
    "diff": "--set --of --calibration --markdown --json",
    "graph": (
        "--device --batch --seq-len --set --training --optimizer --engine --attention --cuda-graph"
        " --runtime --dtype --tier --calibration --trace --chakra --plot --strict --json"
    ),
    "examples": "",
    "run": "--calibration --trace --strict --json",
    "batch": "--output -o --resume --workers --calibration",
    "recommend": (
        "--model --device --gpus --slo --rate --trace --input-len --output-len --range-ratio"
        " --engine --dtype --kv-dtype --vary --seed --price --price-where --top --output -o"
        " --target --checkpoint --calibration --strict --json"
    ),
    "deploy": "--output -o --target --checkpoint",
    "sensitivity": "--set --metric --plot --calibration --json",
    "sweep": (
        "--output -o --workers --shard --ray --point-seconds --point-memory-gb --watch"
        " --race --prune --dry-run --calibration --json"
    ),
    "results": (
        "--where --sort --metrics --front --best --keep --heat --plot --top --versions --output -o"
        " --cases --json"
    ),
    "traffic": "--model --device --only --skip-bad-rows --output -o --json",
    "reproduce": "--store --folder --calibration --json",
    "trace": "--output -o --training --dtype --autocast --shape --dynamic --weights",
    "devices": "--json",
    "devices list": "--json",
    "devices search": "--json",
    "devices show": "--json",
    "models": "--json",
    "models list": "--json",
    "models search": "--json",
    "models show": "--json",
    "engines": "--json",
    "engines list": "--json",
    "engines search": "--json",
    "engines show": "--json",
    "validate": ("--output -o --limit --measured --calibration --device --keep-flagged --json"),
    "measure": (
        "--output -o --budget --device --families --dtypes --models --scenario --seed --plan"
        " --draft-device"
    ),
    "import": "--output -o --format --device --run --env --set",
    "calibrate": (
        "--device --output -o --skip-bad --keep-flagged --holdout --seed --show --advise --top "
        "--budget"
    ),
    "whatif": "--device --batch --plan --traced --format --json",
    "runtime": "",
    "runtime detect": "--operators --rounds --output -o",
    "nas": "--device --samples --budget --accuracy --evaluations --top --seed --json",
    "server": "--host --port --processes --waiting --seconds --points --sweep-points",
    "mcp": "",
    "page": (
        "--model --device --output -o --engine --dtype --tp --pp --price --input-len --output-len"
    ),
    "cache": "",
    "cache show": "--json",
    "cache clear": "--json",
    "scorecard": "",
    "scorecard cases": "--output -o",
    "scorecard check": "--cases --json",
    "scorecard score": "--cases --truth --commitment --ledger --json",
    "scorecard page": "--cases --truth --output -o --commitment",
    "drift": "--calibration --device --tolerance --false-alarms --json",
    "check": "--baseline --max-regress --junit --json",
    "design": "",
    "design map": (
        "--density --fuse --objective --policy --effort --plot --json --node --from-node --voltage"
    ),
    "design explain": (
        "--density --fuse --objective --policy --effort --plot --json --node --from-node --voltage"
    ),
    "design compile": (
        "--model --output -o --batch --input-len --output-len --dtype --tp --effort"
    ),
    "design cost": "--node --area --wafer-usd --defects --from-node --json",
    "design search": "--output -o --method --evaluations --seed --resume --plot --json",
    "design import": "--output -o --format",
    "design compare": "--engine --objective --effort --json",
}


def _options(app: App) -> str:
    if app.default_command is None:
        return ""
    arguments = app.assemble_argument_collection()
    return " ".join(name for a in arguments for name in a.names if name.startswith("-"))


def _commands(app: App, prefix: str = "") -> dict[str, str]:
    commands: dict[str, str] = {}
    for name in app:
        if not name.startswith("-"):
            path = f"{prefix}{name}"
            commands[path] = _options(app[name])
            commands |= _commands(app[name], f"{path} ")
    return commands


def test_commands_and_options_are_frozen() -> None:
    assert _commands(build_app()) == FROZEN


@pytest.mark.parametrize("path", FROZEN)
def test_every_option_is_explained(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([*path.split(), "--help"])
    shown = capsys.readouterr().out
    assert len(shown.split("\n\n")[1]) > 15, "the command has no description"
    for option in FROZEN[path].split():
        if option.startswith("--"):
            words = rf"{option}( -\w)?( [A-Z\[\]]+)? +\S+ +\S+ +\S+"
            assert re.search(words, shown), f"{option} has no description"
